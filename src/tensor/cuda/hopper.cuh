/* The few Hopper instructions our kernels use: barriers in shared memory, the copy engine, warpgroup products. */
#ifndef TENSOR_CUDA_HOPPER_CUH
#define TENSOR_CUDA_HOPPER_CUH

#include <stdint.h>

#include "tensor/cuda/vendor.cuh"

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* The first place in a block's shared memory at a multiple of 1024 bytes, the period of the swizzles. Found by adding
 * to the pointer: made of an integer, it would no longer be known to point to shared memory, and reads and writes would
 * take the slower generic instructions. */
__device__ __forceinline__ char *shared_begin(char *memory)
{
    return memory + (1024 - shared_address(memory) % 1024) % 1024;
}

/* This thread's warp in its block. The shuffle tells the compiler that all lanes have the same number: what follows
 * from it stays in uniform registers, and branches on it do not diverge. */
__device__ __forceinline__ int warp_number() { return __shfl_sync(~0u, (int)threadIdx.x / 32, 0); }

/* True in one lane of the warp, the same one each time; all lanes must take part. */
__device__ __forceinline__ bool elected()
{
    int yes;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, p;\n"
                 "}\n"
                 : "=r"(yes));
    return yes;
}

__device__ __forceinline__ void barrier_init(uint64_t *b, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count));
}

__device__ __forceinline__ void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
                 : "memory");
}

/* Returns once the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *b, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni OVER;\n"
                 "bra.uni WAIT;\n"
                 "OVER:\n"
                 "}\n" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* A box of the tensor map at column x, row y, to shared memory; rows past the end come as zeros. */
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, int x, int y, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y)
                 : "memory");
}

/* The same of a tensor map with three or four dimensions; coordinates may lie outside, there come zeros. */
__device__ __forceinline__ void copy_box3(void *to, const CUtensorMap *map, int x, int y, int z, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
__device__ __forceinline__ void copy_box4(void *to, const CUtensorMap *map, int x, int y, int z, int w, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* What this thread wrote to shared memory becomes visible to the copy engine and to products. */
__device__ __forceinline__ void shared_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* The same for barriers that were just made. */
__device__ __forceinline__ void barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared_publish();
}

/* Rows of 64 bf16 (128 bytes) in the copy engine's 128-byte swizzle; eight rows make a group of 1024 bytes.
 */
__device__ __forceinline__ uint64_t descriptor(const void *p)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same rows seen from the other side: a row is one step of the product's depth and holds 64 of its rows or columns;
 * the next 64 lie `step` bytes on. For wgmma_turned_k16 and wgmma_right_turned_k16, which go 16 rows (2048 bytes) down.
 */
__device__ __forceinline__ uint64_t descriptor_turned(const void *p, int step = 1024)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)(step >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Rows of 32 bf16 (64 bytes) in the 64-byte swizzle, from either side; eight rows make a group of 512 bytes. The
 * swizzle goes by address, so the first may be any row. `on`: from the other side, bytes to the next 32 rows or
 * columns. */
__device__ __forceinline__ uint64_t descriptor_32(uint32_t address, int on = 16)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(on >> 4) << 16 | (uint64_t)(512 >> 4) << 32 |
           (uint64_t)2 << 62;
}

/* Rows of 16 bf16 (32 bytes) in the 32-byte swizzle, from the other side; 16 rows are 512 bytes. */
__device__ __forceinline__ uint64_t descriptor_turned_16(const void *p)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)(256 >> 4) << 16 | (uint64_t)(256 >> 4) << 32 | (uint64_t)3 << 62;
}

/* Rows of 16 bytes without a swizzle: eight rows make a core of 128 bytes; `deep` bytes to the core beside it in
 * depth, `on` bytes to the next eight rows. */
__device__ __forceinline__ uint64_t descriptor_plain(uint32_t address, int deep, int on)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(deep >> 4) << 16 | (uint64_t)(on >> 4) << 32;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* c (64 x 8 NT, f32; of each warp 16 rows) += a (16 rows of a warp, 16 deep, as for mma.sync) b^T (8 NT x 16, by
 * descriptor), without what c was unless `keep`. Written by a script, like the one below. */
