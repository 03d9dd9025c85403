/* A GEMM and the pass over its result in one: the pass is computed while the result is still in registers. bf16 with
 * float sums, on Hopper (wgmma); on other GPUs, for other types and odd widths the calls run one after the other
 * (fused_gemm.c). */
#ifndef NN_CUDA_FUSED_GEMM_KERNELS_H
#define NN_CUDA_FUSED_GEMM_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gemm_epilogue {
    EPILOGUE_STATS, /* y = c; sums of y - column and of its square */
    EPILOGUE_REDUCE /* y = (c + other) where mask > 0, else 0; sums of y and of y (x - column) */
} gemm_epilogue;

enum { FUSED_GEMM_NARROW = 3 }; /* two teams of 64 columns: room for more of what an epilogue reads */

/* c (m, n) = a (m, k) b^T, b (n, k). Everything of m rows is packed bf16. */
typedef struct fused_gemm {
    gemm_epilogue epilogue;
    int teams; /* of warps in a block: 4 hide an epilogue better, 2 multiply better, FUSED_GEMM_NARROW has more of what
                * an epilogue reads on its way; found by timing */
    int64_t m, n, k;
    bool dw;      /* EPILOGUE_REDUCE: also a^T mask, the gradient of b's transpose; 2 teams, k at most 256 */
    int64_t line; /* EPILOGUE_REDUCE: other is (m / 4, n), what the backward pass of a 2 x 2 pool spreads over m rows,
                   * positions of images so wide, both sides even; 0: other is (m, n) */
    bool pools;   /* with line: also pooled, the averages of mask over 2 x 2 positions */
    const void *a, *b, *x, *other, *mask;
    const float *column; /* (n) */
    void *y, *pooled;
    float *partial;    /* (parts, 2, n), to be added in this order */
    float *dw_partial; /* (parts, k, n), likewise */
} fused_gemm;

/* Whether there is a kernel for the sizes, on Hopper; in a build without its kernels: no. */
bool fused_gemm_takes(int64_t n, int64_t k);
/* How many partial sums a GEMM of this size leaves, on so many multiprocessors; 0: it cannot be done with
 * these teams. */
int fused_gemm_parts(const fused_gemm *p, int sms);
cudaError_t fused_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms);

/* to (cols, rows) = from (rows, cols) transposed, bf16. */
cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif
#endif
