/* Objective by blocks of rows: Z = X W' + b, loss and P - Y in place of Z, G += (P - Y)' X. */
#include "eval/probe_objective.h"

#include <stdlib.h>
#include <string.h>

#include "eval/softmax_loss.h"
#include "tensor/cpu/gemm.h"

enum {
    BLOCK_BYTES = 8 << 20, /* of features or logits per block: GEMM-sized, and still near the caches */
    BLOCK_LEAST = 256
};
static const double SMALL = 2e8;           /* N (D+1) C up to which double costs less than a blink */
static const double SMALL_HESSIAN = 4e9;   /* N (C(D+1))^2 up to which the whole Hessian does */
static const int64_t HESSIAN_LIMIT = 2048; /* its largest size */

/* ---- sizes --------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t choose_block(int64_t N, int64_t D, int64_t C)
{
    int64_t widest = D > C ? D : C, n = BLOCK_BYTES / (widest * (int64_t)sizeof(float));
    return least(N, n < BLOCK_LEAST ? BLOCK_LEAST : n);
}

static bool choose_wide(int64_t N, int64_t D, int64_t C)
{
    return (double)N * (double)(D + 1) * (double)C <= SMALL;
}

static bool choose_exact(int64_t N, int64_t D, int64_t C)
{
    double n = (double)(C * (D + 1));
    return choose_wide(N, D, C) && n <= (double)HESSIAN_LIMIT && (double)N * n * n <= SMALL_HESSIAN;
}

size_t objective_bytes(int64_t N, int64_t D, int64_t C, bool *wide, int64_t *block_rows)
{
    int64_t K = D + 1, n = choose_block(N, D, C), narrow = n * D + N, doubles_ = C;
    *wide = choose_wide(N, D, C), *block_rows = n;
    if (choose_exact(N, D, C)) doubles_ += C * K * C * K + n * K;
    else narrow += SAMPLE_BLOCK * K + K * K + 2 * C * K, doubles_ += K * K;
    if (*wide) doubles_ += n * D + n * C + C * K;
    else narrow += n * C + 2 * C * K;
    return (size_t)narrow * sizeof(float) + (size_t)doubles_ * sizeof(double);
}

static float *floats(objective *o, int64_t n) { return arena_push(&o->memory, (size_t)n * sizeof(float)); }
static double *doubles(objective *o, int64_t n) { return arena_push(&o->memory, (size_t)n * sizeof(double)); }

static bool allocate_preconditioner(objective *o)
{
    int64_t K = o->D + 1, CK = o->C * K;
    if (o->exact) {
        o->M = doubles(o, CK * CK), o->weighted = doubles(o, o->block * K);
        return o->M && o->weighted;
    }
    o->sample = floats(o, SAMPLE_BLOCK * K), o->Minv = floats(o, K * K), o->v = floats(o, CK),
    o->Mv = floats(o, CK);
    o->M = doubles(o, K * K);
    return o->sample && o->Minv && o->v && o->Mv && o->M;
}

static bool allocate(objective *o)
{
    int64_t CK = o->C * (o->D + 1), n = o->block;
    o->x = floats(o, n * o->D), o->uncertain = floats(o, o->N), o->bias_sum = doubles(o, o->C);
    if (!o->x || !o->uncertain || !o->bias_sum || !allocate_preconditioner(o)) return false;
    if (o->wide) {
        o->xd = doubles(o, n * o->D), o->zd = doubles(o, n * o->C), o->Gd = doubles(o, CK);
        return o->xd && o->zd && o->Gd;
    }
    o->z = floats(o, n * o->C), o->w = floats(o, CK), o->G = floats(o, CK);
    return o->z && o->w && o->G;
}

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts,
                              const int32_t *y, int64_t C, double lambda)
{
    objective *o = calloc(1, sizeof *o);
    bool wide;
    int64_t block;
    *out = o;
    if (!o) return ctx_no_memory(ctx, sizeof *o, "the probe");
    *o = (objective){
        .ctx = ctx, .part = part, .parts = parts, .y = y, .D = part[0].x.D, .C = C, .lambda = lambda
    };
    for (int k = 0; k < parts; k++) o->N += part[k].x.N;
    size_t bytes = objective_bytes(o->N, o->D, C, &wide, &block);
    o->wide = wide, o->block = block, o->exact = choose_exact(o->N, o->D, C);
    if (allocate(o)) return CLOOB_OK;
    objective_destroy(o);
    *out = NULL;
    return ctx_no_memory(ctx, bytes, "the probe");
}

void objective_destroy(objective *o)
{
    if (!o) return;
    arena_release(&o->memory);
    free(o);
}

/* ---- value and gradient -------------------------------------------------------------------------- */

