/* Scores on Hopper's tensor cores with their exponentials computed on chip: the product a b^T is never written to
 * memory. bf16 only; a, b, dra, drb: rows of d, 16-byte aligned; outputs (m, n) with n a multiple of 8. Each launcher
 * starts its kernels on the stream. */
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

/* e = exp(beta (a b^T - 1)) */
cudaError_t fused_exp(cudaStream_t stream, void *e, const void *a, const void *b, int64_t m, int64_t n, int64_t d,
                      float beta);

/* e as above; ds = factor e o (dra b^T + a drb^T) */
cudaError_t fused_dscore(cudaStream_t stream, void *e, void *ds, const void *a, const void *b, const void *dra,
                         const void *drb, int64_t m, int64_t n, int64_t d, float beta, float factor);

/* One more tile of scores inv_tau a b^T for the log-sum-exp of each row, see k_lse_add. partial:
 * fused_partial_bytes. */
cudaError_t fused_lse(cudaStream_t stream, float *top, double *sum, float *pos, float *partial, const void *a,
                      const void *b, int64_t m, int64_t n, int64_t d, float inv_tau, int64_t own);
size_t fused_partial_bytes(int64_t tile);

/* dk = weight / N (exp(inv_tau a b^T - lse) off the positive, -1 at it), see k_dscore. */
cudaError_t fused_dk(cudaStream_t stream, void *dk, const void *a, const void *b, const double *lse,
                     const double *weight, int64_t m, int64_t n, int64_t d, float inv_tau, int64_t own, double N);

#ifdef __cplusplus
}
#endif
#endif
