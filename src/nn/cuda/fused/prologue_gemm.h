/* A 1 x 1 convolution as a GEMM whose operand a is computed in shared memory: batch norm's apply or backward apply runs
 * on the rows between copy and multiplication, so that they are not read twice. a is also stored if another call reads
 * it. bf16 with float sums, on Hopper (wgmma); on other GPUs the calls run one after the other (prologue_ops.c). */
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
    PROLOGUE_BOTH,  /* the same with a batch norm of other, by mean2, rstd2, gain2, bias2 */
    PROLOGUE_DX     /* a = gain rstd (other - mean(other) - xhat mean(other xhat)), means from `sums` */
} gemm_prologue;

enum { PROLOGUE_VARIANTS = 6 };

/* y (m, n) = a b^T; a (m, k) is computed from x and other; b (n, k). Tensors of m rows are contiguous bf16. */
typedef struct prologue_gemm {
    gemm_prologue prologue;
    bool stats;  /* also the sums of y - pivot and of its square over rows */
    bool dw;     /* PROLOGUE_DX: also the weight's gradient, a^T a2 with a2 = relu(batch norm of x2) by mean2, rstd2,
                  * gain2, bias2 (n); k at most 512, n at most 128, or 320 and 80; no side */
    bool plain;  /* with dw: a2 is x2 itself */
    int variant; /* tile shape, resident b, number of output buffers; chosen by timing */
    int64_t m, n, k;
    const void *x, *other, *b, *x2;         /* x2 (m, n) */
    const float *mean, *rstd, *gain, *bias; /* (k) */
    const float *mean2, *rstd2, *gain2, *bias2;
    const float *sums; /* (2, k): sums of other and of other xhat over `count` rows */
    float count;
    const float *pivot; /* (n) */
    void *side;         /* (m, k): receives a; NULL: not stored */
    void *y;
    float *partial; /* (parts, 2, n), with dw (parts, k, n): partial sums, added in this order */
} prologue_gemm;

/* Number of partial sums on `sms` multiprocessors; 0: the variant does not support these sizes, or the build has no
 * Hopper kernels. */
int prologue_gemm_parts(const prologue_gemm *p, int sms);
cudaError_t prologue_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms);

/* The same with dw (gradients_gemm.cu). */
int gradients_gemm_parts(const prologue_gemm *p, int sms);
cudaError_t gradients_gemm_run(cudaStream_t stream, const prologue_gemm *p, int sms);

#ifdef __cplusplus
}
#endif
#endif
