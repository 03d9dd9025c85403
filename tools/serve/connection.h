/* Requests inside the server: received by libmicrohttpd's threads, answered by workers.
 *
 * A request is received in full by an I/O thread, within its limits of size and time, so that a slow client holds a
 * connection and never a worker. It then waits in a bounded queue; the connection is suspended until a worker has its
 * reply. */
#ifndef SERVE_CONNECTION_H
#define SERVE_CONNECTION_H

#include <microhttpd.h>
#include <pthread.h>

#include "core/shared_object.h"
#include "serve/state.h"

/* libmicrohttpd, loaded when the server starts: it brings GnuTLS and its ten libraries, which no other command needs.
 * Its functions are members of this table. */

/* clang-format off */
#define MHD_FUNCTIONS(X) \
    X(MHD_add_response_header) X(MHD_create_response_from_buffer) X(MHD_create_response_from_fd64) \
    X(MHD_destroy_response) X(MHD_get_connection_info) X(MHD_get_connection_values) X(MHD_http_unescape) \
    X(MHD_is_feature_supported) X(MHD_lookup_connection_value) X(MHD_queue_response) X(MHD_quiesce_daemon) X(MHD_resume_connection) \
    X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_suspend_connection)
/* clang-format on */
typedef struct mhd_functions {
    MHD_FUNCTIONS(SHARED_MEMBER)
} mhd_functions;

/* Written when the server starts (server.c). */
extern mhd_functions mhd;

typedef struct request request;
struct request {
    http_request q;
    http_reply r;
    account memory;
    struct MHD_Connection *connection;
    char *path, *body;
    size_t cap, limit;
    double begun_at;
    bool refused, answered;
    bool unread; /* refused without reading its body */
    request *next;
};

typedef enum client_state { CLIENT_IDLE = 0, CLIENT_SENDS, CLIENT_WAITS, CLIENT_READS } client_state;

typedef struct client client; /* one connection, so that aborted and slow ones can be ended */
struct client {
    client *next, *previous;
    int socket;
    client_state state; /* idle up to the end of a request's header */
    double until;       /* when the connection is ended unless its state changes; 0: never */
    bool closed;        /* its client was seen to have closed it */
};

typedef struct server {
    serve *s;
    struct MHD_Daemon *daemon;
    pthread_mutex_t queue_lock; /* the queue, up to stop */
    pthread_cond_t work;
    request *head, *tail;
    request *deferred; /* requests that found a gate full, in order of arrival */
    int64_t waiting;   /* in both lists */
    bool stop;
    pthread_t *worker;
    int64_t workers;
    pthread_mutex_t clients_lock; /* the list of clients and their states */
    client *clients;
    int closing;                /* an epoll descriptor that reports clients closing their side */
    pthread_mutex_t quick_lock; /* serve.ctx, for answers that the receiving threads give themselves */
} server;

/* ---- workers ------------------------------------------------------------------------- */

/* Puts a request into the queue; false when it is full or the server is ending. */
bool workers_enqueue(server *v, request *x);
/* Answers on the calling thread. */
void workers_answer(serve *s, cloob_ctx *ctx, request *x);
/* A worker's thread; its argument is the server. */
void *workers_main(void *v);

/* ---- libmicrohttpd's callbacks; their first argument is the server -------------------------------- */

enum MHD_Result receive_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **own);
void receive_completed(void *arg, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode why);
void client_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what);

/* What a connection does now, and until when it may; 0: without a limit. */
void client_set(server *v, struct MHD_Connection *c, client_state state, double until);
/* Waits a while, or until a client closes its connection; then ends connections whose request was aborted or takes too
 * long to arrive, and those whose client reads its answer too slowly. */
void clients_watch(server *v);
/* Ends aborted and slow connections and, with `end`, those without a request, unless bytes of one have arrived. Returns
 * whether any connection is left. */
bool clients_end_idle(server *v, bool end);

#endif