#define ACC(t) "+f"((t)[0]), "+f"((t)[1]), "+f"((t)[2]), "+f"((t)[3])
template <int NT>
__device__ __forceinline__ void wgmma_rows(float (&c)[NT][4], const unsigned (&a)[4], uint64_t b, int keep)
{
    static_assert(NT == 4 || NT == 5 || NT == 8 || NT == 10, "no such width yet");
    if constexpr (NT == 4) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, %21, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n"
                     "}\n"
                     : ACC(c[0]), ACC(c[1]), ACC(c[2]), ACC(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
    } else if constexpr (NT == 5) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, %25, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19}, {%20, %21, %22, %23}, %24, p, 1, 1, 0;\n"
                     "}\n"
                     : ACC(c[0]), ACC(c[1]), ACC(c[2]), ACC(c[3]), ACC(c[4])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
    } else if constexpr (NT == 8) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, %37, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
                     "%30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
                     "}\n"
                     : ACC(c[0]), ACC(c[1]), ACC(c[2]), ACC(c[3]), ACC(c[4]), ACC(c[5]), ACC(c[6]), ACC(c[7])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
    } else if constexpr (NT == 10) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, %45, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                     "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                     "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
                     "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, {%40, %41, %42, %43}, %44, p, 1, 1, 0;\n"
                     "}\n"
                     : ACC(c[0]), ACC(c[1]), ACC(c[2]), ACC(c[3]), ACC(c[4]), ACC(c[5]), ACC(c[6]), ACC(c[7]),
                       ACC(c[8]), ACC(c[9])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
    }
}
#undef ACC

#define ACC4(c, i)  "+f"((c)[i]), "+f"((c)[i + 1]), "+f"((c)[i + 2]), "+f"((c)[i + 3])
#define ACC16(c, i) ACC4(c, i), ACC4(c, i + 4), ACC4(c, i + 8), ACC4(c, i + 12)

/* c (64 x N, f32) = a (64 x 16) b^T (N x 16), added to c when `keep`; a, b by descriptor; N is twice c's length. Issued
 * by the 128 threads of a warpgroup. Written by a script: the instruction names each of its accumulators. Thread t of
 * the warpgroup holds, with row = 16 (t / 32) + t % 32 / 4 and column = 2 (t % 4): c[4 k + 0, 1] of this row, columns
 * column + 8 k + {0, 1}, and c[4 k + 2, 3] of row + 8. */
__device__ __forceinline__ void wgmma_k16(float (&c)[16], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                 "}, %16, %17, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACC16(c, 0)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma_k16(float (&c)[32], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma_k16(float (&c)[40], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %42, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39"
                 "}, %40, %41, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC4(c, 32), ACC4(c, 36)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma_k16(float (&c)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma_k16(float (&c)[128], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, %128, %129, p, 1, 1, 0, 0;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48), ACC16(c, 64), ACC16(c, 80), ACC16(c, 96),
                   ACC16(c, 112)
                 : "l"(a), "l"(b), "r"(keep));
}

/* c (64 x 64) += a^T b, both 16 deep, by descriptor_turned. */
__device__ __forceinline__ void wgmma_turned_k16(float (&c)[32], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, 1, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16)
                 : "l"(a), "l"(b));
}

/* The same of 96 and 160 columns, which lie in several swizzled rows. */
__device__ __forceinline__ void wgmma_turned_k16(float (&c)[48], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
                 "}, %48, %49, p, 1, 1, 1, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32)
                 : "l"(a), "l"(b));
}

__device__ __forceinline__ void wgmma_turned_k16(float (&c)[80], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
                 "}, %80, %81, p, 1, 1, 1, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48), ACC16(c, 64)
                 : "l"(a), "l"(b));
}

