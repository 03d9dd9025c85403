/* Blocks of a cluster: copies that reach several of them, barriers in each other's shared memory. */
#ifndef TENSOR_CUDA_CLUSTER_CUH
#define TENSOR_CUDA_CLUSTER_CUH

#include "tensor/cuda/hopper.cuh"

__device__ __forceinline__ int cluster_rank()
{
    int r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

/* All threads of all blocks of the cluster; what they wrote to shared memory before is visible behind it. */
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;\n" ::
                     : "memory");
}

/* An arrival at the barrier that lies in block `rank` where `b` lies in this one. It orders nothing between blocks (a
 * fence for the cluster would wait for all memory): enough to say that something was read. */
__device__ __forceinline__ void barrier_arrive_at(uint64_t *b, int rank)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}\n" ::"r"(shared_address(b)),
                 "r"(rank)
                 : "memory");
}

/* copy_box to the blocks whose bits are set: the same place in each, and each one's own barrier counts the bytes. */
__device__ __forceinline__ void copy_box_to(void *to, const CUtensorMap *map, int x, int y, uint64_t *b,
                                            uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "h"(blocks)
                 : "memory");
}

#endif
