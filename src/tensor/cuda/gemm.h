/* GEMMs on the GPU by cuBLASLt, with the algorithm chosen by timing (tune.h).
 *
 *     gemm_shape g = { .m = R, .n = O, .k = K, .tb = true, .in = CLOOB_BF16, .out = CLOOB_BF16, .alpha = 1 };
 *     CLOOB_TRY(gemm_plan_create(ctx, dev, &g, &plan));
 *     scratch needs gemm_plan_workspace(plan) bytes
 *     CLOOB_TRY(gemm_run(ctx, dev, plan, stream, y, x, w, NULL, NULL, scratch));
 */
#ifndef TENSOR_CUDA_GEMM_H
#define TENSOR_CUDA_GEMM_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the epilogue does with the result. Vectors have the type of D. */
typedef enum gemm_extra {
    GEMM_PLAIN,
    GEMM_RELU,
    GEMM_BIAS,      /* + bias (n) */
    GEMM_BIAS_RELU, /* and clamped at 0 */
    GEMM_SUM_A,     /* writes the sums of op(A) over k, (m), to the vector */
    GEMM_SUM_B      /* writes the sums of op(B) over k, (n), to the vector */
} gemm_extra;

/* D (m, n) = alpha op(A) (m, k) op(B) (k, n) [+ C]; everything row-major, C laid out like D. */
typedef struct gemm_shape {
    int64_t m, n, k;
    bool ta, tb;                           /* A is stored (k, m); B is stored (n, k) */
    int64_t lda, ldb, ldd;                 /* elements from stored row to row; 0: packed */
    int64_t batch, step_a, step_b, step_d; /* products and elements from one to the next; batch 0: one */
    cloob_dtype in, out;                   /* F32 or BF16; F32 multiplications never round to tf32 */
    /* A and B are e4m3, bytes (m, k) and (n, k), whatever in, ta and tb are; m, n, k are multiples of 16, the result is
     * bf16. Every row of A (m) and of B (n) is multiplied by a float in device memory, see gemm_plan_scales. */
    bool fp8;
    bool add; /* + C */
    gemm_extra extra;
    float alpha;
} gemm_shape;

typedef struct gemm_plan gemm_plan;

/* Times candidates on buffers of its own unless the choice is cached. GEMM_SUM_* may be refused: then CLOOB_OK
 * is returned with *out NULL, and the caller computes the sums; so may fp8. Anything else that the library has no
 * algorithm for fails. */
cloob_status gemm_plan_create(cloob_ctx *ctx, device *d, const gemm_shape *shape, gemm_plan **out);
void gemm_plan_destroy(gemm_plan *p); /* NULL is fine */

/* Sets the addresses of the factors' scales; fp8 only. */
void gemm_plan_scales(gemm_plan *p, const float *a, const float *b);

size_t gemm_plan_workspace(const gemm_plan *p);
float gemm_plan_ms(const gemm_plan *p); /* as timed */

/* C is read when shape.add; vector is bias or sums by shape.extra. C may be D. */
cloob_status gemm_run(cloob_ctx *ctx, device *d, const gemm_plan *p, void *stream, void *D, const void *A,
                      const void *B, const void *C, void *vector, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