/* One block: x (n, D) of features, `at` its first row over all parts. Returns its loss; adds to G and
 * bias_sum. */
static double block_narrow(objective *o, const float *x, int64_t at, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->z[i * C + c] = o->w[c * K + D];
    cpu_sgemm(o->ctx, false, true, n, C, D, 1, x, D, o->w, K, 1, o->z, C);
    double loss = softmax_loss_f(o->ctx, o->z, o->uncertain + at, o->y + at, n, C);
    cpu_sgemm(o->ctx, true, false, C, D, n, 1, o->z, C, x, D, 1, o->G, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->bias_sum[c] += o->z[i * C + c];
    return loss;
}

void objective_logits_wide(objective *o, const float *x, const double *w, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    for (int64_t i = 0; i < n * D; i++) o->xd[i] = x[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->zd[i * C + c] = w[c * K + D];
    cpu_dgemm(o->ctx, false, true, n, C, D, 1, o->xd, D, w, K, 1, o->zd, C);
}

static double block_wide(objective *o, const float *x, const double *w, int64_t at, int64_t n)
{
    int64_t D = o->D, K = D + 1, C = o->C;
    objective_logits_wide(o, x, w, n);
    double loss = softmax_loss_d(o->ctx, o->zd, o->uncertain + at, o->y + at, n, C);
    cpu_dgemm(o->ctx, true, false, C, D, n, 1, o->zd, C, o->xd, D, 1, o->Gd, K);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) o->bias_sum[c] += o->zd[i * C + c];
    return loss;
}

static double all_blocks(objective *o, const double *w)
{
    double loss = 0;
    int64_t before = 0; /* rows of earlier parts */
    for (int k = 0; k < o->parts; before += o->part[k++].x.N) {
        const rows *r = &o->part[k].x;
        for (int64_t at = 0, n; at < r->N; at += n) {
            n = least(o->block, r->N - at);
            const float *x = rows_read(r, at, n, o->x);
            loss += o->wide ? block_wide(o, x, w, before + at, n) : block_narrow(o, x, before + at, n);
        }
    }
    return loss;
}

static cloob_status evaluate(void *arg, double *f, double *g, const double *w)
{
    objective *o = arg;
    int64_t D = o->D, K = D + 1, CK = o->C * K;
    double square = 0;
    memset(o->bias_sum, 0, (size_t)o->C * sizeof *o->bias_sum);
    if (o->wide) memset(o->Gd, 0, (size_t)CK * sizeof *o->Gd);
    else {
        memset(o->G, 0, (size_t)CK * sizeof *o->G);
        for (int64_t i = 0; i < CK; i++) o->w[i] = (float)w[i];
    }
    *f = all_blocks(o, w);
    for (int64_t c = 0; c < o->C; c++) {
        for (int64_t i = c * K; i < c * K + D; i++) {
            g[i] = (o->wide ? o->Gd[i] : (double)o->G[i]) + o->lambda * w[i];
            square += w[i] * w[i];
        }
        g[c * K + D] = o->bias_sum[c];
    }
    *f += 0.5 * o->lambda * square;
    return CLOOB_OK;
}

lbfgs_problem objective_problem(objective *o)
{
    return (lbfgs_problem){ .n = o->C * (o->D + 1),
                            .noise = o->wide ? 1e-15 : 1e-9,
                            .evaluate = evaluate,
                            .precondition = objective_precondition,
                            .prepare = objective_prepare,
                            .arg = o };
}
