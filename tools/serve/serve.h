/* cloob serve: embeddings, search and a page over HTTP. Defaults are those of the command (cli/cmd_serve.c). */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "cloob/cloob.h"

typedef struct serve_options {
    const char *const *checkpoint; /* (checkpoints) FILE or NAME=FILE */
    int64_t checkpoints;
    const char *const *index; /* (indexes) index files or folders, or NAME=either */
    int64_t indexes;
    const char *logs;          /* folder of runs; NULL: none */
    const char *host;          /* an address to listen on */
    int64_t port;              /* 0: any free one, which the first line prints */
    const char *root;          /* folder of the images of index files; NULL: see state.h */
    cloob_model_options model; /* for every model, served or indexing */
    int64_t max_batch, max_wait_us, max_queue;
    int64_t workers;         /* requests worked on at the same time */
    int64_t http_threads;    /* that receive requests and send answers; 0: one for every four cores, at most 8 */
    int64_t max_body_mb;     /* of one request */
    int64_t memory_limit;    /* bytes of bodies, downloads and answers of all requests */
    int64_t max_pixels;      /* of one image */
    int64_t max_inputs;      /* of one request */
    int64_t max_connections; /* in all */
    int64_t max_per_address; /* connections of one address */
    int64_t timeout_s;       /* to send a request, and to answer it */
    double idle_unload_s;    /* 0: never */
    const char *api_key_file, *tls_cert, *tls_key;
    bool insecure;
    const char *const *url_host; /* (url_hosts) hosts whose URLs may be fetched */
    int64_t url_hosts;
    const char *immich_upstream; /* URL of immich's own service, for what is not served here; NULL: none */
    bool quiet;
} serve_options;

/* Serves until SIGTERM or SIGINT, then drains. What cannot be started (a busy port, weights that cannot be read, an
 * index of another model) fails with one line. CLOOB_ERR_UNSUPPORTED in a build without libmicrohttpd. */
cloob_status serve_run(cloob_ctx *ctx, const serve_options *o);

#endif
