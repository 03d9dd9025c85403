/* Tiles of scores on the GPU: a GEMM with f32 results and a pass over them, or both in one kernel (fused.cu); and
 * retrieval, which loops over tiles. */
#include "core/arith.h"
#include "loss/cuda/fused.h"
#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"
#include "tensor/cuda/libraries.h"

const void *mat_at(const gpu *g, const void *data, int64_t first)
{
    return (const char *)data + (size_t)(first * g->d) * g->size;
}

cloob_status gpu_zero(cloob_ctx *ctx, const gpu *g, void *p, size_t bytes)
{
    return bytes ? gpu_cuda(ctx, cudaMemsetAsync(p, 0, bytes, g->stream), "clearing") : CLOOB_OK;
}

cloob_status gpu_gemm(cloob_ctx *ctx, const gpu *g, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha,
                      const void *A, int64_t lda, const void *B, int64_t ldb, double beta, float *C, int64_t ldc)
{
    cudaDataType_t type = g->T == CLOOB_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    float al = (float)alpha, be = (float)beta;
    /* Row-major C is column-major C^T = op(B)^T op(A)^T. */
    cublasStatus_t s = cuda_lib.cublasGemmEx(g->blas, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                                             (int)N, (int)M, (int)K, &al, B, type, (int)ldb, A, type, (int)lda, &be, C,
                                             CUDA_R_32F, (int)ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (s == CUBLAS_STATUS_SUCCESS) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_DEVICE, "a GEMM of %lld x %lld x %lld on the GPU failed: %s", (long long)M,
                    (long long)N, (long long)K, cuda_lib.cublasGetStatusString(s));
}

static cloob_status scores(cloob_ctx *ctx, const gpu *g, const void *a, const void *b, int64_t m, int64_t n,
                           double alpha)
{
    return gpu_gemm(ctx, g, false, true, m, n, g->d, alpha, a, g->d, b, g->d, 0, g->s, n);
}

/* r += e w, or e^T w: what is retrieved. */
static cloob_status sums(cloob_ctx *ctx, const gpu *g, bool transpose, int64_t m, int64_t n, const void *w, float *r)
{
    int64_t d = g->d;
    return gpu_gemm(ctx, g, transpose, false, transpose ? n : m, d, transpose ? m : n, 1, g->e, n, w, d, 1, r, d);
}

cloob_status tile_exp(cloob_ctx *ctx, const gpu *g, const void *a, const void *b, int64_t m, int64_t n, double beta,
                      const float *row_shift)
{
    fused_call c = { .m = (int)m, .n = (int)n, .d = (int)g->d, .a = a, .b = b, .scale = (float)beta, .e = g->e };
    if (g->fused && !row_shift) return gpu_cuda(ctx, fused_scores(g->stream, FUSED_EXP, &c), "retrieval scores");
    CLOOB_TRY(scores(ctx, g, a, b, m, n, beta));
    return gpu_cuda(ctx, k_exp(g->stream, g->T, g->e, NULL, g->s, NULL, m, n, (float)beta, row_shift, 0),
                    "retrieval scores");
}

cloob_status tile_dscore(cloob_ctx *ctx, const gpu *g, const void *a, const void *b, const void *dra, const void *drb,
                         int64_t m, int64_t n, double beta, const float *row_shift, double factor)
{
    int64_t d = g->d;
    fused_call c = { .m = (int)m, .n = (int)n, .d = (int)d, .a = a, .b = b, .da = dra, .db = drb };
    c.scale = (float)beta, c.factor = (float)factor, c.e = g->e, c.ds = g->ds;
    if (g->fused && !row_shift && drb)
        return gpu_cuda(ctx, fused_scores(g->stream, FUSED_DSCORE, &c), "gradients of scores");
    CLOOB_TRY(scores(ctx, g, a, b, m, n, beta));
    CLOOB_TRY(gpu_gemm(ctx, g, false, true, m, n, d, 1, dra, d, b, d, 0, g->t, n));
    if (drb) CLOOB_TRY(gpu_gemm(ctx, g, false, true, m, n, d, 1, a, d, drb, d, 1, g->t, n));
    return gpu_cuda(ctx, k_exp(g->stream, g->T, g->e, g->ds, g->s, g->t, m, n, (float)beta, row_shift, (float)factor),
                    "gradients of scores");
}

/* ---- retrieval with shared scores ---- */

typedef struct block {
    int64_t i, j, m, n;
    const void *a, *b;
    bool both;
} block;

/* ra_i += E b_j;  rb_j += E^T a_i */
static cloob_status block_forward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p, const block *b)
{
    float *rb = p->same ? p->ra : p->rb;
    CLOOB_TRY(tile_exp(ctx, g, b->a, b->b, b->m, b->n, p->beta, NULL));
    CLOOB_TRY(sums(ctx, g, false, b->m, b->n, b->b, p->ra + b->i * g->d));
    return b->both ? sums(ctx, g, true, b->m, b->n, b->a, rb + b->j * g->d) : CLOOB_OK;
}

/* T = dra_i b_j^T + a_i drb_j^T,  dS = beta E o T
 * da_i += dS b_j + E drb_j;  db_j += dS^T a_i + E^T dra_i */
