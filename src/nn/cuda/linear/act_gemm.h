/* A GEMM of a transformer's MLP with its activation inside (Hopper): forward x = a b^T and y = act(x + bias); backward
 * y = (a b) act'(x + bias), with the sums of y's columns, and act(x + bias) once more where the graph recomputes it. */
#ifndef NN_CUDA_LINEAR_ACT_GEMM_H
#define NN_CUDA_LINEAR_ACT_GEMM_H

#include "nn/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct act_gemm {
    int64_t m, n, k; /* rows (any number), columns of the result (a multiple of 256), depth (a multiple of 64) */
    bool backward;
    int act;          /* as in op_attr */
    const void *a;    /* (m, k) bf16 */
    const void *b;    /* bf16; forward (n, k), backward (k, n), the last contiguous: the weight as it lies */
    const void *bias; /* (n) bf16; NULL: none */
    void *x;          /* (m, n) bf16: written forward (NULL: not wanted), read backward */
    void *y;          /* (m, n) bf16 */
    void *recomputed; /* backward: (m, n) bf16, act(x + bias); NULL: not wanted */
    float *partial;   /* backward: (parts, n) F32, sums of y over the rows of each part, to be added in order; NULL */
} act_gemm;

/* Rows of partial; 0: this shape cannot be done. */
int act_gemm_parts(const act_gemm *g, int sms);
int act_gemm_run(void *stream, const act_gemm *g, int sms); /* a cudaError_t */

#ifdef __cplusplus
}
#endif
#endif
