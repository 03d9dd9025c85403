/* Requests and connections: the bounded queue and the worker threads that process it; and the list of clients, which is
 * used to close aborted, slow and idle connections. */
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/connection.h"
#include "serve/handlers.h"

/* ---- queue and workers ------------------------------------------------------------------------------- */

bool workers_enqueue(server *v, request *x)
{
    pthread_mutex_lock(&v->queue_lock);
    bool fits = !v->stop && v->waiting < v->s->o->max_queue;
    if (fits) {
        x->next = NULL;
        if (v->tail) v->tail->next = x;
        else v->head = x;
        v->tail = x;
        atomic_store(&v->s->requests_waiting, ++v->waiting);
        pthread_cond_signal(&v->work);
    }
    pthread_mutex_unlock(&v->queue_lock);
    return fits;
}

bool gate_enter(gate *g, http_reply *r)
{
    if (atomic_fetch_add(&g->inside, 1) < g->limit) return true;
    atomic_fetch_sub(&g->inside, 1);
    r->wait = g;
    return false;
}

void gate_leave(gate *g) { atomic_fetch_sub(&g->inside, 1); }

/* With queue_lock held: the first request that found its gate full and may enter now (when ending, any), then the head
 * of the queue. */
static request *take_next(server *v)
{
    request **link = &v->deferred;
    while (*link && atomic_load(&(*link)->r.wait->inside) >= (*link)->r.wait->limit && !v->stop) link = &(*link)->next;
    if (!*link) link = &v->head;
    request *x = *link;
    if (x) *link = x->next;
    if (!v->head) v->tail = NULL;
    return x;
}

/* A worker that leaves a gate calls this next, so no other worker has to be woken. */
static request *dequeue(server *v)
{
    request *x;
    pthread_mutex_lock(&v->queue_lock);
    while (!(x = take_next(v)) && !v->stop) pthread_cond_wait(&v->work, &v->queue_lock);
    if (x) {
        atomic_fetch_add(&v->s->requests_running, 1);
        atomic_store(&v->s->requests_waiting, --v->waiting);
    }
    pthread_mutex_unlock(&v->queue_lock);
    return x;
}

/* Defers a request whose gate is full; false if the server is shutting down: the caller keeps the request. */
static bool defer(server *v, request *x)
{
    pthread_mutex_lock(&v->queue_lock);
    bool stop = v->stop;
    request **link = &v->deferred;
    while (*link) link = &(*link)->next;
    if (!stop) {
        x->next = NULL;
        *link = x;
        atomic_store(&v->s->requests_waiting, ++v->waiting);
    }
    pthread_mutex_unlock(&v->queue_lock);
    return !stop;
}

void workers_answer(serve *s, cloob_ctx *ctx, request *x)
{
    account_set(&x->memory, (int64_t)x->cap); /* when a handler starts, the account only holds the body */
    if (clock_seconds() - x->q.received_at > (double)s->o->timeout_s) {
        http_error(&x->r, &x->q, 503, "the request waited for %lld s; try again later", (long long)s->o->timeout_s);
        return;
    }
    x->r.wait = NULL;
    call_run(s, ctx, &x->q, &x->r);
    if (x->r.code == 400) x->r.code = http_bad_request(x->q.route->errors);
}

void *workers_main(void *arg)
{
    server *v = arg;
    cloob_ctx *ctx = serve_thread_context();
    for (request *x; ctx && (x = dequeue(v));) {
        workers_answer(v->s, ctx, x);
        bool deferred = x->r.wait && defer(v, x); /* another worker may process it from here on */
        if (!deferred && x->r.wait) http_error(&x->r, &x->q, 503, "the server is shutting down");
        atomic_fetch_sub(&v->s->requests_running, 1);
        if (!deferred) mhd.MHD_resume_connection(x->connection);
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}

/* ---- clients ----------------------------------------------------------------------------------------- */

void client_set(server *v, struct MHD_Connection *c, client_state state, double until)
{
    const union MHD_ConnectionInfo *info = mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    client *k = info ? info->socket_context : NULL;
    if (!k) return;
    pthread_mutex_lock(&v->clients_lock);
    k->state = state, k->until = until;
    pthread_mutex_unlock(&v->clients_lock);
}

void client_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what)
{
    server *v = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        client *k = calloc(1, sizeof *k);
        const union MHD_ConnectionInfo *info = mhd.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        atomic_fetch_add(&v->s->open_connections, 1);
        *own = k;
        if (!k || !info) return;
        k->socket = info->connect_fd;
        struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET };
        epoll_ctl(v->closing, EPOLL_CTL_ADD, k->socket, &e); /* closing the socket removes the entry */
        k->until = clock_seconds() + (double)v->s->o->timeout_s;
        pthread_mutex_lock(&v->clients_lock);
        k->next = v->clients;
        if (v->clients) v->clients->previous = k;
        v->clients = k;
        pthread_mutex_unlock(&v->clients_lock);
        return;
    }
    client *k = *own;
    atomic_fetch_sub(&v->s->open_connections, 1);
    if (!k) return;
    pthread_mutex_lock(&v->clients_lock);
    if (k->previous) k->previous->next = k->next;
    else if (v->clients == k) v->clients = k->next;
    if (k->next) k->next->previous = k->previous;
    pthread_mutex_unlock(&v->clients_lock);
    free(k);
}

/* Whether the client has closed its side before its request was complete. libmicrohttpd 0.9.75 misses this with epoll
 * if the close arrives together with data: one edge-triggered event reports both, and it only reads the data. */
static bool has_aborted(const client *k)
{
    char byte;
    return k->state <= CLIENT_SENDS && recv(k->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Closes connections of clients that aborted (seen closed in two consecutive calls, so not just between the last byte
 * and the answer) or are too slow. Returns whether any client has closed. A client that sends single header bytes
 * counts as idle here, but not in libmicrohttpd. */
static bool end_aborted_and_slow(server *v)
{
    double now = clock_seconds();
    bool any = false;
    pthread_mutex_lock(&v->clients_lock);
    for (client *k = v->clients; k; k = k->next) {
        bool closed = has_aborted(k);
        if ((closed && k->closed) || (k->until > 0 && k->until < now)) shutdown(k->socket, SHUT_RDWR);
        k->closed = closed;
        any = any || closed;
    }
    pthread_mutex_unlock(&v->clients_lock);
    return any;
}

void clients_watch(server *v)
{
    struct epoll_event e[64];
    epoll_wait(v->closing, e, 64, 200);
    for (int i = 0; i < 20 && end_aborted_and_slow(v); i++) usleep(5000);
}

bool clients_end_idle(server *v, bool end)
{
    end_aborted_and_slow(v);
    pthread_mutex_lock(&v->clients_lock);
    bool any = v->clients != NULL;
    for (client *k = end ? v->clients : NULL; k; k = k->next) {
        struct pollfd p = { .fd = k->socket, .events = POLLIN };
        if (k->state == CLIENT_IDLE && poll(&p, 1, 0) == 0) shutdown(k->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&v->clients_lock);
    return any;
}
