/* Hopper instructions: barriers in shared memory, bulk tensor copies (TMA), warpgroup matrix multiplications
 * (wgmma). */
#ifndef TENSOR_CUDA_HOPPER_CUH
#define TENSOR_CUDA_HOPPER_CUH

#include <stdint.h>

#include "tensor/cuda/vendor.cuh"

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* The first address in a block's shared memory that is a multiple of 1024 bytes, the period of the swizzles. Computed
 * by adding to the pointer: from an integer, the compiler would not know that it points to shared memory, and would
 * emit the slower generic loads and stores. */
__device__ __forceinline__ char *shared_begin(char *memory)
{
    return memory + (1024 - shared_address(memory) % 1024) % 1024;
}

/* Index of this thread's warp in its block. After the shuffle the compiler knows that all lanes have the same value:
 * what depends on it stays in uniform registers, and branches on it do not diverge. */
__device__ __forceinline__ int warp_number() { return __shfl_sync(~0u, (int)threadIdx.x / 32, 0); }

/* True in one lane of the warp, always the same one. All lanes must call it. */
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

/* Waits until the phase of this parity is complete. */
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

/* Copies the box of the tensor map at column x, row y to shared memory; elements outside the tensor are 0. */
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, int x, int y, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(b)), "r"(x), "r"(y)
                 : "memory");
}

/* The same with three and four dimensions; coordinates may be outside. */
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

/* Makes this thread's writes to shared memory visible to bulk copies and wgmma. */
__device__ __forceinline__ void shared_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* The same for barriers that were just initialised. */
__device__ __forceinline__ void barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared_publish();
}

/* wgmma descriptor of rows of 64 bf16 (128 bytes) in the 128-byte swizzle; eight rows are a group of 1024 bytes. */
__device__ __forceinline__ uint64_t descriptor(const void *p)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same rows as a transposed operand: a row is one element of the depth and holds 64 rows or columns of the operand;
 * the next 64 are `step` bytes further. wgmma_transposed_k16 and wgmma_b_transposed_k16 read 16 rows (2048 bytes). */
__device__ __forceinline__ uint64_t descriptor_transposed(const void *p, int step = 1024)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)(step >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Rows of 32 bf16 (64 bytes) in the 64-byte swizzle; eight rows are a group of 512 bytes. The swizzle depends on the
 * address, so the first row may be any. `on`: for a transposed operand, bytes to the next 32 rows or columns. */
__device__ __forceinline__ uint64_t descriptor_32(uint32_t address, int on = 16)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(on >> 4) << 16 | (uint64_t)(512 >> 4) << 32 |
           (uint64_t)2 << 62;
}

/* Rows of 16 bf16 (32 bytes) in the 32-byte swizzle, as a transposed operand; 16 rows are 512 bytes. */
__device__ __forceinline__ uint64_t descriptor_transposed_16(const void *p)
{
    uint64_t address = (uint64_t)(shared_address(p) & 0x3ffff) >> 4;
    return address | (uint64_t)(256 >> 4) << 16 | (uint64_t)(256 >> 4) << 32 | (uint64_t)3 << 62;
}

/* Rows of 16 bytes without a swizzle: eight rows are a core matrix of 128 bytes; `deep` bytes to the next core matrix
 * along the depth, `on` bytes to the next eight rows. */
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

/* ---- matrix multiplications of a warpgroup ----------------------------------------------------------
 *
 * wgmma m64nNk16 in bf16 with sums in f32: c (64 x N) = a (64 x 16) b (16 x N), added to c when `keep` (or always).
 * Issued by the 128 threads of a warpgroup. With t the thread's index in its warpgroup, row = 16 (t / 32) + t % 32 / 4
 * and column = 2 (t % 4), a thread holds c[4 k + 0, 1] of this row at columns column + 8 k + {0, 1}, and c[4 k + 2, 3]
 * of row + 8. An operand comes by descriptor, or as registers in the layout of mma.sync (16 rows per warp).
 *
 * The instruction names every register: REGS_N lists the first N operands of the statement, ACC the accumulators.
 * WGMMA(columns, registers, a, b, keep, major): `major` has one digit per operand in shared memory, 0 if its rows run
 * along the depth (descriptor), 1 if they run along the 64 rows or N columns (descriptor_transposed). */
