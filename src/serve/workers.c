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

static request *dequeue(server *v)
{
    pthread_mutex_lock(&v->lock);
    while (!v->head && !v->stop) pthread_cond_wait(&v->work, &v->lock);
    request *x = v->head;
    if (x) {
        v->head = x->next;
        if (!v->head) v->tail = NULL;
        atomic_store(&v->s->requests_waiting, --v->waiting);
        atomic_fetch_add(&v->s->requests_running, 1);
    }
    pthread_mutex_unlock(&v->lock);
    return x;
}

void workers_answer(serve *s, cloob_ctx *ctx, request *x)
{
    account_set(&x->memory, (int64_t)x->cap); /* a handler begins with the body alone */
    if (serve_now() - x->q.received_at > (double)s->o->timeout_s) {
        http_error(&x->r, &x->q, 503, "the request waited for %lld s; try again later", (long long)s->o->timeout_s);
        return;
    }
    x->q.route->run(s, ctx, &x->q, &x->r);
    if (!x->r.code) http_error(&x->r, &x->q, 500, "no answer");
}

void *workers_main(void *arg)
{
    server *v = arg;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 1 });
    for (request *x; ctx && (x = dequeue(v));) {
        workers_answer(v->s, ctx, x);
        atomic_fetch_sub(&v->s->requests_running, 1);
        MHD_resume_connection(x->connection);
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}