/* c (64 x 160) = a b^T, added to c when `keep`; b is as a, or TURNED: 16 rows of the depth. */
template <int TURNED>
__device__ __forceinline__ void wgmma_rows_k16(float (&c)[80], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %82, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
                 "}, %80, %81, p, 1, 1, 0, %83;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48), ACC16(c, 64)
                 : "l"(a), "l"(b), "r"(keep), "n"(TURNED));
}

/* c (64 x N) = a (64 x 16, by descriptor) b (16 x N, by descriptor_turned with the step between its boxes of 64
 * columns), added to c when `keep`. */
__device__ __forceinline__ void wgmma_right_turned_k16(float (&c)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, 0, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48)
                 : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void wgmma_right_turned_k16(float (&c)[128], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, %128, %129, p, 1, 1, 0, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32), ACC16(c, 48), ACC16(c, 64), ACC16(c, 80), ACC16(c, 96),
                   ACC16(c, 112)
                 : "l"(a), "l"(b), "r"(keep));
}

/* c (64 x 16) += a^T b, likewise; b by descriptor_turned_16. */
__device__ __forceinline__ void wgmma_turned_k16(float (&c)[8], uint64_t a, uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7"
                 "}, %8, %9, p, 1, 1, 1, 1;\n"
                 "}\n"
                 : ACC4(c, 0), ACC4(c, 4)
                 : "l"(a), "l"(b));
}

/* c (64 x 64) += a b, a: 16 rows of a warp, 16 deep, as for mma.sync; b: 16 rows by descriptor_turned. */
__device__ __forceinline__ void wgmma_rows_turned(float (&c)[32], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
                 "}\n"
                 : ACC16(c, 0), ACC16(c, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef ACC4
#undef ACC16

/* Keeps reads of the accumulators behind the wait before it, and writes before the product after it. */
template <int N>
__device__ __forceinline__ void settle(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* Two floats rounded into one register; in assembly, so that the pair stays one register. */
__device__ __forceinline__ uint32_t pack_pair(float low, float high)
{
    uint32_t v;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

__device__ __forceinline__ float2 unpack_pair(uint32_t v)
{
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

/* Four lanes hold two columns each of four groups of eight; afterwards lane q holds group q whole. */
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4])
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    uint32_t r = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1);
    if (odd) v[0] = r;
    else v[1] = r;
    r = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
    if (odd) v[2] = r;
    else v[3] = r;
    r = __shfl_xor_sync(~0u, high ? v[0] : v[2], 2);
    if (high) v[0] = r;
    else v[2] = r;
    r = __shfl_xor_sync(~0u, high ? v[1] : v[3], 2);
    if (high) v[1] = r;
    else v[3] = r;
}

/* ---- on the host --------------------------------------------------------------------------------- */

static inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder()
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (PFN_cuTensorMapEncodeTiled_v12000)entry
                                                                    : nullptr;
}

/* x in boxes of `part`; sizes and parts in elements, strides in bytes, innermost first (it has no stride); at most 4
 * dims. */
static inline cudaError_t tensor_map_encode(CUtensorMap *map, CUtensorMapDataType type, const void *x, int dims,
                                            const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *part,
                                            CUtensorMapSwizzle swizzle)
{
    static const cuuint32_t step[4] = { 1, 1, 1, 1 };
    PFN_cuTensorMapEncodeTiled_v12000 make = tensor_map_encoder();
    if (!make) return cudaErrorNotSupported;
    CUresult r = make(map, type, (cuuint32_t)dims, const_cast<void *>(x), size, stride, part, step,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/* rows (n, d) of bf16, copied in boxes of (box_rows, box_columns) with a swizzle, of 128 bytes unless said otherwise;
 * d a multiple of 8. */
static inline cudaError_t tensor_map_rows(CUtensorMap *map, const void *rows, int64_t n, int64_t d, int box_columns,
                                          int box_rows, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B)
{
    cuuint64_t size[2] = { (cuuint64_t)d, (cuuint64_t)n }, stride[1] = { (cuuint64_t)d * 2 };
    cuuint32_t part[2] = { (cuuint32_t)box_columns, (cuuint32_t)box_rows };
    return tensor_map_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rows, 2, size, stride, part, swizzle);
}

#endif
