/* A GEMM of our own for the ops that are a GEMM and a pass over its result: the pass happens
 * while the result is still in registers. bf16 with float sums, on Hopper (wgmma); on other GPUs,
 * for other types and odd widths the two ops run one after the other (fused_gemm.c). */
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

enum {
    FUSED_GEMM_NARROW = 3, /* two teams of 64 columns: room for more of what an epilogue reads */
    REDUCE_ROOMS = 4
};

/* c (m, n) = a (m, k) b^T, b (n, k). Everything of m rows lies packed in bf16. */
typedef struct fused_gemm {
    gemm_epilogue epilogue;
    int teams; /* of warps in a block: 4 hide an epilogue better, 2 multiply better, FUSED_GEMM_NARROW has more of what
                * an epilogue reads on its way; found by timing */
    int64_t m, n, k;
    bool dw;      /* EPILOGUE_REDUCE: also a^T mask, the gradient of b's transpose; 2 teams, k at most 256 */
    int64_t line; /* EPILOGUE_REDUCE: other is (m / 4, n), what the backward pass of a 2 x 2 pool spreads over m rows,
                   * positions of images so wide, both sides even; 0: other is (m, n) */
    bool pools;   /* with line: also pooled, the averages of mask over 2 x 2 positions */
    bool applies; /* with dw: a is made of dy and x1 by batch norm's backward apply with relu: with g = dy where
                   * (x1 - mean1) slope + bias1 > 0, else 0, it is slope (g - mean(g) - xhat mean(g xhat)), where slope
                   * = rstd1 gain1 and the means come from sums1; no a is read or written */
    int room;     /* with applies: how shared memory is laid out, below REDUCE_ROOMS; found by timing */
    const void *a, *b, *x, *other, *mask;
    const void *dy, *x1;                        /* (m, k) */
    const float *mean1, *rstd1, *gain1, *bias1; /* (k) */
    const float *sums1;                         /* (2, k): of g, and of g xhat; over `count` rows */
    float count;
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

/* Theirs with `applies` (fused/reduce_gemm.cu). */
int reduce_gemm_parts(const fused_gemm *p, int sms);
cudaError_t reduce_gemm_run(cudaStream_t stream, const fused_gemm *p, int sms);

/* to (cols, rows) = from (rows, cols) transposed, bf16. */
cudaError_t transpose_bf16(cudaStream_t stream, void *to, const void *from, int64_t rows, int64_t cols);

#ifdef __cplusplus
}
#endif
#endif
