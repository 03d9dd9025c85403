/* The probe on a GPU. Rows are taken in blocks: Z = X W', softmax, G += (P - Y)' X. */
#include "tensor/cuda/gemm.h" /* first: its vendor's header has arguments called rows */

#include "eval/probe/probe_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "eval/cuda/kernels.h"
#include "eval/probe/probe_objective.h"
#include "tensor/async_copy.h"

enum { LOGIT_BYTES = 256 << 20, SEND_BYTES = 64 << 20 };

typedef struct product {
    gemm_plan *plan;
    gemm_shape shape;
} product;

struct probe_gpu {
    cloob_ctx *ctx;
    device *d;
    const probe_data *part;
    int parts;
    rows key[2]; /* the rows stored in x, where resident */
    int keys;
    int64_t N, D, C, ldx, ldz, ldk; /* distances between rows: D, C and D + 1, rounded up to 16 bytes */
    int64_t block, send_rows;
    bool resident;
    float *x;                   /* (N or block, ldx) */
    int32_t *y;                 /* (N) */
    float *z;                   /* (block, ldz) */
    float *w, *G;               /* (C, ldx) */
    float *bias;                /* (C) */
    float *uncertain;           /* (N) */
    double *loss;               /* (N), then their sum */
    double *bias_part;          /* (COLUMN_SLICES, C) */
    float *sample, *M, *v, *Mv; /* (SAMPLE_BLOCK, ldk), (ldk, ldk), (C, ldk) twice */
    double *wide, *column;      /* (D+1, D+1), (D+1) */
    int *bad;
    void *workspace;
    size_t workspace_bytes, bytes, limit;
    float *staging;                                /* on the host: send_rows of features, or parameters */
    double *home;                                  /* on the host: bias_part */
    product logits[2], gradient[2], square, apply; /* [1]: the last block, where it is shorter */
};

static int64_t up(int64_t n) { return (n + 3) / 4 * 4; }

/* ---- memory -------------------------------------------------------------------------------------- */

cloob_status probe_gpu_create(cloob_ctx *ctx, device *d, size_t limit, probe_gpu **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ctx_no_memory(ctx, sizeof **out, "the probe");
    (*out)->ctx = ctx, (*out)->d = d, (*out)->limit = limit;
    return CLOOB_OK;
}

static void release(probe_gpu *g, void *pointer)
{
    void **p = pointer;
    if (*p) g->d->free(g->d, *p);
    *p = NULL;
}

static void unload(probe_gpu *g)
{
    product *made[] = { &g->logits[0], &g->logits[1], &g->gradient[0], &g->gradient[1], &g->square, &g->apply };
    release(g, &g->x), release(g, &g->y), release(g, &g->z), release(g, &g->w), release(g, &g->G), release(g, &g->bias);
    release(g, &g->uncertain), release(g, &g->loss), release(g, &g->bias_part), release(g, &g->sample),
        release(g, &g->M);
    release(g, &g->v), release(g, &g->Mv), release(g, &g->wide), release(g, &g->column), release(g, &g->bad);
    release(g, &g->workspace);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        gemm_plan_destroy(made[i]->plan);
        made[i]->plan = NULL;
    }
    if (g->staging) async_copy_host_free(g->d, g->staging);
    free(g->home);
    g->staging = NULL, g->home = NULL, g->keys = 0, g->bytes = 0;
}

device *probe_gpu_device(probe_gpu *g) { return g->d; }

void probe_gpu_destroy(probe_gpu *g)
{
    if (!g) return;
    unload(g);
    free(g);
}

static cloob_status take(probe_gpu *g, void *pointer, int64_t count, size_t size, const char *what)
{
    g->bytes += (size_t)count * size;
    return g->d->alloc(g->ctx, g->d, (size_t)count * size, what, pointer);
}

