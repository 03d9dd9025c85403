/* GEMMs of bf16 factors with float sums, row-major, over the context's threads.
 *
 *     C = epilogue(op(A) op(B)),   op(A): (M, K), op(B): (K, N), C: (M, N)
 *
 * A factor is a view: a matrix in memory, or the patches of an image as rows of a matrix, which are gathered while they
 * are packed, so that a convolution is a GEMM and no patch matrix is stored. Factors are packed into tiles of one
 * format (bgemm_kernel.h) that every kernel reads.
 *
 * Each element of C is summed along K in one order that depends on the sizes and the kernel alone, so the result does
 * not depend on the number of threads. */
#ifndef TENSOR_CPU_BGEMM_H
#define TENSOR_CPU_BGEMM_H

#include "core/ctx.h"
#include "tensor/cpu/bgemm_kernel.h"

/* Images (n, H, W, pixel) whose first C channels are seen by a kernel of k x k from a grid of Gh x Gw positions. Row
 * (n, i, j), column (u, v, c) of the matrix is channel c at ((i mul + u sign + off) / div, (j mul + v sign + off) /
 * div), and 0 where that is outside or the division leaves a rest. Forward: mul = stride, sign = 1, off = -pad, div =
 * 1; for the gradient of the input: mul = 1, sign = -1, off = pad, div = stride. */
typedef struct bgemm_patches {
    int64_t H, W, pixel, C, Gh, Gw, k, mul, sign, off, div;
} bgemm_patches;

/* Row r of a plain matrix starts at r ld, or with inner > 0 at (r % inner) ld + (r / inner) outer. */
typedef struct bgemm_view {
    const uint16_t *data;
    int64_t rows, cols, ld, inner, outer;
    const bgemm_patches *patches; /* NULL: a plain matrix */
} bgemm_view;

static inline bgemm_view bgemm_matrix(const void *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (bgemm_view){ (const uint16_t *)data, rows, cols, ld, 0, 0, 0 };
}

typedef struct bgemm_call {
    int64_t M, N, K;
    bgemm_view a, b; /* a is (M, K), or (K, M) with ta; b is (K, N), or (N, K) with tb */
    bool ta, tb;
    bool packed; /* op(B) comes from b_packed, bgemm_pack_b's output; b is then not read */
    const uint16_t *b_packed;
    void *c; /* bf16, or float with c_float; must not overlap the factors */
    bool c_float;
    int64_t ldc;
    /* c = alpha sum + bias[n] + res[m, n], then relu. res is bf16, has ldc too and may be c. */
    float alpha; /* 0 counts as 1 */
    const float *bias;
    const uint16_t *res;
    bool relu;
} bgemm_call;

/* Bytes of scratch that bgemm_run needs; only sizes and kinds of the call are read. */
size_t bgemm_scratch(const cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *call);
void bgemm_run(cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *call, void *scratch);

/* The whole of op(B) in tiles, for a factor that is used more than once. out is 64-aligned. */
size_t bgemm_packed_bytes(int64_t K, int64_t N);
void bgemm_pack_b(cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *call, uint16_t *out);

#endif