#define REGS_8   "%0, %1, %2, %3, %4, %5, %6, %7"
#define REGS_16  REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGS_20  REGS_16 ", %16, %17, %18, %19"
#define REGS_32  REGS_20 ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_40  REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define REGS_48  REGS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define REGS_64  REGS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_80  REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define REGS_96  REGS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_112 REGS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define REGS_128                                                                                                       \
    REGS_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA(columns, registers, a, b, keep, major)                                                                   \
    "{\n"                                                                                                              \
    ".reg .pred p;\n"                                                                                                  \
    "setp.ne.b32 p, " keep ", 0;\n"                                                                                    \
    "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" registers "}, " a ", " b ", p, 1, 1, " major     \
    ";\n"                                                                                                              \
    "}\n"
#define ACC4(c, i)  "+f"((c)[i]), "+f"((c)[i + 1]), "+f"((c)[i + 2]), "+f"((c)[i + 3])
#define ACC16(c, i) ACC4(c, i), ACC4(c, i + 4), ACC4(c, i + 8), ACC4(c, i + 12)
#define ACC64(c, i) ACC16(c, i), ACC16(c, i + 16), ACC16(c, i + 32), ACC16(c, i + 48)
#define ROWS(a)     "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3])

/* a in registers, b (8 NT x 16) by descriptor, transposed. */
template <int NT>
__device__ __forceinline__ void wgmma_rows(float (&t)[NT][4], const unsigned (&a)[4], uint64_t b, int keep)
{
    static_assert(NT == 4 || NT == 5 || NT == 8 || NT == 10, "unsupported width");
    float(&c)[4 * NT] = reinterpret_cast<float(&)[4 * NT]>(t);
    if constexpr (NT == 4)
        asm volatile(WGMMA("32", REGS_16, "{%16, %17, %18, %19}", "%20", "%21", "0")
                     : ACC16(c, 0)
                     : ROWS(a), "l"(b), "r"(keep));
    else if constexpr (NT == 5)
        asm volatile(WGMMA("40", REGS_20, "{%20, %21, %22, %23}", "%24", "%25", "0")
                     : ACC16(c, 0), ACC4(c, 16)
                     : ROWS(a), "l"(b), "r"(keep));
    else if constexpr (NT == 8)
        asm volatile(WGMMA("64", REGS_32, "{%32, %33, %34, %35}", "%36", "%37", "0")
                     : ACC16(c, 0), ACC16(c, 16)
                     : ROWS(a), "l"(b), "r"(keep));
    else
        asm volatile(WGMMA("80", REGS_40, "{%40, %41, %42, %43}", "%44", "%45", "0")
                     : ACC16(c, 0), ACC16(c, 16), ACC4(c, 32), ACC4(c, 36)
                     : ROWS(a), "l"(b), "r"(keep));
}

