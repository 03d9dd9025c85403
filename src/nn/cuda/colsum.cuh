/* How a block ends that sums columns: for kernels laid over rows_over_grid (common.cuh). */
#ifndef NN_CUDA_COLSUM_CUH
#define NN_CUDA_COLSUM_CUH

#include "nn/cuda/common.cuh"

/* s: this thread's sums of its V columns. Adds those of the block's rows in order and writes the block's row of partial
 * (gridDim.x, C). Shared memory: (block.y, V, block.x) floats, `block_sums_bytes`. */
template <int V>
__device__ __forceinline__ void write_block_sums(float *partial, const float s[V], int64_t C)
{
    extern __shared__ float sums[];
    int width = blockDim.x, cell = V * width, packs = (int)(C / V);
#pragma unroll
    for (int i = 0; i < V; i++) sums[threadIdx.y * cell + i * width + threadIdx.x] = s[i];
    __syncthreads();
    for (int j = threadIdx.y * width + threadIdx.x; j < cell; j += width * blockDim.y) {
        int at = blockIdx.y * width + j % width;
        float sum = 0.0f;
        for (int y = 0; y < blockDim.y; y++) sum += sums[y * cell + j];
        if (at < packs) partial[blockIdx.x * C + (int64_t)at * V + j / width] = sum;
    }
}

static inline size_t block_sums_bytes(const row_grid &g, int V)
{
    return (size_t)g.block.x * g.block.y * (size_t)V * sizeof(float);
}

#endif
