/* A GEMM of a transformer's MLP with the activation in its epilogue (Hopper). Forward: x = a b^T and y = act(x + bias).
 * Backward: y = (a b) act'(x + bias), the column sums of y, and act(x + bias) if the graph recomputes it. */
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
    const void *b;    /* bf16; forward (n, k), backward (k, n), the weight as it is stored */
    const void *bias; /* (n) bf16; NULL: none */
    void *x;          /* (m, n) bf16: written forward (NULL: not written), read backward */
    void *y;          /* (m, n) bf16 */
    void *recomputed; /* backward: (m, n) bf16, act(x + bias); NULL: not written */
    float *partial;   /* backward: (parts, n) F32, sums of y over the rows of each part, added in order; or NULL */
} act_gemm;

/* Rows of partial; 0: unsupported shape. */
int act_gemm_parts(const act_gemm *g, int sms);
int act_gemm_run(void *stream, const act_gemm *g, int sms); /* a cudaError_t */

#ifdef __cplusplus
}
#endif
#endif
