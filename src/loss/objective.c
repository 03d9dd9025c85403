/* The objective of host rows on any device, its benchmark, and rows that are there already (cloob/objective.h). */
#include "cloob/objective.h"

#include <stdlib.h>
#include <string.h>

#include "cloob/options.h"
#include "core/needs.h"
#include "core/limits.h"
#include "core/rng.h"
#include "loss/loss.h"
#include "tensor/device.h"

bool cloob_method_from_name(const char *name, cloob_method *out)
{
    return name && out && loss_method_from_name(name, out);
}

void cloob_objective_options_init_size(cloob_objective_options *o, size_t size)
{
    cloob_objective_options d = { .method = CLOOB_METHOD_CLOOB,
                                  .inv_tau = CLOOB_DEFAULT_INV_TAU,
                                  .scale_hopfield = CLOOB_DEFAULT_SCALE_HOPFIELD,
                                  .device = "auto",
                                  .compute = CLOOB_F32,
                                  .logit_bias = CLOOB_DEFAULT_LOGIT_BIAS };
    options_write(o, size, &d, sizeof d);
}

static void fill_options(const cloob_objective_options *o, const device *dev, bool gradients, loss_options *out)
{
    static const loss_backend backend[] = {
        [BACKEND_REF] = LOSS_REF, [BACKEND_CPU] = LOSS_CPU, [BACKEND_CUDA] = LOSS_CUDA
    };
    loss_options_init(out);
    out->method = o->method;
    out->backend = backend[dev->backend];
    out->inv_tau = o->inv_tau;
    out->beta = o->scale_hopfield;
    out->bias = o->logit_bias;
    out->gradients = gradients;
}

static void fill_result(const loss_shape *s, const loss_result *l, cloob_objective_result *r)
{
    *r = (cloob_objective_result){ l->loss, l->image_term, l->text_term, l->dsum_dinv_tau, l->dsum_dbeta,
                                   s->rows, s->dim,        s->stored_u,  s->stored_v,      l->dsum_dbias };
}

/* ---- one evaluation: rows on the device, in the type that is computed with ---- */

enum { X, Y, U, V, MATRICES };

typedef struct job {
    device *dev;
    loss_plan *plan;
    loss_shape shape;
    int64_t count[MATRICES];
    void *in[MATRICES]; /* on the device; NULL where there is none */
    void *g[MATRICES];
} job;

static void job_release(job *j)
{
    loss_plan_destroy(j->plan);
    for (int i = 0; j->dev && i < MATRICES; i++) {
        j->dev->free(j->dev, j->in[i]);
        j->dev->free(j->dev, j->g[i]);
    }
    device_close(j->dev);
}

static cloob_status upload(cloob_ctx *ctx, job *j, int which, const float *rows)
{
    size_t bytes = (size_t)j->count[which] * dtype_size(j->shape.dtype);
    if (j->count[which] == 0) return CLOOB_OK;
    CLOOB_TRY(j->dev->alloc(ctx, j->dev, bytes, "embeddings", &j->in[which]));
    if (j->shape.dtype == CLOOB_F32) return j->dev->to_device(ctx, j->dev, j->in[which], rows, bytes);
    void *narrow = malloc(bytes);
    if (!narrow) return ctx_no_memory(ctx, bytes, "embeddings");
    dtype_convert(j->shape.dtype, narrow, CLOOB_F32, rows, j->count[which]);
    cloob_status status = j->dev->to_device(ctx, j->dev, j->in[which], narrow, bytes);
    if (status == CLOOB_OK) status = j->dev->sync(ctx, j->dev);
    free(narrow);
    return status;
}

static cloob_status job_plan(cloob_ctx *ctx, const cloob_objective_options *o, job *j, bool gradients)
{
    loss_options l;
    fill_options(o, j->dev, gradients, &l);
    for (int i = 0; gradients && i < MATRICES; i++)
        if (j->count[i] > 0)
            CLOOB_TRY(j->dev->alloc(ctx, j->dev, (size_t)j->count[i] * sizeof(float), "gradients", &j->g[i]));
    return loss_plan_create(ctx, &l, &j->shape, NULL, &j->plan);
}

