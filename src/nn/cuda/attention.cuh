/* Shared by the attention kernels on tensor cores: sequences, tiles in shared memory, multiplication of tiles.
 *
 * mma.sync m16n8k16: lane l holds rows l/4 and l/4 + 8, columns 2 (l%4) and + 1 of a 16 x 8 result. */
#ifndef NN_CUDA_ATTENTION_CUH
#define NN_CUDA_ATTENTION_CUH

#include "nn/cuda/mma.cuh"

#define LOG2E 1.4426950408889634f

enum {
    MAX_WARPS = 8,
    PASS = 64 /* rows in shared memory at a time in kernels that process a head in passes */
};

typedef struct attn_sizes {
    int T, Tp, C, H; /* Tp: T rounded up to whole tiles */
    int causal;
    float scale;
    const int32_t *start; /* packed: first rows of the sequences; T is the longest length */
    int64_t rows;
} attn_sizes;

__host__ __device__ __forceinline__ int whole_tiles(int T) { return (T + 15) / 16 * 16; }

/* First row of a block's sequence, and index of its head's log-sum-exp. */
typedef struct attn_position {
    int64_t row, head;
} attn_position;

/* Sets z.T and z.Tp to the length of a packed sequence. */
template <bool PACKED>
__device__ __forceinline__ attn_position position_of(attn_sizes &z, int n, int h)
{
    if constexpr (!PACKED) return { (int64_t)n * z.T, ((int64_t)n * z.H + h) * z.T };
    int first = z.start[n];
    z.T = z.start[n + 1] - first;
    z.Tp = whole_tiles(z.T);
    return { first, h * z.rows + first };
}

/* Asynchronous copies of 16 or 4 bytes to shared memory; copies_wait waits for all copies of the calling thread. */
__device__ __forceinline__ void copy_async16(bf16 *to, const bf16 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async4(float *to, const float *from)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Rounds a 16 x 16 result to a left operand. */
__device__ __forceinline__ void pack_tile(unsigned a[4], const float p[2][4])
{
    a[0] = pack2(p[0][0], p[0][1]), a[1] = pack2(p[0][2], p[0][3]);
    a[2] = pack2(p[1][0], p[1][1]), a[3] = pack2(p[1][2], p[1][3]);
}

/* Tiles in shared memory have rows of D + 8 elements, so that eight rows are on different banks. */
template <int D>
struct tile {
    enum { LD = D + 8, K = D / 16 };
    __device__ static __forceinline__ int at(int row, int c) { return row * LD + c; }

    __device__ static void fill(bf16 *to, const bf16 *from, int64_t step, int T, int Tp)
    {
        for (int i = threadIdx.x; i < Tp * (D / 8); i += blockDim.x) {
            int row = i / (D / 8), c = i % (D / 8) * 8;
            if (row < T) copy_async16(to + row * LD + c, from + row * step + c);
            else store<bf16, 8>(to + row * LD + c, pack<bf16, 8>{});
        }
    }

    /* Loads rows row0.. as the left operand, D wide. */
    __device__ static void left(unsigned a[K][4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int k = 0; k < K; k++) ldmatrix(a[k], s + (row0 + (lane & 15)) * LD + k * 16 + (lane >> 4) * 8);
    }

    /* The same from global memory, 0 from row T on. */
    __device__ static void left(unsigned a[K][4], const bf16 *from, int64_t step, int row0, int T)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < 4 * K; i++) {
            int row = row0 + lane / 4 + 8 * (i % 2), c = i / 4 * 16 + i % 4 / 2 * 8 + lane % 4 * 2;
            a[i / 4][i % 4] = row < T ? *reinterpret_cast<const unsigned *>(from + row * step + c) : 0;
        }
    }

    /* c (16 x 16, two halves) = a times the transpose of rows row0.. */
    __device__ static void times_rows(float c[2][4], const unsigned a[K][4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < 4; i++) c[0][i] = c[1][i] = 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++) {
            unsigned b[4];
            ldmatrix(b, s + (row0 + (lane & 7) + (lane >> 4) * 8) * LD + k * 16 + ((lane >> 3) & 1) * 8);
            mma(c[0], a[k], b[0], b[1]);
            mma(c[1], a[k], b[2], b[3]);
        }
    }

    /* acc (16 x D) += a (16 x 16) times rows row0.. */
    __device__ static void add_product(float acc[D / 8][4], const unsigned a[4], const bf16 *s, int row0)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            unsigned b[4];
            ldmatrix_trans(b, s + (row0 + (lane & 15)) * LD + j * 16 + (lane >> 4) * 8);
            mma(acc[2 * j], a, b[0], b[1]);
            mma(acc[2 * j + 1], a, b[2], b[3]);
        }
    }

    __device__ static void add_product(float acc[D / 8][4], const float p[2][4], const bf16 *s, int row0)
    {
        unsigned a[4];
        pack_tile(a, p);
        add_product(acc, a, s, row0);
    }

    /* Writes rows row0.. below T of the result to global memory, staged in 16 rows of shared memory of this warp, so
     * that stores have 16 bytes. */
    __device__ static void write(bf16 *to, int64_t step, const float acc[D / 8][4], float scale, int row0, int T,
                                 bf16 *stage)
    {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < D / 8; j++)
                *reinterpret_cast<unsigned *>(stage + (lane / 4 + 8 * half) * LD + j * 8 + lane % 4 * 2) =
                    pack2(acc[j][2 * half] * scale, acc[j][2 * half + 1] * scale);
        __syncwarp();