/* All features stay on the device where they fit. */
static void choose_sizes(probe_gpu *g)
{
    size_t total, available;
    int64_t K = g->D + 1;
    g->ldx = up(g->D), g->ldz = up(g->C), g->ldk = up(K);
    g->block = min64(g->N, max64(1024, LOGIT_BYTES / (int64_t)sizeof(float) / g->ldz / 1024 * 1024));
    g->send_rows = min64(g->block, max64(1, SEND_BYTES / (int64_t)sizeof(float) / g->ldx));
    g->d->memory(g->d, &total, &available);
    int64_t others = g->block * g->ldz * 4 + g->N * 16 + 4 * g->C * g->ldk * 4 + K * K * 12 + ((int64_t)64 << 20);
    g->resident = g->N * g->ldx * (int64_t)sizeof(float) + others <= (int64_t)(g->limit ? g->limit : available / 4 * 3);
}

static cloob_status allocate(probe_gpu *g)
{
    int64_t K = g->D + 1, staged = max64(max64(g->send_rows * g->ldx, g->C * g->ldk), g->ldk * g->ldk);
    CLOOB_TRY(take(g, &g->x, (g->resident ? g->N : g->block) * g->ldx, sizeof(float), "features"));
    CLOOB_TRY(take(g, &g->y, g->N, sizeof(int32_t), "labels"));
    CLOOB_TRY(take(g, &g->z, g->block * g->ldz, sizeof(float), "logits"));
    CLOOB_TRY(take(g, &g->w, g->C * g->ldx, sizeof(float), "weights"));
    CLOOB_TRY(take(g, &g->G, g->C * g->ldx, sizeof(float), "the gradient"));
    CLOOB_TRY(take(g, &g->bias, g->C, sizeof(float), "the bias"));
    CLOOB_TRY(take(g, &g->uncertain, g->N, sizeof(float), "probabilities"));
    CLOOB_TRY(take(g, &g->loss, g->N + 1, sizeof(double), "losses"));
    CLOOB_TRY(take(g, &g->bias_part, COLUMN_SLICES * g->C, sizeof(double), "the bias"));
    CLOOB_TRY(take(g, &g->sample, SAMPLE_BLOCK * g->ldk, sizeof(float), "the preconditioner"));
    CLOOB_TRY(take(g, &g->M, g->ldk * g->ldk, sizeof(float), "the preconditioner"));
    CLOOB_TRY(take(g, &g->v, g->C * g->ldk, sizeof(float), "a direction"));
    CLOOB_TRY(take(g, &g->Mv, g->C * g->ldk, sizeof(float), "a direction"));
    CLOOB_TRY(take(g, &g->wide, K * K, sizeof(double), "the preconditioner"));
    CLOOB_TRY(take(g, &g->column, K, sizeof(double), "the preconditioner"));
    CLOOB_TRY(take(g, &g->bad, 1, sizeof(int), "the preconditioner"));
    g->staging = async_copy_host_alloc(g->d, (size_t)staged * sizeof(float));
    g->home = malloc((size_t)(COLUMN_SLICES * g->C) * sizeof *g->home);
    return g->staging && g->home ? CLOOB_OK
                                 : ctx_no_memory(g->ctx, (size_t)staged * sizeof(float), "features on their way");
}

/* ---- products ------------------------------------------------------------------------------------ */

static cloob_status plan_one(probe_gpu *g, product *p, gemm_shape shape)
{
    shape.in = shape.out = CLOOB_F32, shape.alpha = 1;
    p->shape = shape;
    CLOOB_TRY(gemm_plan_create(g->ctx, g->d, &shape, &p->plan));
    size_t wants = gemm_plan_workspace(p->plan);
    if (wants > g->workspace_bytes) g->workspace_bytes = wants;
    return CLOOB_OK;
}

