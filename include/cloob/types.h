/* The types every part of cloob shares: status, element type, context.
 *
 * Every call that can fail returns a cloob_status; the text of the last failure is kept by the context
 * and read with cloob_error. The library never prints and never exits. A context serves one thread at a
 * time; several contexts in several threads do not disturb each other. */
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
    CLOOB_ERR_ARGUMENT,    /* a value that cannot be used; the caller can correct it */
    CLOOB_ERR_IO,          /* the file system or a pipe said no */
    CLOOB_ERR_FORMAT,      /* a file whose content is not what it claims to be */
    CLOOB_ERR_MEMORY,      /* host or device memory is not enough */
    CLOOB_ERR_DEVICE,      /* an accelerator or its library failed */
    CLOOB_ERR_PEER,        /* another rank is gone or disagrees */
    CLOOB_ERR_UNSUPPORTED, /* this build or machine does not have the part asked for */
    CLOOB_ERR_NUMERIC,     /* NaN, infinity, or a value outside its domain */
    CLOOB_ERR_STOPPED,     /* the caller asked to stop; everything is saved */
    CLOOB_ERR_BUSY         /* a bounded queue is full, or an answer did not come in time; try again later */
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

/* One line of progress or warning, without a newline. Called from the thread that made the call, or from
 * a worker; the sink must be able to take both. */
typedef void cloob_log_fn(void *user, cloob_log_level level, const char *line);

/* How far a long piece of work has come. Strings are read during the call only. */
typedef struct cloob_progress {
    const char *task;    /* a word or two: "train", "embed images" */
    const char *unit;    /* what is counted: "steps", "images" */
    int64_t done, total; /* total 0: not known */
    int64_t per_unit;    /* items in one unit, for a rate that people compare ("pairs" of a step); 1 otherwise */
    const char *items;   /* what per_unit counts; NULL: the unit */
    const char *note;    /* the number that matters, as text: "loss 1.234"; NULL: none */
} cloob_progress;

/* Called often, from the thread that made the call or from a worker; the sink decides how often it draws. */
typedef void cloob_progress_fn(void *user, const cloob_progress *p);

typedef struct cloob_ctx cloob_ctx;

typedef struct cloob_ctx_options {
    size_t size;       /* of this struct; set by cloob_ctx_options_init */
    int threads;       /* CPU threads; 0: all cores. At most 64 or 4 a core, and what the system lets start */
    cloob_log_fn *log; /* NULL: silent */
    void *log_user;
    cloob_log_level log_level;   /* lines below it are dropped */
    cloob_progress_fn *progress; /* NULL: none */
    void *progress_user;
    /* Asked about twice a second by long calls that can save their work (cloob_search_index); true: save and return
     * CLOOB_ERR_STOPPED. NULL: never. */
    bool (*should_stop)(void *user);
    void *stop_user;
    bool copy_files; /* read weights and indexes into memory: a mapped file that is rewritten in place changes
                            * results, and one that is shortened ends the program */
} cloob_ctx_options;

/* Fills the defaults: all cores, silent, level INFO. */
CLOOB_API void cloob_ctx_options_init(cloob_ctx_options *o);

/* Makes a context; o may be NULL for defaults. NULL: memory is out, or *o is larger than this library knows. */
CLOOB_API cloob_ctx *cloob_ctx_create(const cloob_ctx_options *o);
CLOOB_API void cloob_ctx_destroy(cloob_ctx *ctx);

/* The text of the last failure in this context; "" if there was none. Valid until the next failing call. */
CLOOB_API const char *cloob_error(const cloob_ctx *ctx);

/* A short word for a status: "argument", "io", ... */
CLOOB_API const char *cloob_status_name(cloob_status s);

/* As "MAJOR.MINOR.PATCH"; CMakeLists.txt has the number. */
CLOOB_API const char *cloob_version(void);

#ifdef __cplusplus
}
#endif
#endif
