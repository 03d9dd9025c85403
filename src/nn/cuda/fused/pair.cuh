/* Two blocks of a cluster that work for each other: barriers and shared memory of the other one. */
#ifndef NN_CUDA_FUSED_PAIR_CUH
#define NN_CUDA_FUSED_PAIR_CUH

#include "tensor/cuda/hopper.cuh"

namespace {

/* Which of the two a block is. */
__device__ __forceinline__ int pair_rank() { return (int)blockIdx.x % 2; }

/* What lies at the same place in the other block. */
__device__ __forceinline__ uint32_t other_address(const void *p)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(pair_rank() ^ 1));
    return there;
}

__device__ __forceinline__ void barrier_arrive_other(uint64_t *b)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other_address(b)) : "memory");
}

/* As barrier_wait, for a barrier at which the other block arrives as well. */
__device__ __forceinline__ void barrier_wait_pair(uint64_t *b, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni OVER;\n"
                 "bra.uni WAIT;\n"
                 "OVER:\n"
                 "}\n" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* So many bytes to the same place in the other block, by the copy engine; its barrier counts them. */
__device__ __forceinline__ void copy_to_other(const void *from, int bytes, uint64_t *b)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     other_address(from)),
                 "r"(shared_address(from)), "r"(bytes), "r"(other_address(b))
                 : "memory");
}

/* All threads of both blocks, whole warps. */
__device__ __forceinline__ void pair_barrier()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

} // namespace

#endif
