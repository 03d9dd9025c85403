/* InfoLOOB and InfoNCE on the GPU; the reasoning is in cpu_contrast.c. */
#include "core/arith.h"
#include "loss/cuda/fused.h"
#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"

typedef struct strip {
    int64_t i, j, m, n;
    const void *a, *b;
    int64_t own; /* column of row 0's positive in this tile */
} strip;

/* In f32, samples minus their mean: scores are needed up to a constant per anchor only (cpu_contrast.c). In bf16 the
 * means are not subtracted: rounding is larger than what cancels. */
static const void *samples_at(const gpu *g, const gpu_contrast *c, int64_t j)
{
    return g->T == CLOOB_F32 ? (const void *)(g->centred_b + j * g->d) : mat_at(g, c->b.data, j);
}

static cloob_status centre_samples(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c)
{
    if (g->T != CLOOB_F32) return CLOOB_OK;
    GPU_TRY("means", k_mean(g->stream, g->mean_b, c->b.data, c->b.n, g->d));
    return gpu_cuda(ctx, k_less_mean(g->stream, g->centred_b, c->b.data, g->mean_b, c->b.n, g->d), "means");
}

static strip strip_at(const gpu *g, const gpu_contrast *c, int64_t i, int64_t j)
{
    return (strip){ i,
                    j,
                    min64(g->tile, c->a.n - i),
                    min64(g->tile, c->b.n - j),
                    mat_at(g, c->a.data, i),
                    samples_at(g, c, j),
                    c->first + i - j };
}

static cloob_status scores(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, const strip *s)
{
    int64_t d = g->d;
    return gpu_gemm(ctx, g, false, true, s->m, s->n, d, c->inv_tau, s->a, d, s->b, d, 0, g->s, s->n);
}

static fused_call fused_of(const gpu *g, const gpu_contrast *c, const strip *s)
{
    return (fused_call){ .m = (int)s->m,
                         .n = (int)s->n,
                         .d = (int)g->d,
                         .a = s->a,
                         .b = s->b,
                         .scale = (float)c->inv_tau,
                         .own = s->own,
                         .top = g->top,
                         .sum = g->sum,
                         .pos = g->pos,
                         .partial = g->partial,
                         .e = g->e,
                         .lse = c->lse + s->i,
                         .weight = c->weight + s->i,
                         .N = (double)c->b.n };
}

static cloob_status add_tile(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, const strip *s)
{
    fused_call f = fused_of(g, c, s);
    if (g->fused) return gpu_cuda(ctx, fused_scores(g->stream, FUSED_LSE, &f), "log-sum-exp");
    CLOOB_TRY(scores(ctx, g, c, s));
    return gpu_cuda(ctx, k_lse_add(g->stream, g->top, g->sum, g->pos, g->s, s->m, s->n, s->own), "log-sum-exp");
}

cloob_status gpu_contrast_forward(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, double *total)
{
    CLOOB_TRY(centre_samples(ctx, g, c));
    for (int64_t i = 0; i < c->a.n; i += g->tile) {
        int64_t m = min64(g->tile, c->a.n - i);
        GPU_TRY("log-sum-exp", k_fill(g->stream, g->top, -__builtin_inff(), m));
        CLOOB_TRY(gpu_zero(ctx, g, g->sum, (size_t)m * sizeof *g->sum));
        for (int64_t j = 0; j < c->b.n; j += g->tile) {
            strip s = strip_at(g, c, i, j);
            CLOOB_TRY(add_tile(ctx, g, c, &s));
        }
        GPU_TRY("log-sum-exp", k_lse_finish(g->stream, c->lse + i, c->weight + i, g->value + i, g->top, g->sum, g->pos,
                                            m, c->leave_one_out));
    }
    return gpu_cuda(ctx, k_sum(g->stream, total, g->value, c->a.n), "log-sum-exp");
}

static cloob_status centre(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c)
{
    if (g->T != CLOOB_F32) return CLOOB_OK;
    GPU_TRY("means", k_mean(g->stream, g->mean_a, c->a.data, c->a.n, g->d));
    GPU_TRY("means", k_less_mean(g->stream, g->centred_a, c->a.data, g->mean_a, c->a.n, g->d));
    CLOOB_TRY(centre_samples(ctx, g, c));
    return gpu_zero(ctx, g, g->column, (size_t)c->b.n * sizeof *g->column);
}

static cloob_status dscore_tile(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, const strip *s)
{
    fused_call f = fused_of(g, c, s);
    if (g->fused) return gpu_cuda(ctx, fused_scores(g->stream, FUSED_DK, &f), "gradient of the contrast");
    CLOOB_TRY(scores(ctx, g, c, s));
    return gpu_cuda(ctx, k_dscore(g->stream, g->T, g->e, g->s, f.lse, f.weight, s->m, s->n, s->own, f.N),
                    "gradient of the contrast");
}

/* dA_i += dK B_j (into the panel);  dB_j += dK^T A_i */
static cloob_status tile_backward(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, const strip *s)
{
    int64_t d = g->d;
    bool f32 = g->T == CLOOB_F32;
    const void *a = f32 ? (const void *)(g->centred_a + s->i * d) : s->a;
    CLOOB_TRY(dscore_tile(ctx, g, c, s));
    if (f32) GPU_TRY("column sums", k_column_sums(g->stream, g->column + s->j, g->e, s->m, s->n));
    CLOOB_TRY(gpu_gemm(ctx, g, false, false, s->m, d, s->n, 1, g->e, s->n, s->b, d, s->j > 0, g->panel, d));
    return gpu_gemm(ctx, g, true, false, s->n, d, s->m, 1, g->e, s->n, a, d, 1, c->db + s->j * d, d);
}

static cloob_status finish_panel(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c, int64_t i, int64_t m)
{
    void *a = (void *)(uintptr_t)mat_at(g, c->a.data, i);
    const void *low = c->low ? mat_at(g, c->low, i) : NULL;
    if (c->unit_length)
        GPU_TRY("unit length",
                k_unit_backward(g->stream, g->T, a, low, g->panel, c->unit_length + i, g->dots, m, g->d));
    else
        GPU_TRY("gradient of anchors", k_add_rows(g->stream, g->T, c->da + i * g->d, g->panel, 1, a, g->dots, m, g->d));
    return gpu_cuda(ctx, k_sum(g->stream, &g->total[GPU_DINV_TAU], g->dots, m), "sums");
}

cloob_status gpu_contrast_backward(cloob_ctx *ctx, const gpu *g, const gpu_contrast *c)
{
    CLOOB_TRY(centre(ctx, g, c));
    for (int64_t i = 0; i < c->a.n; i += g->tile) {
        for (int64_t j = 0; j < c->b.n; j += g->tile) {
            strip s = strip_at(g, c, i, j);
            CLOOB_TRY(tile_backward(ctx, g, c, &s));
        }
        CLOOB_TRY(finish_panel(ctx, g, c, i, min64(g->tile, c->a.n - i)));
    }
    if (g->T != CLOOB_F32) return CLOOB_OK;
    return gpu_cuda(ctx, k_add_outer(g->stream, c->db, g->column, g->mean_a, c->b.n, g->d), "column sums");
}
