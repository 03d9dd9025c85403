/* Launchers of the objective's row and tile kernels. All launch on `stream` and return the launch's error. T
 * is the type of embeddings and of what products read (F32 or BF16); sums, scores and gradients of sums are
 * f32. Matrices are row-major; a tile of scores is (m, n) with distance ld between rows. */
#ifndef LOSS_CUDA_KERNELS_H
#define LOSS_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "cloob/types.h"
#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bad = the least row of x (n, d) whose length is further than tolerance from 1, or holds NaN; stays as it
 * was when there is none (begin with a large number). length gets each row's length. */
cudaError_t k_check_rows(cudaStream_t stream, cloob_dtype T, const void *x, int64_t n, int64_t d, double tolerance,
                         float *length, unsigned long long *bad);

/* p (T) = r / |r| per row, length = |r|; low (T) = r / |r| - p, unless it is NULL; bad as above for rows of
 * length 0. */
cudaError_t k_unit_forward(cudaStream_t stream, cloob_dtype T, void *p, void *low, float *length, const float *r,
                           int64_t n, int64_t d, unsigned long long *bad);
/* With u = p + low: p = (g - u (u.g)) / length in place; dots (n) = u.g. Retrieval relies on the result being
 * orthogonal to u; with bf16 p alone that misses by enough to show in the gradient (docs/explanation/objective.md
 * 4). */
cudaError_t k_unit_backward(cudaStream_t stream, cloob_dtype T, void *p, const void *low, const float *g,
                            const float *length, double *dots, int64_t n, int64_t d);

/* e = exp(s - shift_i), shift_i = row_shift ? row_shift[i] : shift; with t: ds = factor e t as well. */
cudaError_t k_exp(cudaStream_t stream, cloob_dtype T, void *e, void *ds, const float *s, const float *t, int64_t m,
                  int64_t n, float shift, const float *row_shift, float factor);
/* top[i] = max(top[i], max_j s_ij) */
cudaError_t k_row_max(cudaStream_t stream, float *top, const float *s, int64_t m, int64_t n);

/* One more tile of an anchor's log-sum-exp. Column own + i of row i is its positive (outside the tile: none
 * here); it goes to pos and is left out of (top, sum). */
cudaError_t k_lse_add(cudaStream_t stream, float *top, double *sum, float *pos, const float *s, int64_t m, int64_t n,
                      int64_t own);
/* From (top, sum, pos): lse, weight, value per row; see loss_row_value. */
cudaError_t k_lse_finish(cudaStream_t stream, double *lse, double *weight, double *value, const float *top,
                         const double *sum, const float *pos, int64_t n, bool leave_one_out);
/* dk = weight / N (exp(s - lse) off the positive, -1 at it) */
cudaError_t k_dscore(cudaStream_t stream, cloob_dtype T, void *dk, const float *s, const double *lse,
                     const double *weight, int64_t m, int64_t n, int64_t own, double N);

/* to += factor from (n, d); dots (n) = a.from, a (T) */
cudaError_t k_add_rows(cudaStream_t stream, cloob_dtype T, float *to, const float *from, float factor, const void *a,
                       double *dots, int64_t n, int64_t d);
cudaError_t k_dot_rows(cudaStream_t stream, cloob_dtype T, const void *a, const float *b, double *dots, int64_t n,
                       int64_t d);
/* *to += sum of n numbers, in a fixed order */
cudaError_t k_sum(cudaStream_t stream, double *to, const double *from, int64_t n);

/* Means, for f32 (docs/explanation/objective.md 4): mean (d) of the rows; to = from - mean; column (n) += sums of a
 * tile's columns; db += column mean^T. */
cudaError_t k_mean(cudaStream_t stream, float *mean, const float *rows, int64_t n, int64_t d);
cudaError_t k_less_mean(cudaStream_t stream, float *to, const float *from, const float *mean, int64_t n, int64_t d);
cudaError_t k_column_sums(cudaStream_t stream, double *column, const float *dk, int64_t m, int64_t n);
cudaError_t k_add_outer(cudaStream_t stream, float *db, const double *column, const float *mean, int64_t n, int64_t d);

/* SigLIP of a tile: s = inv_tau a b^T in, dk (T) = gradient of s out; column own + i of row i is its positive. Adds
 * each row's loss, sum of dk s and sum of dk to value, along and sum (m). share: 1 / N. */
cudaError_t k_sigmoid(cudaStream_t stream, cloob_dtype T, void *dk, const float *s, double *value, double *along,
                      double *sum, int64_t m, int64_t n, int64_t own, float bias, double share);

cudaError_t k_fill(cudaStream_t stream, float *x, float value, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
