/* The state of a running server: models, indexes, counters, and the functions that handlers use. */
#ifndef SERVE_STATE_H
#define SERVE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "core/limits.h"
#include "infer/batcher.h"
#include "serve/http.h"
#include "serve/serve.h"

/* A file whose replacement is noticed. */
typedef struct watched {
    ino_t inode;
    int64_t size, mtime_ns;
} watched;

/* ---- models -------------------------------------------------------------------------------------- */

typedef struct served_model {
    char *name, *path;
    batcher *batcher;
    watched seen;          /* guarded by serve.files_lock, as in served_index */
    int64_t failed_rounds; /* of the watching thread, without weights */
} served_model;

/* By name; NULL or "": the first. With a single model every name selects it. NULL: no such model. */
served_model *serve_model(serve *s, const char *name);
/* Size and date of its file. */
watched serve_model_file(serve *s, const served_model *m);

/* ---- indexes ------------------------------------------------------------------------------------- */

typedef enum map_state { POINTS_NONE = 0, POINTS_COMPUTING, POINTS_READY, POINTS_FAILED } map_state;

typedef struct index_view { /* one opened file; reference counted */
    serve *s;
    cloob_search *search;
    served_model *model; /* whose embeddings it holds */
    atomic_int users;
    _Atomic map_state map;
    _Atomic double map_progress;
    float *map_xy; /* (N, 2) */
} index_view;

typedef struct served_index {
    serve *s;
    char *name, *path;   /* path of the index file */
    char *folder;        /* indexed at start; NULL: not */
    char *root;          /* real path of the folder that its images are in; nothing outside it is opened */
    served_model *model; /* embeds the folder's images; set before the first thread starts */
    index_view *view;    /* NULL: not there yet; guarded by serve.files_lock */
    char error[512];     /* of the last attempt to make or open it; "": none; same lock */
    watched seen;
} served_index;

/* By name; NULL or "": the first. NULL: no such index. */
served_index *serve_index(serve *s, const char *name);
/* The current view, valid until index_release; NULL while there is none. */
index_view *index_acquire(serve *s, served_index *x);
void index_release(index_view *v);
/* The same for a request: CLOOB_ERR_BUSY while the index is being made, CLOOB_ERR_IO when it could not be. */
cloob_status index_need(serve *s, cloob_ctx *ctx, served_index *x, index_view **v);
/* Why there is no index, or why it is not up to date; "": neither. */
void index_error(serve *s, const served_index *x, char out[512]);

/* ---- image files below an index's folder ------------------------------------------------------------
 *
 * Neither .. nor links lead out of the folder, and only images are opened. */

/* The entry whose path below the folder this is; -1: none. */
int64_t entry_find(const cloob_search *s, const char *path);

/* Of two real paths: whether the first is the folder or below it. */
bool path_is_below(const char *path, const char *folder);

/* Opens an entry's file, which must be a plain file below x->root after all links, and begin as an image does. -1: not
 * possible. */
int entry_open(const served_index *x, const cloob_search *s, const char *path, int64_t *bytes);

/* The first `bytes` of a file, or as many as there are, in memory; false: not possible. A mapping would end the server
 * when the file is shortened. */
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

/* false: full; r is then marked as waiting, and the handler returns at once and is called again later. */
bool gate_enter(gate *g, http_reply *r);
void gate_leave(gate *g);

/* ---- all of it ----------------------------------------------------------------------------------- */

enum { SERVE_ROUTES = 64 };

typedef struct route_stats {
    _Atomic int64_t by_class[6]; /* answers 1xx to 5xx, at 1 to 5 */
    pthread_mutex_t lock;
    latency_histogram latency;
} route_stats;

struct serve {
    const serve_options *o;
    cloob_ctx *ctx; /* of the thread that started; its log is shared */
    served_model *model;
    int64_t models;
    served_index *index;
    int64_t indexes;
    pthread_mutex_t files_lock;
    char *key; /* "Bearer ..." without the word; NULL: none */
    route_stats stats[SERVE_ROUTES];
    atomic_bool ready, draining;
    _Atomic int64_t open_connections, requests_waiting, requests_running, refused;
    atomic_bool warned_immich; /* that faces and text recognition need --immich-upstream */
    budget memory;             /* of all requests */
    atomic_int background;     /* threads that index folders or compute maps */
    double started_at;
    gate images;     /* requests whose images are decoded and embedded: some workers are always left for texts */
    gate thumbnails; /* made at the same time, each with a whole image in memory */
};

/* The context of a thread of the server: computes on that thread alone, reads files into memory instead of mapping
 * them. */
cloob_ctx *serve_thread_context(void);

/* Starts a thread and adds it to `background`; `work` subtracts it when it ends. false: no thread can be started. */
bool serve_in_background(serve *s, void *(*work)(void *), void *object);

void serve_log(serve *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

cloob_status serve_open_models(serve *s);
cloob_status serve_open_indexes(serve *s);
/* Under a memory limit (ulimit -v) every model embeds a batch before the first request, so that its memory is allocated
 * by then or the start fails with one line. */
cloob_status serve_allocate_batches(serve *s);
bool serve_memory_limited(void);
void serve_close_state(serve *s);
/* Checks every second for replaced files, until draining; a thread's main. */
void *serve_watch(void *s);

/* Downloads a URL of at most max_bytes within timeout_s, into memory that is counted in `memory`. Only http and https,
 * only hosts among `host`; a redirect must lead to one of them, outside of private networks. The caller frees
 * *data. Fails with a line in the context. */
cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes);

/* Posts a request's body to o->immich_upstream, below which its path is /predict, and gives the answer with its status
 * code. The caller frees *data. CLOOB_ERR_IO when the server does not answer within --timeout. */
cloob_status fetch_forward(cloob_ctx *ctx, const serve_options *o, const http_request *q, int *code,
                           unsigned char **data, size_t *bytes);

#endif