#pragma unroll
        for (int i = lane; i < 16 * (D / 8); i += 32) {
            int row = i / (D / 8), c = i % (D / 8) * 8;
            if (row0 + row < T)
                *reinterpret_cast<uint4 *>(to + (row0 + row) * step +
                                           c) = /* a copy of a pack would store 4 bytes at a time */
                    *reinterpret_cast<const uint4 *>(stage + row * LD + c);
        }
        __syncwarp();
    }
};

/* Element (half, i) of a 16 x 16 result: row lane/4 + 8 (i/2), column 8 half + 2 (lane%4) + i%2. */
__device__ __forceinline__ int row_in_tile(int i) { return (threadIdx.x & 31) / 4 + 8 * (i / 2); }
__device__ __forceinline__ int col_in_tile(int half, int i) { return 8 * half + (threadIdx.x & 3) * 2 + i % 2; }

/* Over the four lanes that share a row. */
__device__ __forceinline__ float row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float row_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* The tiles of a block in kernels that process a head in passes: one per warp from `first` on; this warp has tile
 * `own`, which may not exist. */
typedef struct attn_block {
    int n, h, first, own;
} attn_block;

__device__ __forceinline__ attn_block block_of(const attn_sizes &z, int groups)
{
    int head = (int)blockIdx.x / groups, warps = (int)blockDim.x / 32, first = (int)blockIdx.x % groups * warps;
    return { head / z.H, head % z.H, first, first + (int)threadIdx.x / 32 };
}

/* ---- on the host ------------------------------------------------------------------------------- */

static inline attn_sizes sizes_of(const op_args *a, const op_sequences &s, const tensor *y)
{
    int T = (int)s.T, C = (int)tensor_cols(y), H = (int)a->attr.heads;
    attn_sizes z = { T, whole_tiles(T), C, H, a->attr.causal, 1.0f / sqrtf((float)C / (float)H), s.start, s.rows };
    return z;
}

/* tiles: number of (T, D) matrices in shared memory. */
static inline size_t smem_of(const attn_sizes &z, int tiles, int D)
{
    return (size_t)z.Tp * ((size_t)tiles * (D + 8) * sizeof(bf16) + 2 * sizeof(float));
}

static inline bool on_tensor_cores(const op_env *env, const tensor *y, const attn_sizes &z, int tiles)
{
    int D = z.C / z.H;
    return y->dtype == CLOOB_BF16 && (D == 64 || D == 32) &&
           smem_of(z, tiles, D) <= (size_t)((const cuda_state *)env->dev->state)->smem_bytes;
}

/* In passes, any length runs on tensor cores. */
static inline bool passes_support(const tensor *y, const attn_sizes &z)
{
    int D = z.C / z.H;
    return y->dtype == CLOOB_BF16 && (D == 64 || D == 32);
}

/* How many blocks of up to `most` warps split the tiles of a head, and how many warps each needs. */
typedef struct attn_split {
    int groups, warps;
} attn_split;

static inline attn_split split_tiles(const attn_sizes &z, int most)
{
    int tiles = z.Tp / 16, groups = (tiles + most - 1) / most;
    return { groups, (tiles + groups - 1) / groups };
}

typedef cloob_status launch_fn(const op_env *env, const op_args *a, const attn_sizes &z, int64_t N);

#endif
