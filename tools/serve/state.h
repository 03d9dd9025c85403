/* State of a running server: models, indexes and counters, with the functions that handlers use. */
#ifndef SERVE_STATE_H
#define SERVE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "core/limits.h"
#include "infer/batcher.h"
#include "serve/http.h"
#include "serve/serve.h"

/* Identity of a file, to detect its replacement. */
typedef struct watched {
    ino_t inode;
    int64_t size, mtime_ns;
} watched;

/* ---- models -------------------------------------------------------------------------------------- */

typedef struct served_model {
    char *name, *path;
    batcher *batcher;
    watched seen;          /* guarded by serve.files_lock, as in served_index */
    int64_t failed_rounds; /* number of checks of the watching thread without usable weights */
} served_model;

/* Finds a model by name; NULL or "": the first. A server with one model accepts any name. NULL: not found. */
served_model *serve_model(serve *s, const char *name);
/* Size and date of its file. */
watched serve_model_file(serve *s, const served_model *m);

/* ---- indexes ------------------------------------------------------------------------------------- */

typedef enum map_state { POINTS_NONE = 0, POINTS_COMPUTING, POINTS_READY, POINTS_FAILED } map_state;

typedef struct index_view { /* an opened file; reference counted */
    serve *s;
    cloob_search *search;
    served_model *model; /* the model that made its embeddings */
    atomic_int users;
    _Atomic map_state map;
    _Atomic double map_progress;
    float *map_xy; /* (N, 2) */
} index_view;

typedef struct served_index {
    serve *s;
    char *name, *path;   /* path of the index file */
    char *folder;        /* folder to index at start; NULL: none */
    char *root;          /* resolved path of the folder with its images; no file outside is opened */
    served_model *model; /* embeds the folder's images; set before the first thread starts */
    index_view *view;    /* NULL: not available yet; guarded by serve.files_lock */
    char error[512];     /* of the last attempt to build or open it; "": none; guarded by the same lock */
    watched seen;
} served_index;

/* Finds an index by name; NULL or "": the first. NULL: not found. */
served_index *serve_index(serve *s, const char *name);
/* Returns the current view with a reference, released with index_release; NULL if there is none. */
index_view *index_acquire(serve *s, served_index *x);
void index_release(index_view *v);
/* As index_acquire, for a request: fails with CLOOB_ERR_BUSY while the index is being built, and with CLOOB_ERR_IO if
 * building failed. */
cloob_status index_need(serve *s, cloob_ctx *ctx, served_index *x, index_view **v);
/* Why the index is missing or outdated; "": it is neither. */
void index_error(serve *s, const served_index *x, char out[512]);

/* ---- image files below an index's folder ------------------------------------------------------------
 *
 * Paths with .. and links cannot leave the folder, and only images are opened. */

/* The entry with this path below the folder; -1: none. */
int64_t entry_find(const cloob_search *s, const char *path);

/* Whether a resolved path is the resolved folder or below it. */
bool path_is_below(const char *path, const char *folder);

/* Opens the file of an entry. After following links it must be a regular file below x->root that starts like an image;
 * otherwise returns -1. */
int entry_open(const served_index *x, const cloob_search *s, const char *path, int64_t *bytes);

/* Reads at most the first `bytes` of a file into memory; false on failure. A mapping would crash the server if the file
 * is truncated. */
typedef struct file_view {
    void *data;
    size_t bytes;
} file_view;
bool file_view_open(int fd, int64_t bytes, file_view *out);
void file_view_close(file_view *v);

/* ---- gates: limits on workers doing the same work ------------------------------------------------- */

typedef struct gate {
    atomic_int inside;
    int limit;
} gate;

/* Enters the gate. Returns false if it is full: r is then marked as waiting, and the handler must return; it is called
 * again later. */
bool gate_enter(gate *g, http_reply *r);
void gate_leave(gate *g);

/* ---- the server ---------------------------------------------------------------------------------- */

enum { SERVE_ROUTES = 64 };

typedef struct route_stats {
    _Atomic int64_t by_class[6]; /* answers by status class 1xx to 5xx, at indexes 1 to 5 */
    pthread_mutex_t lock;
    latency_histogram latency;
} route_stats;

struct serve {
    const serve_options *o;
    cloob_ctx *ctx; /* of the main thread; its log is shared */
    served_model *model;
    int64_t models;
    served_index *index;
    int64_t indexes;
    pthread_mutex_t files_lock;
    char *key; /* the API key; NULL: none */
    route_stats stats[SERVE_ROUTES];
    atomic_bool ready, draining;
    _Atomic int64_t open_connections, requests_waiting, requests_running, refused;
    atomic_bool warned_immich; /* whether the hint about --immich-upstream was printed */
    budget memory;             /* memory of all requests */
    atomic_int background;     /* number of threads that index folders or compute maps */
    double started_at;
    gate images;     /* limits requests that decode and embed images, so that some workers remain for texts */
    gate thumbnails; /* limits thumbnails made at the same time, because each holds a whole image in memory */
};

/* Creates a context for a thread of the server: it computes on this thread only, and reads files into memory instead of
 * mapping them. */
cloob_ctx *serve_thread_context(void);

/* Starts a thread and increments `background`; `work` must decrement it when it ends. false: the thread cannot be
 * started. */
bool serve_in_background(serve *s, void *(*work)(void *), void *object);

void serve_log(serve *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

cloob_status serve_open_models(serve *s);
cloob_status serve_open_indexes(serve *s);
/* Under a memory limit (ulimit -v), embeds a batch with every model before the first request, so that its memory is
 * allocated or the start fails. */
cloob_status serve_allocate_batches(serve *s);
bool serve_memory_limited(void);
void serve_close_state(serve *s);
/* Checks for replaced files every second until shutdown; the main function of a thread. */
void *serve_watch(void *s);

/* Downloads a URL of at most max_bytes within timeout_s; the memory is counted in `memory`. Only http and https to the
 * hosts in o->url_host are allowed; a redirect must lead to one of them, and not into a private network. The caller
 * frees *data. */
cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes);

/* Forwards a request's body to o->immich_upstream, to the path /predict, and returns the answer with its status code.
 * The caller frees *data. Fails with CLOOB_ERR_IO if the server does not answer within --timeout. */
cloob_status fetch_forward(cloob_ctx *ctx, const serve_options *o, const http_request *q, int *code,
                           unsigned char **data, size_t *bytes);

#endif