static cloob_status job_open(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_pairs *e, job *j)
{
    const float *rows[MATRICES] = { e->x, e->y, e->u, e->v };
    j->shape = (loss_shape){ e->n, e->d, e->u ? e->nu : 0, e->v ? e->nv : 0, o->compute };
    int64_t n[MATRICES] = { e->n, e->n, j->shape.stored_u, j->shape.stored_v };
    if (e->n < 1 || e->d < 1 || !e->x || !e->y)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "x, y of %lld rows of width %lld: nothing to compare", (long long)e->n,
                        (long long)e->d);
    CLOOB_TRY(device_open(ctx, o->device ? o->device : "auto", &j->dev));
    for (int i = 0; i < MATRICES; i++) j->count[i] = n[i] * e->d;
    for (int i = 0; i < MATRICES; i++) CLOOB_TRY(upload(ctx, j, i, rows[i]));
    return CLOOB_OK;
}

static cloob_status job_run(cloob_ctx *ctx, job *j, loss_result *r)
{
    loss_inputs in = { j->in[X], j->in[Y], j->in[U], j->in[V] };
    loss_outputs out = { j->g[X], j->g[Y], j->g[U], j->g[V] };
    return loss_run(ctx, j->plan, &in, &out, j->dev->stream, r);
}

static cloob_status download(cloob_ctx *ctx, job *j, const cloob_gradients *g)
{
    float *to[MATRICES] = { g->dx, g->dy, g->du, g->dv };
    for (int i = 0; i < MATRICES; i++)
        if (to[i] && j->g[i])
            CLOOB_TRY(j->dev->to_host(ctx, j->dev, to[i], j->g[i], (size_t)j->count[i] * sizeof(float)));
    return CLOOB_OK;
}

cloob_status cloob_objective(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_pairs *e,
                             const cloob_gradients *g, cloob_objective_result *r)
{
    API_NEEDS(ctx, o && e && r);
    OPTIONS_READ(ctx, cloob_objective_options, o);
    job j = { 0 };
    loss_result l;
    cloob_status status;
    memset(r, 0, sizeof *r);
    CLOOB_TRY_GOTO(job_open(ctx, o, e, &j), end);
    CLOOB_TRY_GOTO(job_plan(ctx, o, &j, g != NULL), end);
    CLOOB_TRY_GOTO(job_run(ctx, &j, &l), end);
    if (g) CLOOB_TRY_GOTO(download(ctx, &j, g), end);
    fill_result(&j.shape, &l, r);
end:
    job_release(&j);
    return status;
}

/* ---- benchmark ---- */

static double now_ms(void) { return 1e3 * clock_seconds(); }

/* Host: the process's high-water mark. GPU: what is not available. */
static int64_t memory_used(device *d)
{
    size_t total, available;
    if (d->backend == BACKEND_CUDA) {
        d->memory(d, &total, &available);
        return (int64_t)(total - available);
    }
    return peak_bytes();
}

