/* A ring of stages in shared memory: one thread has the copy engine fill them, warpgroups multiply what is in
 * them and give them back. */
#ifndef TENSOR_CUDA_RING_CUH
#define TENSOR_CUDA_RING_CUH

#include "tensor/cuda/hopper.cuh"

enum { DEPTH = 64 }; /* bf16 in a swizzled row: the depth of a stage */

struct ring {
    char *stage;
    uint64_t *full, *empty; /* a barrier of each kind per stage; empty counts the multiplying warps */
    int bytes, count, at, parity;
    __device__ __forceinline__ char *here() const { return stage + at * bytes; }
    __device__ __forceinline__ void next()
    {
        if (++at == count) at = 0, parity ^= 1;
    }
    /* The copying thread waits until the stage is free; copies of `copied` in all, or of `bytes`, must follow. */
    __device__ __forceinline__ void begin_fill(int copied)
    {
        barrier_wait(&empty[at], parity ^ 1);
        barrier_expect(&full[at], copied);
    }
    __device__ __forceinline__ void begin_fill() { begin_fill(bytes); }
};

struct stage_factors { /* rows of 64 bf16, 128-byte swizzle */
    const char *a, *b;
};

/* c = or, with keep, += a b^T over `depth` stages; factors_of(s) says where those of stage s lie. Each stage is given
 * back once the product after it has begun. */
template <int N, class F>
__device__ __forceinline__ void multiply_stages(float (&c)[N], ring &r, int depth, bool keep, F factors_of)
{
    int before = 0;
    settle(c);
    for (int s = 0; s < depth; s++) {
        barrier_wait(&r.full[r.at], r.parity);
        stage_factors f = factors_of(s);
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
    settle(c);
    if (elected()) barrier_arrive(&r.empty[before]);
}

#endif
