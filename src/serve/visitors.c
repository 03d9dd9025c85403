/* Open connections, so that those that send too slowly can be ended. */
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/connection.h"

void visitor_waits(server *v, struct MHD_Connection *c, double since)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    visitor *l = info ? info->socket_context : NULL;
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    l->waiting_since = since;
    pthread_mutex_unlock(&v->links_lock);
}

void visitor_changed(void *arg, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what)
{
    server *v = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        visitor *l = calloc(1, sizeof *l);
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        atomic_fetch_add(&v->s->open_connections, 1);
        *own = l;
        if (!l || !info) return;
        l->socket = info->connect_fd;
        l->waiting_since = serve_now();
        pthread_mutex_lock(&v->links_lock);
        l->next = v->links;
        if (v->links) v->links->previous = l;
        v->links = l;
        pthread_mutex_unlock(&v->links_lock);
        return;
    }
    visitor *l = *own;
    atomic_fetch_sub(&v->s->open_connections, 1);
    if (!l) return;
    pthread_mutex_lock(&v->links_lock);
    if (l->previous) l->previous->next = l->next;
    else if (v->links == l) v->links = l->next;
    if (l->next) l->next->previous = l->previous;
    pthread_mutex_unlock(&v->links_lock);
    free(l);
}

/* A client that sends a header byte now and then is idle for us, whatever libmicrohttpd thinks. */
void visitors_end_slow(server *v)
{
    double limit = serve_now() - (double)v->s->o->timeout_s;
    pthread_mutex_lock(&v->links_lock);
    for (visitor *l = v->links; l; l = l->next)
        if (l->waiting_since > 0 && l->waiting_since < limit) shutdown(l->socket, SHUT_RDWR);
    pthread_mutex_unlock(&v->links_lock);
}
