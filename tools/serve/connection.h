/* Processing of requests: libmicrohttpd's threads receive them, worker threads answer them.
 *
 * An I/O thread receives the complete request, within limits of size and time, so a slow client occupies a connection
 * but no worker. The request then waits in a bounded queue; its connection is suspended until a worker has produced the
 * reply. */
#ifndef SERVE_CONNECTION_H
#define SERVE_CONNECTION_H

#include <microhttpd.h>
#include <pthread.h>

#include "core/shared_object.h"
#include "serve/state.h"

/* libmicrohttpd is loaded when the server starts, because it depends on GnuTLS and ten more libraries that no other
 * command needs. Its functions are members of this table. */

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

/* set when the server starts (server.c) */
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
    bool unread; /* refused before the body was read */
    request *next;
};

typedef enum client_state { CLIENT_IDLE = 0, CLIENT_SENDS, CLIENT_WAITS, CLIENT_READS } client_state;

typedef struct client client; /* a connection */
struct client {
    client *next, *previous;
    int socket;
    client_state state; /* CLIENT_IDLE until the header of a request is complete */
    double until;       /* when to close the connection unless its state changes; 0: never */
    bool closed;        /* the last check found that the client had closed its side */
};

typedef struct server {
    serve *s;
    struct MHD_Daemon *daemon;
    pthread_mutex_t queue_lock; /* guards the queue: the members down to `stop` */
    pthread_cond_t work;
    request *head, *tail;
    request *deferred; /* requests that found their gate full, in order of arrival */
    int64_t waiting;   /* number of requests in both lists */
    bool stop;
    pthread_t *worker;
    int64_t workers;
    pthread_mutex_t clients_lock; /* guards the list of clients and their states */
    client *clients;
    int closing;                /* epoll descriptor that reports clients closing their side */
    pthread_mutex_t quick_lock; /* guards serve.ctx, which receiving threads use for quick answers */
} server;

/* ---- workers ------------------------------------------------------------------------- */

/* Appends a request to the queue; false if it is full or the server is shutting down. */
bool workers_enqueue(server *v, request *x);
/* Processes a request on the calling thread. */
void workers_answer(serve *s, cloob_ctx *ctx, request *x);
/* Main function of a worker thread; its argument is the server. */
void *workers_main(void *v);

/* ---- callbacks of libmicrohttpd; the first argument is the server ---------------------------------- */

enum MHD_Result receive_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **own);
void receive_completed(void *arg, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode why);
void client_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what);

/* Sets the state of a connection and the time at which it is closed if the state does not change; 0: never. */
void client_set(server *v, struct MHD_Connection *c, client_state state, double until);
/* Waits for a short time, or until a client closes its connection. Then closes connections whose request was aborted or
 * arrives too slowly, and those whose client reads its answer too slowly. */
void clients_watch(server *v);
/* Closes aborted and slow connections and, with `end`, connections without a request unless data of one has arrived.
 * Returns whether any connection is left. */
bool clients_end_idle(server *v, bool end);

#endif