static cloob_status block_backward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p, const block *b)
{
    int64_t d = g->d, m = b->m, n = b->n;
    const void *dra = mat_at(g, p->dra, b->i), *drb = mat_at(g, p->same ? p->dra : p->drb, b->j);
    float *da = p->da + b->i * d, *db = (p->same ? p->da : p->db) + b->j * d;
    CLOOB_TRY(tile_dscore(ctx, g, b->a, b->b, dra, drb, m, n, p->beta, NULL, p->beta));
    CLOOB_TRY(gpu_gemm(ctx, g, false, false, m, d, n, 1, g->ds, n, b->b, d, 1, da, d));
    CLOOB_TRY(gpu_gemm(ctx, g, false, false, m, d, n, 1, g->e, n, drb, d, 1, da, d));
    if (!b->both) return CLOOB_OK;
    CLOOB_TRY(gpu_gemm(ctx, g, true, false, n, d, m, 1, g->ds, n, b->a, d, 1, db, d));
    return gpu_gemm(ctx, g, true, false, n, d, m, 1, g->e, n, dra, d, 1, db, d);
}

static cloob_status every_block(cloob_ctx *ctx, const gpu *g, const gpu_pair *p,
                                cloob_status (*visit)(cloob_ctx *, const gpu *, const gpu_pair *, const block *))
{
    block b;
    for (b.i = 0; b.i < p->a.n; b.i += g->tile) {
        b.m = min64(g->tile, p->a.n - b.i);
        b.a = mat_at(g, p->a.data, b.i);
        for (b.j = p->same ? b.i : 0; b.j < p->b.n; b.j += g->tile) {
            b.n = min64(g->tile, p->b.n - b.j);
            b.b = mat_at(g, p->b.data, b.j);
            b.both = !p->same || b.j != b.i;
            CLOOB_TRY(visit(ctx, g, p, &b));
        }
    }
    return CLOOB_OK;
}

cloob_status gpu_pair_forward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p)
{
    return every_block(ctx, g, p, block_forward);
}

cloob_status gpu_pair_backward(cloob_ctx *ctx, const gpu *g, const gpu_pair *p)
{
    return every_block(ctx, g, p, block_backward);
}

/* ---- retrieval of any states from any stored set: the maxima first, then the sums ---- */

static cloob_status search_maxima(cloob_ctx *ctx, const gpu *g, const gpu_search *s, int64_t i, int64_t m)
{
    for (int64_t j = 0; j < s->stored.n; j += g->tile) {
        int64_t n = min64(g->tile, s->stored.n - j);
        const void *a = mat_at(g, s->states.data, i), *w = mat_at(g, s->stored.data, j);
        CLOOB_TRY(scores(ctx, g, a, w, m, n, s->beta));
        GPU_TRY("maxima of scores", k_row_max(g->stream, s->shift + i, g->s, m, n));
    }
    return CLOOB_OK;
}

cloob_status gpu_search_forward(cloob_ctx *ctx, const gpu *g, const gpu_search *s)
{
    CLOOB_TRY(gpu_zero(ctx, g, s->r, (size_t)(s->states.n * g->d) * sizeof(float)));
    GPU_TRY("maxima of scores", k_fill(g->stream, s->shift, -__builtin_inff(), s->states.n));
    for (int64_t i = 0; i < s->states.n; i += g->tile) {
        int64_t m = min64(g->tile, s->states.n - i);
        CLOOB_TRY(search_maxima(ctx, g, s, i, m));
        for (int64_t j = 0; j < s->stored.n; j += g->tile) {
            int64_t n = min64(g->tile, s->stored.n - j);
            const void *w = mat_at(g, s->stored.data, j);
            CLOOB_TRY(tile_exp(ctx, g, mat_at(g, s->states.data, i), w, m, n, s->beta, s->shift + i));
            CLOOB_TRY(sums(ctx, g, false, m, n, w, s->r + i * g->d));
        }
    }
    return CLOOB_OK;
}

/* dS = E o (dR_i W_j^T);  G_i += dS W_j;  dW_j += E^T dR_i + beta dS^T a_i */
static cloob_status search_tile(cloob_ctx *ctx, const gpu *g, const gpu_search *s, int64_t i, int64_t j, int64_t m,
                                int64_t n)
{
    int64_t d = g->d;
    const void *a = mat_at(g, s->states.data, i), *w = mat_at(g, s->stored.data, j), *dr = mat_at(g, s->dr, i);
    CLOOB_TRY(tile_dscore(ctx, g, a, w, dr, NULL, m, n, s->beta, s->shift + i, 1));
    CLOOB_TRY(gpu_gemm(ctx, g, false, false, m, d, n, 1, g->ds, n, w, d, j > 0, g->panel, d));
    if (!s->dstored) return CLOOB_OK;
    CLOOB_TRY(gpu_gemm(ctx, g, true, false, n, d, m, 1, g->e, n, dr, d, 1, s->dstored + j * d, d));
    return gpu_gemm(ctx, g, true, false, n, d, m, s->beta, g->ds, n, a, d, 1, s->dstored + j * d, d);
}

cloob_status gpu_search_backward(cloob_ctx *ctx, const gpu *g, const gpu_search *s)
{
    for (int64_t i = 0; i < s->states.n; i += g->tile) {
        int64_t m = min64(g->tile, s->states.n - i);
        for (int64_t j = 0; j < s->stored.n; j += g->tile)
            CLOOB_TRY(search_tile(ctx, g, s, i, j, m, min64(g->tile, s->stored.n - j)));
        GPU_TRY("gradient of states", k_add_rows(g->stream, g->T, s->dstates + i * g->d, g->panel, (float)s->beta,
                                                 mat_at(g, s->states.data, i), g->dots, m, g->d));
        GPU_TRY("gradient of states", k_sum(g->stream, &g->total[GPU_DBETA], g->dots, m));
    }
    return CLOOB_OK;
}
