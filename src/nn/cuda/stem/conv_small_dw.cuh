/* The loop over tiles that all gradients of w share (conv_small_dw.cu, conv_small_first.cu).
 *
 * A block accumulates all of dw in the registers of its warps over many tiles and writes it once; a second launch adds
 * the blocks in order. A shape S defines the boxes of x and dy and their copies (copy_x), how many warps compute one
 * whole dw (GROUP), how many such groups split the rows of a tile (ROWS), the accumulators of a thread (ACC), the part
 * of a warp (worker), and the element of dw of each slot of the sums (element; -1: none). If a box of x is not used as
 * copied (CONVERTED bytes), convert computes what is used. If dw is too large for one block, CHANNEL_SPLITS blocks have
 * a part of x's channels each. */
#ifndef NN_CUDA_STEM_CONV_SMALL_DW_CUH
#define NN_CUDA_STEM_CONV_SMALL_DW_CUH

#include "nn/cuda/stem/conv_small.cuh"

typedef struct dw_job {
    tile_grid tiles;
    float *partial; /* (blocks, SLOTS) */
    pixels image;   /* if x is bytes */
} dw_job;

/* Sizes derived from a shape. */
template <class X, class DY, int GROUP_, int ROWS_, int R, int ACC_, int STAGES_, int CHANNEL_SPLITS_ = 1>
struct dw_sizes {
    typedef X x_box;
    typedef DY dy_box;
    enum {
        GROUP = GROUP_,
        ROWS = ROWS_,
        ACC = ACC_,
        STAGES = STAGES_,
        CHANNEL_SPLITS = CHANNEL_SPLITS_,
        THREADS = 32 * GROUP * ROWS,
        HIGH = R * ROWS,
        SLOTS = GROUP * ACC * 32,
        STAGE = X::BYTES + DY::BYTES,
        FULL = X::FULL + DY::FULL,
        REDUCE_BYTES = (ROWS - 1) * SLOTS * 4, /* sums of the groups, at the end */
        CONVERTED_AT = STAGES * STAGE,
        SMEM = SMEM_ALIGN + (CONVERTED_AT + X::CONVERTED > REDUCE_BYTES ? CONVERTED_AT + X::CONVERTED : REDUCE_BYTES)
    };
};

/* Adds the sums of all groups in order, by the warps of the first; slots: [warp of the group][accumulator][lane]. */
template <class S>
__device__ __forceinline__ void dw_reduce(float *partial, float *smem, const float acc[S::ACC])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, at = warp % S::GROUP * S::ACC * 32 + lane;
    if (warp >= S::GROUP)
#pragma unroll
        for (int i = 0; i < S::ACC; i++) smem[(warp / S::GROUP - 1) * S::SLOTS + at + i * 32] = acc[i];
    __syncthreads();
    if (warp >= S::GROUP) return;
#pragma unroll
    for (int i = 0; i < S::ACC; i++) {
        float sum = acc[i];
#pragma unroll
        for (int g = 0; g < S::ROWS - 1; g++) sum += smem[g * S::SLOTS + at + i * 32];
        partial[at + i * 32] = sum;
    }
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    dw_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap dy_map, const dw_job j)
{
    extern __shared__ char raw[];
    __shared__ uint64_t full[S::STAGES];
    char *stages = shared_begin(raw);
    int split = blockIdx.x % S::CHANNEL_SPLITS, begin = blockIdx.x / S::CHANNEL_SPLITS,
        step = gridDim.x / S::CHANNEL_SPLITS;
    auto load_tile = [&](int stage, int tile) {
        if (tile >= j.tiles.count) return;
        char *to = stages + stage * S::STAGE;
        tile_position p = position_of(j.tiles, tile, S::HIGH);
        barrier_expect(&full[stage], S::FULL);
        S::copy_x(to, &x_map, p, split, &full[stage]);
        S::dy_box::copy(to + S::x_box::BYTES, &dy_map, p, 0, 0, &full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) barrier_init(&full[s], 1);
        barrier_publish();
        for (int s = 0; s < S::STAGES; s++) load_tile(s, begin + s * step);
    }
    __syncthreads();
    typename S::worker worker(threadIdx.x);
    float acc[S::ACC];
#pragma unroll
    for (int i = 0; i < S::ACC; i++) acc[i] = 0.0f;
    int stage = 0, parity = 0;
    for (int tile = begin; tile < j.tiles.count; tile += step) {
        unsigned x = shared_address(stages + stage * S::STAGE), dy = x + S::x_box::BYTES;
        barrier_wait(&full[stage], parity);
        if constexpr (S::x_box::CONVERTED != 0) {
            S::x_box::template convert<S::THREADS / 32>(stages + S::CONVERTED_AT, stages + stage * S::STAGE,
                                                        position_of(j.tiles, tile, S::HIGH), j.image);
            x = shared_address(stages + S::CONVERTED_AT);
            __syncthreads();
        }
        worker.multiply(acc, x, dy);
        __syncthreads(); /* all have read the stage */
        if (threadIdx.x == 0) load_tile(stage, tile + S::STAGES * step);
        if (++stage == S::STAGES) stage = 0, parity ^= 1;
    }
    dw_reduce<S>(j.partial + (int64_t)blockIdx.x * S::SLOTS, reinterpret_cast<float *>(stages), acc);
}

template <class S>
__global__ void __launch_bounds__(256) dw_add_kernel(float *dw, const float *partial, int blocks, int c)
{
    int slot = blockIdx.x * 32 + threadIdx.x; /* slots of all channel splits, one after the other */
    float sum;
    if (!add_blocks(sum, partial, blocks / S::CHANNEL_SPLITS, slot, S::CHANNEL_SPLITS * S::SLOTS)) return;
    int at = S::element(slot / 32 / S::ACC, slot / 32 % S::ACC, slot % 32, c);
    if (at >= 0) dw[at] = sum;
}

template <class S>
cudaError_t dw_ready(int *blocks_per_sm)
{
    return kernel_ready(dw_kernel<S>, S::THREADS, S::SMEM, blocks_per_sm);
}

template <class S>
cudaError_t dw_run(const small_call *c)
{
    const dnn_shape *s = &c->shape;
    CUtensorMap x_map, dy_map;
    dw_job j = { tile_grid_of(s->N, s->Ho, s->Wo, S::HIGH), (float *)c->data.workspace, pixels_of(c) };
    cudaError_t e = S::map_x(&x_map, c->data.x, s);
    if (e == cudaSuccess) e = S::dy_box::map(&dy_map, c->data.y, s->N, s->Ho, s->Wo, S::COUT);
    if (e != cudaSuccess) return e;
    int blocks =
        c->blocks < S::CHANNEL_SPLITS ? (int)S::CHANNEL_SPLITS : c->blocks / S::CHANNEL_SPLITS * S::CHANNEL_SPLITS;
    dw_kernel<S><<<blocks, S::THREADS, S::SMEM, c->stream>>>(x_map, dy_map, j);
    dw_add_kernel<S><<<S::CHANNEL_SPLITS * S::SLOTS / 32, dim3(32, 8), 0, c->stream>>>((float *)c->data.w, j.partial,
                                                                                       blocks, (int)c->c);
    return cudaGetLastError();
}

#endif