static cloob_status plan_block(probe_gpu *g, int which, int64_t n)
{
    CLOOB_TRY(plan_one(g, &g->logits[which],
                       (gemm_shape){
                           .m = n, .n = g->C, .k = g->D, .tb = true, .lda = g->ldx, .ldb = g->ldx, .ldd = g->ldz }));
    return plan_one(
        g, &g->gradient[which],
        (gemm_shape){
            .m = g->C, .n = g->D, .k = n, .ta = true, .lda = g->ldz, .ldb = g->ldx, .ldd = g->ldx, .add = true });
}

static cloob_status plan_products(probe_gpu *g)
{
    int64_t rest = g->N % g->block;
    g->workspace_bytes = 0;
    CLOOB_TRY(plan_block(g, 0, g->block));
    if (rest) CLOOB_TRY(plan_block(g, 1, rest));
    CLOOB_TRY(
        plan_one(g, &g->square, (gemm_shape){ .m = g->ldk, .n = g->ldk, .k = SAMPLE_BLOCK, .ta = true, .add = true }));
    CLOOB_TRY(plan_one(g, &g->apply, (gemm_shape){ .m = g->C, .n = g->ldk, .k = g->ldk }));
    return take(g, &g->workspace, (int64_t)g->workspace_bytes, 1, "products");
}

static cloob_status multiply(probe_gpu *g, const product *p, float *D, const float *A, const float *B)
{
    return gemm_run(g->ctx, g->d, p->plan, g->d->stream, D, A, B, p->shape.add ? D : NULL, NULL, g->workspace);
}

/* ---- rows to the device -------------------------------------------------------------------------- */

typedef struct reading {
    const probe_gpu *g;
    int64_t first, step;
} reading;

/* Row `at` over all parts into staging's row i. */
static void read_row(const probe_gpu *g, int64_t at, float *to)
{
    int k = 0;
    for (; at >= g->part[k].x.N; k++) at -= g->part[k].x.N;
    const float *x = rows_read(&g->part[k].x, at, 1, to);
    if (x != to) memcpy(to, x, (size_t)g->D * sizeof *to);
    for (int64_t i = g->D; i < g->ldx; i++) to[i] = 0;
}

static void read_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const reading *r = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) read_row(r->g, r->first + i * r->step, r->g->staging + i * r->g->ldx);
}

/* Rows first, first + step, ... (n of them) into `to`, one after the other. */
static cloob_status send_rows(probe_gpu *g, float *to, int64_t first, int64_t step, int64_t n)
{
    for (int64_t at = 0, part; at < n; at += part) {
        part = min64(g->send_rows, n - at);
        pool_for(g->ctx, part, 16, read_range, &(reading){ g, first + at * step, step });
        CLOOB_TRY(g->d->to_device(g->ctx, g->d, to + at * g->ldx, g->staging, (size_t)(part * g->ldx) * sizeof *to));
    }
    return CLOOB_OK;
}

static bool same_rows(const probe_gpu *g, const probe_data *part, int parts, int64_t C)
{
    bool same = g->keys == parts && g->C == C;
    for (int k = 0; same && k < parts; k++)
        same = g->key[k].data == part[k].x.data && g->key[k].N == part[k].x.N && g->key[k].step == part[k].x.step &&
               g->key[k].D == part[k].x.D && g->key[k].dtype == part[k].x.dtype;
    return same;
}

static void log_plan(const probe_gpu *g)
{
    ctx_log(g->ctx, CLOOB_LOG_INFO, "on %s: %.2f GiB; features (%.2f GiB) %s, logits of %lld rows at a time",
            g->d->name, (double)g->bytes / 1073741824.0, (double)(g->N * g->ldx) * sizeof(float) / 1073741824.0,
            g->resident ? "stay there" : "are sent at every evaluation", (long long)g->block);
}

