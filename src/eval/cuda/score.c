/* Logits of a trained classifier, block by block. */
#include "tensor/cuda/gemm.h" /* first: its vendor's header has arguments called rows */

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "eval/probe/probe_gpu.h"

struct score_gpu {
    cloob_ctx *ctx;
    device *d;
    int64_t C, D, ldx, ldz, block;
    float *x, *w, *z, *bias; /* on the device: (block, ldx), (C, ldx), (block, ldz), (ldz) */
    float *staging;          /* on the host: the larger of x, w and z */
    gemm_plan *plan;
    void *workspace;
};

static int64_t up(int64_t n) { return (n + 3) / 4 * 4; }

static cloob_status take(score_gpu *s, void *pointer, int64_t bytes)
{
    return s->d->alloc(s->ctx, s->d, (size_t)bytes, "scores", pointer);
}

static cloob_status send_weights(score_gpu *s, const double *w)
{
    int64_t C = s->C, D = s->D;
    memset(s->staging, 0, (size_t)(C * s->ldx) * sizeof *s->staging);
    for (int64_t c = 0; c < C; c++)
        for (int64_t i = 0; i < D; i++) s->staging[c * s->ldx + i] = (float)w[c * (D + 1) + i];
    CLOOB_TRY(s->d->to_device(s->ctx, s->d, s->w, s->staging, (size_t)(C * s->ldx) * sizeof *s->w));
    for (int64_t c = 0; c < C; c++) s->staging[c] = (float)w[c * (D + 1) + D];
    return s->d->to_device(s->ctx, s->d, s->bias, s->staging, (size_t)C * sizeof *s->bias);
}

static cloob_status prepare(score_gpu *s, const double *w)
{
    int64_t f = sizeof(float), staged = max64(max64(s->block * s->ldx, s->C * s->ldx), s->block * s->ldz);
    gemm_shape shape = { .m = s->block,
                         .n = s->ldz,
                         .k = s->D,
                         .tb = true,
                         .lda = s->ldx,
                         .ldb = s->ldx,
                         .in = CLOOB_F32,
                         .out = CLOOB_F32,
                         .extra = GEMM_BIAS,
                         .alpha = 1 };
    s->staging = malloc((size_t)(staged * f));
    if (!s->staging) return ctx_no_memory(s->ctx, (size_t)(staged * f), "scores");
    CLOOB_TRY(take(s, &s->x, s->block * s->ldx * f));
    CLOOB_TRY(take(s, &s->w, s->ldz * s->ldx * f)); /* rows behind the last class stay 0 */
    CLOOB_TRY(take(s, &s->z, s->block * s->ldz * f));
    CLOOB_TRY(take(s, &s->bias, s->ldz * f));
    CLOOB_TRY(gemm_plan_create(s->ctx, s->d, &shape, &s->plan));
    CLOOB_TRY(take(s, &s->workspace, (int64_t)gemm_plan_workspace(s->plan)));
    return send_weights(s, w);
}

cloob_status score_gpu_create(cloob_ctx *ctx, device *d, score_gpu **out, const double *w, int64_t C, int64_t D,
                              int64_t block)
{
    score_gpu *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ctx_no_memory(ctx, sizeof *s, "scores");
    *s = (score_gpu){ .ctx = ctx, .d = d, .C = C, .D = D, .ldx = up(D), .ldz = up(C), .block = block };
    cloob_status status = prepare(s, w);
    if (status == CLOOB_OK) *out = s;
    else score_gpu_destroy(s);
    return status;
}

void score_gpu_destroy(score_gpu *s)
{
    if (!s) return;
    void *held[] = { s->x, s->w, s->z, s->bias, s->workspace };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i]) s->d->free(s->d, held[i]);
    gemm_plan_destroy(s->plan);
    free(s->staging);
    free(s);
}

cloob_status score_gpu_logits(score_gpu *s, float *z, const float *x, int64_t n)
{
    const float *from = x;
    if (s->ldx != s->D) {
        from = s->staging;
        for (int64_t i = 0; i < n; i++) {
            memcpy(s->staging + i * s->ldx, x + i * s->D, (size_t)s->D * sizeof *x);
            memset(s->staging + i * s->ldx + s->D, 0, (size_t)(s->ldx - s->D) * sizeof *x);
        }
    }
    CLOOB_TRY(s->d->to_device(s->ctx, s->d, s->x, from, (size_t)(n * s->ldx) * sizeof *x));
    CLOOB_TRY(gemm_run(s->ctx, s->d, s->plan, s->d->stream, s->z, s->x, s->w, NULL, s->bias, s->workspace));
    if (s->ldz == s->C) return s->d->to_host(s->ctx, s->d, z, s->z, (size_t)(n * s->C) * sizeof *z);
    CLOOB_TRY(s->d->to_host(s->ctx, s->d, s->staging, s->z, (size_t)(n * s->ldz) * sizeof *z));
    for (int64_t i = 0; i < n; i++) memcpy(z + i * s->C, s->staging + i * s->ldz, (size_t)s->C * sizeof *z);
    return CLOOB_OK;
}
