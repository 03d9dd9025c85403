/* The objective of the public header: host rows on any device, files, and the benchmark. */
#include "cloob/objective.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/objective_plan.h"
#include "cloob/options.h"
#include "core/peak.h"
#include "core/rng.h"
#include "io/safetensors.h"
#include "loss/loss.h"
#include "tensor/device.h"
#include "core/needs.h"

const char *cloob_method_name(cloob_method m) { return loss_method_name((loss_method)m); }

bool cloob_method_from_name(const char *name, cloob_method *out)
{
    if (!name) return false;
    loss_method m;
    if (!loss_method_from_name(name, &m)) return false;
    *out = (cloob_method)m;
    return true;
}

void cloob_objective_options_init(cloob_objective_options *o)
{
    if (!o) return;
    *o = (cloob_objective_options){ CLOOB_METHOD_CLOOB, CLOOB_DEFAULT_INV_TAU,   CLOOB_DEFAULT_SCALE_HOPFIELD, "auto",
                                    CLOOB_F32,          CLOOB_DEFAULT_LOGIT_BIAS };
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
    objective_loss_options(o, j->dev, gradients, &l);
    for (int i = 0; gradients && i < MATRICES; i++)
        if (j->count[i] > 0)
            CLOOB_TRY(j->dev->alloc(ctx, j->dev, (size_t)j->count[i] * sizeof(float), "gradients", &j->g[i]));
    return loss_plan_create(ctx, &l, &j->shape, NULL, &j->plan);
}

static cloob_status job_open(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_embeddings *e, job *j)
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

cloob_status cloob_objective(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_embeddings *e,
                             const cloob_gradients *g, cloob_objective_result *r)
{
    API_NEEDS(ctx, o && e && r);
    job j = { 0 };
    loss_result l;
    cloob_status status;
    memset(r, 0, sizeof *r);
    CLOOB_TRY_GOTO(job_open(ctx, o, e, &j), end);
    CLOOB_TRY_GOTO(job_plan(ctx, o, &j, g != NULL), end);
    CLOOB_TRY_GOTO(job_run(ctx, &j, &l), end);
    if (g) CLOOB_TRY_GOTO(download(ctx, &j, g), end);
    objective_fill_result(&j.shape, &l, r);
end:
    job_release(&j);
    return status;
}

/* ---- files ---- */

static const char *const names[MATRICES] = { "x", "y", "U", "V" };
static const char *const embed_names[MATRICES] = { "image", "text", "U", "V" }; /* as cloob embed writes them */
static const char *const gradient_names[MATRICES] = { "dx", "dy", "dU", "dV" };

typedef struct matrices {
    float *rows[MATRICES], *g[MATRICES];
    int64_t n[MATRICES], d;
} matrices;

static void matrices_release(matrices *m)
{
    for (int i = 0; i < MATRICES; i++) {
        free(m->rows[i]);
        free(m->g[i]);
    }
}

static cloob_status read_matrix(cloob_ctx *ctx, const st_file *f, const char *path, int which, matrices *m)
{
    const tensor *t;
    const char *name = !st_find(f, names[which]) && st_find(f, embed_names[which]) ? embed_names[which] : names[which];
    if (which >= U && !st_find(f, name)) return CLOOB_OK;
    CLOOB_TRY(st_need(ctx, f, path, name, 2, &t));
    m->n[which] = t->dim[0];
    if (which == X) m->d = t->dim[1];
    if (t->dim[1] != m->d || t->dim[0] < 1 || m->d < 1)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: %s has shape (%lld, %lld), but x has width %lld; sets must not be empty", path, name,
                        (long long)t->dim[0], (long long)t->dim[1], (long long)m->d);
    size_t count = (size_t)(t->dim[0] * m->d);
    m->rows[which] = malloc(count * sizeof(float));
    m->g[which] = malloc(count * sizeof(float));
    if (!m->rows[which] || !m->g[which]) return ctx_no_memory(ctx, 2 * count * sizeof(float), name);
    if (!dtype_convert(CLOOB_F32, m->rows[which], t->dtype, t->data, (int64_t)count))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %s is %s; embeddings are F32, F16, BF16 or F64", path, name,
                        dtype_name(t->dtype));
    return CLOOB_OK;
}

static cloob_status read_matrices(cloob_ctx *ctx, const char *path, matrices *m)
{
    st_file f;
    cloob_status status = st_open(ctx, path, &f);
    if (status != CLOOB_OK) return status;
    for (int i = 0; i < MATRICES && status == CLOOB_OK; i++) status = read_matrix(ctx, &f, path, i, m);
    if (status == CLOOB_OK && m->n[Y] != m->n[X])
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: x has %lld rows and y %lld; pairs need as many of both", path,
                          (long long)m->n[X], (long long)m->n[Y]);
    st_close(&f);
    return status;
}

static cloob_status write_gradients(cloob_ctx *ctx, const char *path, const matrices *m)
{
    st_entry entry[MATRICES];
    int64_t count = 0;
    for (int i = 0; i < MATRICES; i++)
        if (m->rows[i]) entry[count++] = (st_entry){ gradient_names[i], TENSOR(CLOOB_F32, m->g[i], m->n[i], m->d) };
    return st_write(ctx, path, entry, count, NULL, 0);
}

cloob_status cloob_objective_file(cloob_ctx *ctx, const cloob_objective_options *o, const char *input,
                                  const char *gradients, cloob_objective_result *r)
{
    API_NEEDS(ctx, o && input && r);
    matrices m = { 0 };
    cloob_status status = read_matrices(ctx, input, &m);
    if (status == CLOOB_OK) {
        cloob_embeddings e = { m.rows[X], m.rows[Y], m.n[X], m.d, m.rows[U], m.rows[V], m.n[U], m.n[V] };
        cloob_gradients g = { m.g[X], m.g[Y], m.g[U], m.g[V] };
        status = cloob_objective(ctx, o, &e, &g, r);
        if (status != CLOOB_OK) ctx_wrap(ctx, status, "%s", input);
    }
    if (status == CLOOB_OK && gradients) status = write_gradients(ctx, gradients, &m);
    matrices_release(&m);
    return status;
}

/* ---- benchmark ---- */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

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

static cloob_status time_rows(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_objective_bench *b,
                              const float *x, const float *y, cloob_objective_timing *t)
{
    job j = { 0 };
    loss_result l;
    cloob_status status;
    cloob_embeddings e = { .x = x, .y = y, .n = b->n, .d = b->d };
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

cloob_status cloob_objective_time(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_objective_bench *b,
                                  cloob_objective_timing *t)
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