cloob_status probe_gpu_load(probe_gpu *g, const probe_data *part, int parts, const int32_t *y, int64_t C)
{
    bool same = same_rows(g, part, parts, C);
    g->part = part, g->parts = parts;
    if (!same) {
        unload(g);
        g->N = 0, g->D = part[0].x.D, g->C = C;
        for (int k = 0; k < parts; k++) g->N += part[k].x.N;
        choose_sizes(g);
        CLOOB_TRY(allocate(g));
        CLOOB_TRY(plan_products(g));
        log_plan(g);
        if (g->resident) CLOOB_TRY(send_rows(g, g->x, 0, 1, g->N));
        for (g->keys = 0; g->keys < parts; g->keys++) g->key[g->keys] = part[g->keys].x;
    }
    return g->d->to_device(g->ctx, g->d, g->y, y, (size_t)g->N * sizeof *y);
}

/* ---- value and gradient -------------------------------------------------------------------------- */

/* (C, D+1) in double becomes (C, ldx) and bias, or back. */
static cloob_status send_weights(probe_gpu *g, const double *w)
{
    int64_t C = g->C, D = g->D;
    for (int64_t c = 0; c < C; c++) {
        float *row = g->staging + c * g->ldx;
        for (int64_t i = 0; i < D; i++) row[i] = (float)w[c * (D + 1) + i];
        for (int64_t i = D; i < g->ldx; i++) row[i] = 0;
    }
    CLOOB_TRY(g->d->to_device(g->ctx, g->d, g->w, g->staging, (size_t)(C * g->ldx) * sizeof *g->w));
    for (int64_t c = 0; c < C; c++) g->staging[c] = (float)w[c * (D + 1) + D];
    return g->d->to_device(g->ctx, g->d, g->bias, g->staging, (size_t)C * sizeof *g->bias);
}

static cloob_status fetch_gradient(probe_gpu *g, double *gradient)
{
    int64_t C = g->C, D = g->D, K = D + 1;
    CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->staging, g->G, (size_t)(C * g->ldx) * sizeof *g->G));
    CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->home, g->bias_part, (size_t)(COLUMN_SLICES * C) * sizeof *g->home));
    for (int64_t c = 0; c < C; c++) {
        for (int64_t i = 0; i < D; i++) gradient[c * K + i] = g->staging[c * g->ldx + i];
        gradient[c * K + D] = 0;
        for (int s = 0; s < COLUMN_SLICES; s++) gradient[c * K + D] += g->home[s * C + c];
    }
    return CLOOB_OK;
}

static cloob_status one_block(probe_gpu *g, int64_t at, int64_t n)
{
    int which = n != g->block;
    float *x = g->resident ? g->x + at * g->ldx : g->x;
    if (!g->resident) CLOOB_TRY(send_rows(g, x, at, 1, n));
    CLOOB_TRY(multiply(g, &g->logits[which], g->z, x, g->w));
    CLOOB_TRY(eval_softmax_loss(g->ctx, g->d->stream, g->z, g->ldz, g->bias, g->loss + at, g->uncertain + at, g->y + at,
                                n, g->C));
    CLOOB_TRY(eval_column_sums(g->ctx, g->d->stream, g->bias_part, g->z, g->ldz, n, g->C));
    return multiply(g, &g->gradient[which], g->G, g->z, x);
}

cloob_status probe_gpu_evaluate(probe_gpu *g, double *loss, double *gradient, const double *w)
{
    cuda_use(g->d);
    CLOOB_TRY(send_weights(g, w));
    CLOOB_TRY(g->d->zero(g->ctx, g->d, g->G, (size_t)(g->C * g->ldx) * sizeof *g->G));
    CLOOB_TRY(g->d->zero(g->ctx, g->d, g->bias_part, (size_t)(COLUMN_SLICES * g->C) * sizeof *g->bias_part));
    for (int64_t at = 0; at < g->N; at += g->block) CLOOB_TRY(one_block(g, at, min64(g->block, g->N - at)));
    CLOOB_TRY(eval_sum(g->ctx, g->d->stream, g->loss + g->N, g->loss, g->N));
    CLOOB_TRY(fetch_gradient(g, gradient));
    return g->d->to_host(g->ctx, g->d, loss, g->loss + g->N, sizeof *loss);
}

