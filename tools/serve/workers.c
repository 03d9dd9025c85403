/* Worker threads and the bounded queue of requests that they answer. */
#include "serve/connection.h"

bool workers_enqueue(server *v, request *x)
{
    pthread_mutex_lock(&v->lock);
    bool fits = !v->stop && v->waiting < v->s->o->max_queue;
    if (fits) {
        x->next = NULL;
        if (v->tail) v->tail->next = x;
        else v->head = x;
        v->tail = x;
        atomic_store(&v->s->requests_waiting, ++v->waiting);
        pthread_cond_signal(&v->work);
    }
    pthread_mutex_unlock(&v->lock);
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

static bool may_enter(const request *x) { return atomic_load(&x->r.wait->inside) < x->r.wait->limit; }

/* With lock held: the first request that found its gate full and may enter now; when ending, any. */
static request *take_deferred(server *v)
{
    request **link = &v->deferred;
    while (*link && !may_enter(*link) && !v->stop) link = &(*link)->next;
    request *x = *link;
    if (x) *link = x->next;
    return x;
}

static request *take_head(server *v)
{
    request *x = v->head;
    if (!x) return NULL;
    v->head = x->next;
    if (!v->head) v->tail = NULL;
    return x;
}

/* A worker that leaves a gate calls this next, so no other worker has to be woken. */
static request *dequeue(server *v)
{
    request *x;
    pthread_mutex_lock(&v->lock);
    while (!(x = take_deferred(v)) && !(x = take_head(v)) && !v->stop) pthread_cond_wait(&v->work, &v->lock);
    if (x) {
        atomic_fetch_add(&v->s->requests_running, 1);
        atomic_store(&v->s->requests_waiting, --v->waiting);
    }
    pthread_mutex_unlock(&v->lock);
    return x;
}

/* false: the server is ending, the request stays the caller's. */
static bool defer(server *v, request *x)
{
    pthread_mutex_lock(&v->lock);
    bool stop = v->stop;
    request **link = &v->deferred;
    while (*link) link = &(*link)->next;
    if (!stop) {
        x->next = NULL;
        *link = x;
        atomic_store(&v->s->requests_waiting, ++v->waiting);
    }
    pthread_mutex_unlock(&v->lock);
    return !stop;
}

void workers_answer(serve *s, cloob_ctx *ctx, request *x)
{
    account_set(&x->memory, (int64_t)x->cap); /* at its start a handler holds only the body */
    if (clock_seconds() - x->q.received_at > (double)s->o->timeout_s) {
        http_error(&x->r, &x->q, 503, "the request waited for %lld s; try again later", (long long)s->o->timeout_s);
        return;
    }
    x->r.wait = NULL;
    x->q.route->run(s, ctx, &x->q, &x->r);
    if (!x->r.code && !x->r.wait) http_error(&x->r, &x->q, 500, "no answer");
}

void *workers_main(void *arg)
{
    server *v = arg;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 1 });
    for (request *x; ctx && (x = dequeue(v));) {
        workers_answer(v->s, ctx, x);
        bool deferred = x->r.wait && defer(v, x); /* then another worker may have it already */
        if (!deferred && x->r.wait) http_error(&x->r, &x->q, 503, "the server is ending");
        atomic_fetch_sub(&v->s->requests_running, 1);
        if (!deferred) MHD_resume_connection(x->connection);
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}
