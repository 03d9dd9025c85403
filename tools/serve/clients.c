/* Open connections, so that aborted and slow ones, and idle ones when the server ends, can be ended. */
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/connection.h"

void client_set(server *v, struct MHD_Connection *c, client_state state, double until)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    client *l = info ? info->socket_context : NULL;
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    l->state = state, l->until = until;
    pthread_mutex_unlock(&v->links_lock);
}

void client_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what)
{
    server *v = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        client *l = calloc(1, sizeof *l);
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        atomic_fetch_add(&v->s->open_connections, 1);
        *own = l;
        if (!l || !info) return;
        l->socket = info->connect_fd;
        struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET };
        epoll_ctl(v->closing, EPOLL_CTL_ADD, l->socket, &e); /* closing the socket removes it */
        l->until = clock_seconds() + (double)v->s->o->timeout_s;
        pthread_mutex_lock(&v->links_lock);
        l->next = v->links;
        if (v->links) v->links->previous = l;
        v->links = l;
        pthread_mutex_unlock(&v->links_lock);
        return;
    }
    client *l = *own;
    atomic_fetch_sub(&v->s->open_connections, 1);
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    if (l->previous) l->previous->next = l->next;
    else if (v->links == l) v->links = l->next;
    if (l->next) l->next->previous = l->previous;
    pthread_mutex_unlock(&v->links_lock);
    free(l);
}

/* Part of the request is missing, and the client has closed its side. libmicrohttpd 0.9.75 misses it with epoll: when
 * the end arrives together with bytes, one edge reports both and it reads only the bytes. */
static bool has_aborted(const client *l)
{
    char byte;
    return l->state <= CLIENT_SENDS && recv(l->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Returns whether some client has closed: seen twice, it was not between the last bytes and the answer. A client that
 * sends a header byte from time to time counts as idle here, though not for libmicrohttpd. */
static bool end_aborted_and_slow(server *v)
{
    double now = clock_seconds();
    bool any = false;
    pthread_mutex_lock(&v->links_lock);
    for (client *l = v->links; l; l = l->next) {
        bool closed = has_aborted(l);
        if ((closed && l->closed) || (l->until > 0 && l->until < now)) shutdown(l->socket, SHUT_RDWR);
        l->closed = closed;
        any = any || closed;
    }
    pthread_mutex_unlock(&v->links_lock);
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
    pthread_mutex_lock(&v->links_lock);
    bool any = v->links != NULL;
    for (client *l = end ? v->links : NULL; l; l = l->next) {
        struct pollfd p = { .fd = l->socket, .events = POLLIN };
        if (l->state == CLIENT_IDLE && poll(&p, 1, 0) == 0) shutdown(l->socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&v->links_lock);
    return any;
}
