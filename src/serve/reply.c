/* Replies as libmicrohttpd sends them: headers that every answer carries, and what is counted. */
#include <stdio.h>

#include "serve/connection.h"
#include "serve/page/page.h"

static void add_header(struct MHD_Response *m, const char *name, const char *value)
{
    if (value && *value) MHD_add_response_header(m, name, value);
}

static struct MHD_Response *make_response(http_reply *r)
{
    struct MHD_Response *m;
    if (r->fd >= 0) {
        m = MHD_create_response_from_fd64((uint64_t)r->fd_bytes, r->fd);
        if (m) r->fd = -1; /* closed with the response */
    } else {
        m = MHD_create_response_from_buffer(r->bytes, r->data,
                                            r->is_static ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);
        if (m) r->data = NULL;
    }
    if (!m) return NULL;
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", r->retry_after);
    add_header(m, "Content-Type", r->type);
    add_header(m, "Cache-Control", r->cache ? r->cache : "no-store");
    add_header(m, "X-Content-Type-Options", "nosniff");
    add_header(m, "X-Frame-Options", "DENY");
    add_header(m, "Referrer-Policy", "no-referrer");
    add_header(m, "Content-Security-Policy", page_policy);
    add_header(m, "Cross-Origin-Resource-Policy", "same-origin");
    add_header(m, "ETag", r->etag);
    add_header(m, "Allow", r->allow);
    if (r->code == 401) add_header(m, "WWW-Authenticate", "Bearer");
    if (r->retry_after) add_header(m, "Retry-After", seconds);
    return m;
}

static void count_reply(serve *s, const request *x)
{
    const route *r = x->q.route;
    if (!r) return;
    route_stats *stats = &s->stats[r - routes];
    atomic_fetch_add(&stats->by_class[x->r.code / 100 % 6], 1);
    pthread_mutex_lock(&stats->lock);
    cloob_latency_add(&stats->latency, serve_now() - x->q.received_at);
    pthread_mutex_unlock(&stats->lock);
}

/* Seconds in which a client must have read an answer: --timeout, and one more for every 256 KiB. */
static double time_to_read(const serve *s, const http_reply *r)
{
    double bytes = r->fd >= 0 ? (double)r->fd_bytes : (double)r->bytes;
    return (double)s->o->timeout_s + bytes / (256 << 10);
}

/* From now on the request holds its answer alone. An answer that nobody reserved memory for may be too large. */
static void hold_answer(request *x)
{
    request_drop_body(x);
    if (account_set(&x->memory, x->r.is_static || x->r.fd >= 0 ? 0 : (int64_t)x->r.bytes)) return;
    http_error(&x->r, &x->q, 429, "other requests use the server's memory (--memory-limit); try again later");
    account_set(&x->memory, 0);
}

enum MHD_Result reply_send(server *v, request *x)
{
    hold_answer(x);
    count_reply(v->s, x);
    int code = x->r.code;
    visitor_set(v, x->connection, VISITOR_READS, serve_now() + time_to_read(v->s, &x->r));
    struct MHD_Response *m = make_response(&x->r);
    if (!m) return MHD_NO;
    if (x->refused || atomic_load(&v->s->draining)) MHD_add_response_header(m, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)code, m);
    MHD_destroy_response(m);
    return result;
}
