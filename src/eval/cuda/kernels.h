/* Launchers of evaluation's kernels. All queue on the stream and return the launch's status. Matrices are
 * row-major; ld is the distance between rows. */
#ifndef EVAL_CUDA_KERNELS_H
#define EVAL_CUDA_KERNELS_H

#include "tensor/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the probe ----------------------------------------------------------------------------------- */

/* softmax_loss_f on the device: z (n, C) logits without bias become p - onehot(y); loss, uncertain: (n). */
cloob_status eval_softmax_loss(cloob_ctx *ctx, cudaStream_t stream, float *z, int64_t ld, const float *bias,
                               double *loss, float *uncertain, const int32_t *y, int64_t n, int64_t C);

enum { COLUMN_SLICES = 64 };
/* part (COLUMN_SLICES, C) += sums over a share of the rows of z (n, C) each. */
cloob_status eval_column_sums(cloob_ctx *ctx, cudaStream_t stream, double *part, const float *z, int64_t ld, int64_t n,
                              int64_t C);

/* *to = sum of n numbers, in one order */
cloob_status eval_sum(cloob_ctx *ctx, cudaStream_t stream, double *to, const double *from, int64_t n);

/* out (n, ldo): row s is sqrt(u[s u_step]) times (x[s x_step], 1), zeros behind. x: (.., D) */
cloob_status eval_weighted_rows(cloob_ctx *ctx, cudaStream_t stream, float *out, int64_t ldo, const float *x,
                                int64_t ldx, int64_t x_step, const float *u, int64_t u_step, int64_t n, int64_t D);

/* A (n, n) = -A^-1 of a symmetric positive definite A, by n sweeps; column: (n) of scratch. *bad becomes 1
 * where a pivot is not positive. */
cloob_status eval_sweep(cloob_ctx *ctx, cudaStream_t stream, double *A, double *column, int *bad, int64_t n);

/* out (n, ldo) = factor A (n, n) in float */
cloob_status eval_narrow(cloob_ctx *ctx, cudaStream_t stream, float *out, int64_t ldo, const double *A, double factor,
                         int64_t n);

/* ---- retrieval ----------------------------------------------------------------------------------- */

/* A tile of similarities and what is counted from it; retrieval.h has the meaning. */
typedef struct rank_tile {
    const float *s; /* (ni, nj) */
    int64_t ld;
    const float *a, *b; /* (ni, D), (nj, D): the rows behind the tile, ldx apart */
    int64_t ldx, D;
    int64_t i0, ni, j0, nj; /* query k is row i0 + k and asks for candidate (i0 + k) step */
    int64_t step;
    const double *matched;        /* of all queries */
    unsigned long long *above[2]; /* rows ask, columns ask */
    unsigned char *tied[2];
} rank_tile;

cloob_status eval_rank_rows(cloob_ctx *ctx, cudaStream_t stream, const rank_tile *t);
cloob_status eval_rank_columns(cloob_ctx *ctx, cudaStream_t stream, const rank_tile *t); /* step 1 */

#ifdef __cplusplus
}
#endif
#endif
