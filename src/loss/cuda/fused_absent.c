/* A build without kernels for Hopper: scores are stored in memory (tile.c, contrast.c), so the launchers are never
 * called. */
#include "loss/cuda/fused.h"

bool fused_takes(int64_t d) { return (void)d, false; }
size_t fused_partial_bytes(int64_t tile) { return (void)tile, 0; }

cudaError_t fused_exp(cudaStream_t stream, void *e, const void *a, const void *b, int64_t m, int64_t n, int64_t d,
                      float beta)
{
    (void)stream, (void)e, (void)a, (void)b, (void)m, (void)n, (void)d, (void)beta;
    return cudaErrorNotSupported;
}

cudaError_t fused_dscore(cudaStream_t stream, void *e, void *ds, const void *a, const void *b, const void *dra,
                         const void *drb, int64_t m, int64_t n, int64_t d, float beta, float factor)
{
    (void)stream, (void)e, (void)ds, (void)a, (void)b, (void)dra, (void)drb, (void)m, (void)n, (void)d, (void)beta;
    return (void)factor, cudaErrorNotSupported;
}

cudaError_t fused_lse(cudaStream_t stream, float *top, double *sum, float *pos, float *partial, const void *a,
                      const void *b, int64_t m, int64_t n, int64_t d, float inv_tau, int64_t own)
{
    (void)stream, (void)top, (void)sum, (void)pos, (void)partial, (void)a, (void)b, (void)m, (void)n, (void)d;
    return (void)inv_tau, (void)own, cudaErrorNotSupported;
}

cudaError_t fused_dk(cudaStream_t stream, void *dk, const void *a, const void *b, const double *lse,
                     const double *weight, int64_t m, int64_t n, int64_t d, float inv_tau, int64_t own, double N)
{
    (void)stream, (void)dk, (void)a, (void)b, (void)lse, (void)weight, (void)m, (void)n, (void)d, (void)inv_tau;
    return (void)own, (void)N, cudaErrorNotSupported;
}
