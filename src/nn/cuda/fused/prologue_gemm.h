/* A 1 x 1 convolution, as a GEMM, that makes its left factor itself: batch norm's apply or backward apply is computed
 * while the rows are in shared memory, so that the GEMM does not read them again. The factor is also written out where
 * another call reads it. bf16 with float sums, on Hopper (wgmma); elsewhere the calls run one after the other
 * (prologue_ops.c). */
#ifndef NN_CUDA_FUSED_PROLOGUE_GEMM_H
#define NN_CUDA_FUSED_PROLOGUE_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gemm_prologue {
    PROLOGUE_APPLY, /* a = relu((x - mean) rstd gain + bias) */
    PROLOGUE_ADD,   /* a = relu((x - mean) rstd gain + bias + other) */
    PROLOGUE_BOTH,  /* the same with other's batch norm: other has mean2, rstd2, gain2, bias2 */
    PROLOGUE_DX     /* a = gain rstd (other - mean(other) - xhat mean(other xhat)), the means from `sums` */
} gemm_prologue;

enum { PROLOGUE_VARIANTS = 6, REDUCED_PARTS = 2 };

/* y (m, n) = a b^T, a (m, k) from x and other, b (n, k). Everything of m rows is packed bf16. */
typedef struct prologue_gemm {
    gemm_prologue prologue;
    bool stats;  /* also sums of y - pivot and of its square over rows */
    bool dw;     /* PROLOGUE_DX: also the weight's gradient, a^T a2 with a2 = relu(batch norm of x2) by mean2, rstd2,
                  * gain2, bias2 (n); k at most 512, n at most 128, or 320 and 80; no side */
    bool plain;  /* with dw: a2 is x2 itself */
    bool reduce; /* with dw, not plain: also the sums of y where a2 > 0, and of their products with x2 - mean2, over
                  * rows */
    bool pools;  /* PROLOGUE_ADD with side: also a behind a 2 x 2 average pool */
    int variant; /* tile shape, whether b stays in shared memory, room for results; found by timing */
    int64_t m, n, k;
    const void *x, *other, *b, *x2;         /* x2 (m, n) */
    const float *mean, *rstd, *gain, *bias; /* (k) */
    const float *mean2, *rstd2, *gain2, *bias2;
    const float *sums; /* (2, k): of other, and of other xhat; over `count` rows */
    float count;
    const float *pivot; /* (n) */
    void *side;         /* (m, k): a; NULL: not wanted */
    void *pooled;       /* with pools: (m / 4, k) */
    int64_t line;       /* with pools: rows are positions of images, so many in a line, lines even in number */
    void *y;
    float *partial; /* (parts, 2, n), with dw (parts, k, n), to be added in this order */
    float *reduced; /* with reduce: (REDUCED_PARTS parts, 2, n), likewise */
} prologue_gemm;

/* How many partial sums it leaves, on so many multiprocessors; 0: this variant cannot do these sizes, or the build has
 * no kernels for Hopper. */
int prologue_gemm_parts(const prologue_gemm *p, int sms);
cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms);

/* Theirs with dw (gradients_gemm.cu). */
int gradients_gemm_parts(const prologue_gemm *p, int sms);
cudaError_t gradients_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms);

#ifdef __cplusplus
}
#endif
#endif
