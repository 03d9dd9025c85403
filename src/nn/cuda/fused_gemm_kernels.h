/* A GEMM with an epilogue that processes the result while it is in registers. bf16 with float sums, on Hopper (wgmma);
 * on other GPUs, for other types and odd widths the calls run one after the other (fused_gemm.c). */
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

enum { FUSED_GEMM_NARROW = 3 }; /* two consumers of 64 columns: more shared memory for epilogue inputs */

/* c (m, n) = a (m, k) b^T, b (n, k). Tensors of m rows are contiguous bf16. */
typedef struct fused_gemm {
    gemm_epilogue epilogue;
    int consumers; /* consumer warpgroups per block: 4 hide an epilogue better, 2 multiply faster, FUSED_GEMM_NARROW
                    * prefetches more epilogue inputs; chosen by timing */
    int64_t m, n, k;
    bool dw; /* EPILOGUE_REDUCE: also a^T mask, the gradient of b's transpose; 2 consumers, k at most 256 */
    /* EPILOGUE_REDUCE: width of the images whose positions are the rows (height and width are even); other is (m /
     * 4, n), the gradient of their 2 x 2 average pool. 0: other is (m, n) */
    int64_t line;
    bool pools; /* with line: also pooled, the 2 x 2 average pool of mask */
    const void *a, *b, *x, *other, *mask;
    const float *column; /* (n) */
    void *y, *pooled;
    float *partial;    /* (parts, 2, n): partial sums, added in this order */
    float *dw_partial; /* (parts, k, n), likewise */
} fused_gemm;

/* Whether a kernel supports the sizes; false in a build without Hopper kernels. */
bool fused_gemm_takes(int64_t n, int64_t k);
/* Number of partial sums on `sms` multiprocessors; 0: not supported with this number of consumers. */
int fused_gemm_parts(const fused_gemm *p, int sms);
cudaError_t fused_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms);

/* to (cols, rows) = from (rows, cols) transposed, bf16. */
cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif
#endif
