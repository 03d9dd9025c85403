/* Types that every part of cloob shares: status, element type, context.
 *
 * Every call that can fail returns a cloob_status. The context stores the text of the last failure; cloob_error
 * returns it. The library never prints and never exits. A context may be used by one thread at a time. Contexts
 * are independent: each thread may use its own. */
#ifndef CLOOB_TYPES_H
#define CLOOB_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#    define CLOOB_API __attribute__((visibility("default")))
#else
#    define CLOOB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cloob_status {
    CLOOB_OK = 0,
    CLOOB_ERR_ARGUMENT,    /* invalid argument; the caller can correct it */
    CLOOB_ERR_IO,          /* reading or writing a file, pipe or connection failed */
    CLOOB_ERR_FORMAT,      /* invalid or damaged file content */
    CLOOB_ERR_MEMORY,      /* out of host or device memory */
    CLOOB_ERR_DEVICE,      /* an accelerator or its library failed */
    CLOOB_ERR_PEER,        /* another rank ended, or its settings differ */
    CLOOB_ERR_UNSUPPORTED, /* not available in this build or on this machine */
    CLOOB_ERR_NUMERIC,     /* NaN, infinity, or a value outside its domain */
    CLOOB_ERR_STOPPED,     /* stopped by the caller; all work is saved */
    CLOOB_ERR_BUSY         /* a queue is full or a timeout expired; try again later */
} cloob_status;

typedef enum cloob_dtype {
    CLOOB_F32 = 0,
    CLOOB_BF16,
    CLOOB_F16,
    CLOOB_F64,
    CLOOB_I64,
    CLOOB_I32,
    CLOOB_I16,
    CLOOB_I8,
    CLOOB_U8,
    CLOOB_BOOL
} cloob_dtype;

typedef enum cloob_log_level { CLOOB_LOG_DEBUG = 0, CLOOB_LOG_INFO, CLOOB_LOG_WARN, CLOOB_LOG_QUIET } cloob_log_level;

/* Receives one line of progress or a warning, without a newline. Called from the calling thread or from a worker
 * thread, so it must be thread-safe. */
typedef void cloob_log_fn(void *user, cloob_log_level level, const char *line);

/* Progress of a long call. Strings are valid during the callback only. */
typedef struct cloob_progress {
    const char *task;    /* short name: "train", "embed images" */
    const char *unit;    /* what is counted: "steps", "images" */
    int64_t done, total; /* total 0: unknown */
    int64_t per_unit;    /* items per unit, to report a rate (pairs per step); otherwise 1 */
    const char *items;   /* name of what per_unit counts: "pairs"; NULL: the unit */
    const char *note;    /* main metric as text: "loss 1.234"; NULL: none */
} cloob_progress;

/* Receives progress. Called often, from the calling thread or from a worker thread; the callee limits how often it
 * draws. */
typedef void cloob_progress_fn(void *user, const cloob_progress *p);

typedef struct cloob_ctx cloob_ctx;

typedef struct cloob_ctx_options {
    size_t size;       /* of this struct; set by cloob_ctx_options_init */
    int threads;       /* CPU threads; 0: all cores. At most 64 or 4 per core, and what the system allows */
    cloob_log_fn *log; /* NULL: silent */
    void *log_user;
    cloob_log_level log_level;   /* lines below this level are dropped */
    cloob_progress_fn *progress; /* NULL: none */
    void *progress_user;
    /* Called about twice a second by long calls that can save their work (cloob_search_index). If it returns true, the
     * call saves its work and returns CLOOB_ERR_STOPPED. NULL: never stop. */
    bool (*should_stop)(void *user);
    void *stop_user;
    /* Read weights and indexes into memory instead of mapping them. Rewriting a mapped file in place changes results;
     * truncating it ends the program with SIGBUS. */
    bool copy_files;
} cloob_ctx_options;

/* Option structs begin with their size, so that a program and a library of different versions work together. Declares
 * TYPE_init, which sets the size and the defaults, and the function behind it for other languages: it writes the first
 * `size` bytes and leaves zeros in what it does not know. A call that gets a smaller struct than its own uses defaults
 * for what is missing. It refuses a larger one if a member that it does not know is set, and one without a size. */
#define CLOOB_OPTIONS_INIT(type)                                                                                       \
    CLOOB_API void type##_init_size(type *o, size_t size);                                                             \
    static inline void type##_init(type *o) { type##_init_size(o, sizeof *o); }

/* A struct inside an option struct, with reserved bytes to grow into: the members after it keep their offsets. */
#define CLOOB_OPTIONS_INSIDE(type, name, bytes)                                                                        \
    type name;                                                                                                         \
    char name##_room[(bytes) - sizeof(type)]

/* Defaults: all cores, silent, level INFO. */
CLOOB_OPTIONS_INIT(cloob_ctx_options)

/* Creates a context; o may be NULL for defaults. Returns NULL when out of memory, or when o is refused (above). */
CLOOB_API cloob_ctx *cloob_ctx_create(const cloob_ctx_options *o);
/* Frees ctx, which may be NULL. Destroy what was created with it first. */
CLOOB_API void cloob_ctx_destroy(cloob_ctx *ctx);

/* Returns the text of the last failure in this context; "" if there was none. Valid until the next failing call. */
CLOOB_API const char *cloob_error(const cloob_ctx *ctx);

/* Returns the name of a status: "argument", "io", ... */
CLOOB_API const char *cloob_status_name(cloob_status s);

/* Returns the version of the library as "MAJOR.MINOR.PATCH". */
CLOOB_API const char *cloob_version(void);

#ifdef __cplusplus
}
#endif
#endif
