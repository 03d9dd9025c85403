/* cloob serve: embeddings, search and a web page over HTTP. The defaults are those of the command (cli/cmd_serve.c). */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "cloob/cloob.h"

typedef struct serve_options {
    const char *const *checkpoint; /* (checkpoints) FILE or NAME=FILE */
    int64_t checkpoints;
    const char *const *index; /* (indexes) index files or folders of images, with or without NAME= */
    int64_t indexes;
    const char *logs;          /* folder of training runs; NULL: none */
    const char *host;          /* address to listen on */
    int64_t port;              /* 0: any free port; the first line of output has the number */
    const char *root;          /* folder of the images of index files; NULL: found as described in state.h */
    cloob_model_options model; /* for all models, also while indexing */
    int64_t max_batch, max_wait_us, max_queue;
    int64_t workers;         /* requests processed at the same time */
    int64_t http_threads;    /* threads that receive requests and send answers; 0: one per four cores, at most 8 */
    int64_t max_body_mb;     /* limit for one request */
    int64_t memory_limit;    /* bytes; limit for bodies, downloads and answers of all requests */
    int64_t max_pixels;      /* limit for one image */
    int64_t max_inputs;      /* limit for one request */
    int64_t max_connections; /* total limit */
    int64_t max_per_address; /* limit for one client address */
    int64_t timeout_s;       /* time limit for sending a request, and for answering it */
    double idle_unload_s;    /* unload weights after this time without use; 0: never */
    const char *api_key_file, *tls_cert, *tls_key;
    bool insecure;
    const char *const *url_host; /* (url_hosts) hosts from which images may be downloaded */
    int64_t url_hosts;
    const char *immich_upstream; /* URL of immich's own service, for tasks that cloob does not serve; NULL: none */
    bool quiet;
} serve_options;

/* Serves until SIGTERM or SIGINT, then answers pending requests and returns. Fails if the server cannot start (a port
 * in use, unreadable weights, an index of another model), with CLOOB_ERR_UNSUPPORTED in a build without
 * libmicrohttpd. */
cloob_status serve_run(cloob_ctx *ctx, const serve_options *o);

#endif
