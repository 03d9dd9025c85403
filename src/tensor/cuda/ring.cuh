/* A ring of stages in shared memory: a producer thread fills them by bulk copies (TMA); consumer warpgroups multiply
 * and release them. */
#ifndef TENSOR_CUDA_RING_CUH
#define TENSOR_CUDA_RING_CUH

#include "tensor/cuda/hopper.cuh"

enum { DEPTH = 64 }; /* of a stage: bf16 elements in a swizzled row */

struct ring {
    char *stage;
    uint64_t *full, *empty; /* one barrier each per stage; empty counts the consumers' warps */
    int bytes, count, at, parity;
    __device__ __forceinline__ char *here() const { return stage + at * bytes; }
    __device__ __forceinline__ void next()
    {
        if (++at == count) at = 0, parity ^= 1;
    }
    /* The producer waits until the stage is free; copies of `copied` (or `bytes`) bytes in all must follow. */
    __device__ __forceinline__ void begin_fill(int copied)
    {
        barrier_wait(&empty[at], parity ^ 1);
        barrier_expect(&full[at], copied);
    }
    __device__ __forceinline__ void begin_fill() { begin_fill(bytes); }
};

struct stage_operands { /* rows of 64 bf16, 128-byte swizzle */
    const char *a, *b;
};

/* c = a b^T over `depth` stages, or c += with keep; operands_of(s) returns the addresses for stage s. A stage is
 * released when the next multiplication has been issued. */
template <int N, class F>
__device__ __forceinline__ void multiply_stages(float (&c)[N], ring &r, int depth, bool keep, F operands_of)
{
    int before = 0;
    fence_registers(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&r.full[r.at], r.parity);
        stage_operands f = operands_of(s);
        uint64_t a = descriptor(f.a), b = descriptor(f.b);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) wgmma_k16(c, a + 2 * k, b + 2 * k, keep || s > 0 || k > 0);
        wgmma_commit();
        if (s > 0) {
            wgmma_wait<1>();
            if (elected()) barrier_arrive(&r.empty[before]);
        }
        before = r.at;
        r.next();
    }
    wgmma_wait<0>();
    fence_registers(c);
    if (elected()) barrier_arrive(&r.empty[before]);
}

#endif
