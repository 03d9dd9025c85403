/* A build without kernels for Hopper: scores are stored in memory (tile.c, contrast.c), so fused_scores is never
 * called. */
#include "loss/cuda/fused.h"

bool fused_takes(int64_t d) { return (void)d, false; }
size_t fused_partial_bytes(int64_t tile) { return (void)tile, 0; }

cudaError_t fused_scores(cudaStream_t stream, fused_kind kind, const fused_call *c)
{
    return (void)stream, (void)kind, (void)c, cudaErrorNotSupported;
}