/* ---- the preconditioner -------------------------------------------------------------------------- */

/* Sampled rows from the s-th on; rows behind the last are zeros and add nothing. */
static cloob_status add_sample(probe_gpu *g, int64_t s, int64_t n, int64_t stride)
{
    const float *x = g->x + s * stride * g->ldx;
    if (n < SAMPLE_BLOCK)
        CLOOB_TRY(g->d->zero(g->ctx, g->d, g->sample, (size_t)(SAMPLE_BLOCK * g->ldk) * sizeof *g->sample));
    if (!g->resident) CLOOB_TRY(send_rows(g, g->x, s * stride, stride, n));
    CLOOB_TRY(eval_weighted_rows(g->ctx, g->d->stream, g->sample, g->ldk, g->resident ? x : g->x, g->ldx,
                                 g->resident ? stride : 1, g->uncertain + s * stride, stride, n, g->D));
    return multiply(g, &g->square, g->M, g->sample, g->sample);
}

cloob_status probe_gpu_hessian(probe_gpu *g, float *sum, int64_t stride, int64_t *used)
{
    int64_t K = g->D + 1;
    cuda_use(g->d);
    *used = (g->N + stride - 1) / stride;
    CLOOB_TRY(g->d->zero(g->ctx, g->d, g->M, (size_t)(g->ldk * g->ldk) * sizeof *g->M));
    for (int64_t s = 0; s < *used; s += SAMPLE_BLOCK)
        CLOOB_TRY(add_sample(g, s, min64(SAMPLE_BLOCK, *used - s), stride));
    CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->staging, g->M, (size_t)(g->ldk * g->ldk) * sizeof *g->M));
    for (int64_t i = 0; i < K; i++) memcpy(sum + i * K, g->staging + i * g->ldk, (size_t)K * sizeof *sum);
    return CLOOB_OK;
}

cloob_status probe_gpu_invert(probe_gpu *g, const double *M)
{
    int64_t K = g->D + 1;
    int bad = 0;
    cuda_use(g->d);
    CLOOB_TRY(g->d->to_device(g->ctx, g->d, g->wide, M, (size_t)(K * K) * sizeof *M));
    CLOOB_TRY(g->d->zero(g->ctx, g->d, g->bad, sizeof *g->bad));
    CLOOB_TRY(g->d->zero(g->ctx, g->d, g->M, (size_t)(g->ldk * g->ldk) * sizeof *g->M));
    CLOOB_TRY(eval_sweep(g->ctx, g->d->stream, g->wide, g->column, g->bad, K));
    CLOOB_TRY(eval_narrow(g->ctx, g->d->stream, g->M, g->ldk, g->wide, -1, K));
    CLOOB_TRY(g->d->to_host(g->ctx, g->d, &bad, g->bad, sizeof bad));
    return bad ? ctx_fail(g->ctx, CLOOB_ERR_NUMERIC, "the probe's averaged Hessian is not positive definite")
               : CLOOB_OK;
}

cloob_status probe_gpu_precondition(probe_gpu *g, double *out, const double *v)
{
    int64_t K = g->D + 1;
    size_t bytes = (size_t)(g->C * g->ldk) * sizeof *g->v;
    cuda_use(g->d);
    for (int64_t c = 0; c < g->C; c++)
        for (int64_t i = 0; i < g->ldk; i++) g->staging[c * g->ldk + i] = i < K ? (float)v[c * K + i] : 0.0f;
    CLOOB_TRY(g->d->to_device(g->ctx, g->d, g->v, g->staging, bytes));
    CLOOB_TRY(multiply(g, &g->apply, g->Mv, g->v, g->M));
    CLOOB_TRY(g->d->to_host(g->ctx, g->d, g->staging, g->Mv, bytes));
    for (int64_t c = 0; c < g->C; c++)
        for (int64_t i = 0; i < K; i++) out[c * K + i] = g->staging[c * g->ldk + i];
    return CLOOB_OK;
}