/* a and b by descriptor, b transposed. */
__device__ __forceinline__ void wgmma_k16(float (&c)[16], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("32", REGS_16, "%16", "%17", "%18", "0, 0") : ACC16(c, 0) : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void wgmma_k16(float (&c)[32], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("64", REGS_32, "%32", "%33", "%34", "0, 0")
                 : ACC16(c, 0), ACC16(c, 16)
                 : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void wgmma_k16(float (&c)[40], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("80", REGS_40, "%40", "%41", "%42", "0, 0")
                 : ACC16(c, 0), ACC16(c, 16), ACC4(c, 32), ACC4(c, 36)
                 : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void wgmma_k16(float (&c)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("128", REGS_64, "%64", "%65", "%66", "0, 0") : ACC64(c, 0) : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void wgmma_k16(float (&c)[128], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("256", REGS_128, "%128", "%129", "%130", "0, 0")
                 : ACC64(c, 0), ACC64(c, 64)
                 : "l"(a), "l"(b), "r"(keep));
}

/* c += a^T b: a and b by descriptor_transposed, 64 columns of b per swizzled row; 16 columns by
 * descriptor_transposed_16. */
__device__ __forceinline__ void wgmma_transposed_k16(float (&c)[8], uint64_t a, uint64_t b)
{
    asm volatile(WGMMA("16", REGS_8, "%8", "%9", "1", "1, 1") : ACC4(c, 0), ACC4(c, 4) : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_transposed_k16(float (&c)[32], uint64_t a, uint64_t b)
{
    asm volatile(WGMMA("64", REGS_32, "%32", "%33", "1", "1, 1") : ACC16(c, 0), ACC16(c, 16) : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_transposed_k16(float (&c)[48], uint64_t a, uint64_t b)
{
    asm volatile(WGMMA("96", REGS_48, "%48", "%49", "1", "1, 1")
                 : ACC16(c, 0), ACC16(c, 16), ACC16(c, 32)
                 : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_transposed_k16(float (&c)[80], uint64_t a, uint64_t b)
{
    asm volatile(WGMMA("160", REGS_80, "%80", "%81", "1", "1, 1") : ACC64(c, 0), ACC16(c, 64) : "l"(a), "l"(b));
}

/* a by descriptor; b by descriptor, transposed, or TRANSPOSED: by descriptor_transposed. */
template <int TRANSPOSED>
__device__ __forceinline__ void wgmma_rows_k16(float (&c)[80], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("160", REGS_80, "%80", "%81", "%82", "0, %83")
                 : ACC64(c, 0), ACC16(c, 64)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSPOSED));
}

/* a by descriptor; b by descriptor_transposed with the distance between its boxes of 64 columns. */
__device__ __forceinline__ void wgmma_b_transposed_k16(float (&c)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("128", REGS_64, "%64", "%65", "%66", "0, 1") : ACC64(c, 0) : "l"(a), "l"(b), "r"(keep));
}
__device__ __forceinline__ void wgmma_b_transposed_k16(float (&c)[128], uint64_t a, uint64_t b, int keep)
{
    asm volatile(WGMMA("256", REGS_128, "%128", "%129", "%130", "0, 1")
                 : ACC64(c, 0), ACC64(c, 64)
                 : "l"(a), "l"(b), "r"(keep));
}

/* c (64 x 64) += a b: a in registers, b by descriptor_transposed. */
__device__ __forceinline__ void wgmma_rows_transposed(float (&c)[32], const unsigned (&a)[4], uint64_t b)
{
    asm volatile(WGMMA("64", REGS_32, "{%32, %33, %34, %35}", "%36", "1", "1")
                 : ACC16(c, 0), ACC16(c, 16)
                 : ROWS(a), "l"(b));
}

#undef ACC4
#undef ACC16
#undef ACC64
#undef ROWS

/* Keeps the compiler from moving reads of the accumulators before a wait, or writes after the next wgmma. */
template <int N>
__device__ __forceinline__ void fence_registers(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

/* Rounds two floats into one register. In assembly, so that the pair stays in one register. */
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

/* Four lanes hold two columns each of four groups of eight columns; afterwards lane q holds all of group q. */
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

/* Tensor map of x in boxes of `part`. Sizes and parts in elements, strides in bytes, innermost dimension first (it has
 * no stride); at most 4 dimensions. */
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

/* Tensor map of rows (n, d) of bf16 in boxes of (box_rows, box_columns); d is a multiple of 8. */
static inline cudaError_t tensor_map_rows(CUtensorMap *map, const void *rows, int64_t n, int64_t d, int box_columns,
                                          int box_rows, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B)
{
    cuuint64_t size[2] = { (cuuint64_t)d, (cuuint64_t)n }, stride[1] = { (cuuint64_t)d * 2 };
    cuuint32_t part[2] = { (cuuint32_t)box_columns, (cuuint32_t)box_rows };
    return tensor_map_encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rows, 2, size, stride, part, swizzle);
}

#endif
