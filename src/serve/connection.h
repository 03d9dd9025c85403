/* Requests on their way through the server: received by libmicrohttpd's threads, answered by workers.
 *
 * A request is received in full by an I/O thread, within its limits of size and time, so that a slow client costs a
 * connection and never a worker. It then waits in a bounded queue; the connection is suspended until a worker has its
 * reply. */
#ifndef SERVE_CONNECTION_H
#define SERVE_CONNECTION_H

#include <microhttpd.h>
#include <pthread.h>

#include "serve/state.h"

typedef struct request request;
struct request {
    http_request q;
    http_reply r;
    struct MHD_Connection *connection;
    char *path, *body;
    size_t cap, limit;
    double begun_at;
    bool refused, answered, counted;
    request *next;
};

typedef struct visitor visitor; /* one connection, so that those that send too slowly can be ended */
struct visitor {
    visitor *next, *previous;
    int socket;
    double waiting_since; /* 0: a request is being worked on, or none has begun */
};

typedef struct server {
    serve *s;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;
    pthread_cond_t work;
    request *head, *tail;
    request *deferred; /* found their gate full; in order */
    int64_t waiting;   /* in both lists */
    bool stop;
    pthread_t *worker;
    int64_t workers;
    pthread_mutex_t links_lock;
    visitor *links;
    pthread_mutex_t quick_lock; /* serve.ctx, for answers that the receiving threads give themselves */
} server;

/* ---- workers (workers.c) ------------------------------------------------------------------------- */

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
void visitor_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what);

enum MHD_Result reply_send(server *v, request *x);

/* When the connection began to wait for a request; 0: one is being worked on. */
void visitor_waits(server *v, struct MHD_Connection *c, double since);
/* Ends connections whose request takes too long to arrive. */
void visitors_end_slow(server *v);

bool is_loopback_name(const char *host);

#endif