static float *random_rows(int64_t n, int64_t d, uint64_t key)
{
    float *x = malloc((size_t)(n * d) * sizeof *x);
    for (int64_t i = 0; x && i < n; i++) {
        double sum = 0;
        for (int64_t k = i * d; k < (i + 1) * d; k++) {
            x[k] = (float)(rng_uniform(key, (uint64_t)k) - 0.5);
            sum += (double)x[k] * (double)x[k];
        }
        for (int64_t k = i * d; k < (i + 1) * d; k++) x[k] = (float)((double)x[k] / __builtin_sqrt(sum));
    }
    return x;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static cloob_status time_runs(cloob_ctx *ctx, job *j, int repeats, loss_result *l, double *median)
{
    double *ms = calloc((size_t)repeats + 1, sizeof *ms), first = now_ms();
    cloob_status status = ms ? job_run(ctx, j, l) : ctx_no_memory(ctx, (size_t)repeats * sizeof *ms, "timings");
    if (ms && repeats == 0) ms[0] = now_ms() - first;
    for (int i = 0; status == CLOOB_OK && i < repeats; i++) {
        double begin = now_ms();
        status = job_run(ctx, j, l);
        ms[i] = now_ms() - begin;
    }
    if (status == CLOOB_OK) {
        qsort(ms, (size_t)repeats, sizeof *ms, by_value);
        *median = ms[repeats / 2];
    }
    free(ms);
    return status;
}

static cloob_status time_rows(cloob_ctx *ctx, const cloob_objective_options *o, const objective_bench *b,
                              const float *x, const float *y, objective_timing *t)
{
    job j = { 0 };
    loss_result l;
    cloob_status status;
    cloob_pairs e = { .x = x, .y = y, .n = b->n, .d = b->d };
    CLOOB_TRY_GOTO(job_open(ctx, o, &e, &j), end);
    peak_reset();
    int64_t before = memory_used(j.dev);
    CLOOB_TRY_GOTO(job_plan(ctx, o, &j, !b->forward_only), end);
    CLOOB_TRY_GOTO(time_runs(ctx, &j, b->repeats, &l, &t->ms), end);
    t->peak_bytes = memory_used(j.dev) - before;
    t->pairs_per_s = (double)b->n / t->ms * 1e3;
    t->loss = l.loss;
    memcpy(t->device, j.dev->name, sizeof t->device);
end:
    job_release(&j);
    return status;
}

cloob_status objective_time(cloob_ctx *ctx, const cloob_objective_options *o, const objective_bench *b,
                            objective_timing *t)
{
    API_NEEDS(ctx, o && b && t);
    memset(t, 0, sizeof *t);
    if (b->n < 2 || b->d < 1 || b->repeats < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a benchmark needs 2 pairs and a width");
    uint64_t key = rng_key(b->seed, "bench/loss");
    float *x = random_rows(b->n, b->d, key), *y = random_rows(b->n, b->d, key + 1);
    cloob_status status = x && y ? time_rows(ctx, o, b, x, y, t)
                                 : ctx_no_memory(ctx, (size_t)(2 * b->n * b->d) * sizeof(float), "embeddings");
    free(x);
    free(y);
    return status;
}

/* ---- rows in device memory ---- */

struct cloob_objective_plan {
    device *dev;
    loss_plan *plan;
    loss_shape shape;
};

static const char *device_for(const cloob_objective_options *o, cloob_dtype dtype)
{
    const char *name = o->device ? o->device : "auto";
    return dtype == CLOOB_F64 && strcmp(name, "auto") == 0 ? "ref" : name;
}

static cloob_status plan_fill(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_objective_shape *s,
                              cloob_objective_plan *p)
{
    loss_options l;
    p->shape = (loss_shape){ s->n, s->d, s->nu, s->nv, s->dtype };
    CLOOB_TRY(device_open(ctx, device_for(o, s->dtype), &p->dev));
    fill_options(o, p->dev, s->gradients, &l);
    return loss_plan_create(ctx, &l, &p->shape, NULL, &p->plan);
}

cloob_status cloob_objective_plan_create(cloob_ctx *ctx, const cloob_objective_options *o,
                                         const cloob_objective_shape *s, cloob_objective_plan **out)
{
    API_NEEDS(ctx, o && s && out);
    OPTIONS_READ(ctx, cloob_objective_options, o);
    cloob_objective_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a plan of the objective");
    cloob_status status = plan_fill(ctx, o, s, p);
    if (status == CLOOB_OK) *out = p;
    else cloob_objective_plan_destroy(p);
    return status;
}

cloob_status cloob_objective_plan_scales(cloob_ctx *ctx, cloob_objective_plan *p, double inv_tau, double scale_hopfield)
{
    API_NEEDS(ctx, p);
    return loss_plan_scales(ctx, p->plan, inv_tau, scale_hopfield);
}

cloob_status cloob_objective_plan_run(cloob_ctx *ctx, cloob_objective_plan *p, const cloob_objective_rows *rows,
                                      cloob_objective_result *r)
{
    API_NEEDS(ctx, p && rows && r);
    loss_inputs in = { rows->x, rows->y, rows->u, rows->v };
    loss_outputs out = { rows->dx, rows->dy, rows->du, rows->dv };
    loss_result l;
    memset(r, 0, sizeof *r);
    CLOOB_TRY(loss_run(ctx, p->plan, &in, &out, p->dev->stream, &l));
    CLOOB_TRY(p->dev->sync(ctx, p->dev));
    fill_result(&p->shape, &l, r);
    return CLOOB_OK;
}

void cloob_objective_plan_destroy(cloob_objective_plan *p)
{
    if (!p) return;
    loss_plan_destroy(p->plan);
    device_close(p->dev);
    free(p);
}
