/* Scores on Hopper's tensor cores with their exponentials computed on chip: the product a b^T is never written to
 * memory. bf16 only. */
#ifndef LOSS_CUDA_FUSED_H
#define LOSS_CUDA_FUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether rows of this width are supported on the current device: a multiple of 64, on Hopper. */
bool fused_takes(int64_t d);

typedef enum fused_kind {
    FUSED_EXP,    /* e = exp(scale (a b^T - 1)) */
    FUSED_DSCORE, /* e as above; ds = factor e o (da b^T + a db^T) */
    FUSED_LSE,    /* one more tile of scores scale a b^T for the log-sum-exp of each row, see k_lse_add */
    FUSED_DK      /* e = weight / N (exp(scale a b^T - lse) off the positive, -1 at it), see k_dscore */
} fused_kind;

/* a, b, da, db: rows of d, 16-byte aligned; e and ds (m, n) bf16 with n a multiple of 8. */
typedef struct fused_call {
    int m, n, d; /* rows of a, rows of b, width */
    const void *a, *b, *da, *db;
    float scale, factor; /* beta or inv_tau; DSCORE */
    int64_t own;         /* LSE, DK: column of row 0's positive */
    void *e, *ds;
    float *top, *pos; /* LSE: (m) */
    double *sum;
    void *partial;              /* LSE: scratch of fused_partial_bytes */
    const double *lse, *weight; /* DK: (m) */
    double N;
} fused_call;

/* Starts the kernels on the stream. */
cudaError_t fused_scores(cudaStream_t stream, fused_kind kind, const fused_call *c);
size_t fused_partial_bytes(int64_t tile);

#ifdef __cplusplus
}
#endif
#endif
