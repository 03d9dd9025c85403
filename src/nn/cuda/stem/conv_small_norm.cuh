/* Batch norm and ReLU in place on a box in shared memory, before a convolution reads it. The instructions are the same as
 * in bn_apply, so that all passes compute the same ReLU mask. */
#ifndef NN_CUDA_STEM_CONV_SMALL_NORM_CUH
#define NN_CUDA_STEM_CONV_SMALL_NORM_CUH

#include "nn/cuda/bn_common.cuh"
#include "nn/cuda/stem/conv_small.cuh"

typedef struct norm_in {
    const float *mean, *rstd, *gain, *bias; /* (C) */
} norm_in;

static inline norm_in norm_of(const small_call *c)
{
    const float *const *v = c->data.norm;
    norm_in n = { v[0], v[1], v[2], v[3] };
    return n;
}

/* Coefficients per channel, (AFFINE, C) floats in shared memory, which are read for every tile because registers are
 * short: mean, slope, bias. */
enum { AFFINE = 3 };

template <int C>
__device__ __forceinline__ void affine_load(float *affine, const norm_in &n)
{
    int c = threadIdx.x;
    if (c < C) affine[c] = n.mean[c], affine[C + c] = n.rstd[c] * n.gain[c], affine[2 * C + c] = n.bias[c];
}

__device__ __forceinline__ void load_four(float v[4], unsigned address)
{
    uint4 a = load_shared(address);
    v[0] = __uint_as_float(a.x), v[1] = __uint_as_float(a.y), v[2] = __uint_as_float(a.z), v[3] = __uint_as_float(a.w);
}

__device__ __forceinline__ float bf16_low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ uint4 apply_chunk(uint4 v, const bn_affine<8> &k)
{
    unsigned pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = pack2(fmaxf(bn_value(k, bf16_low(pair[i]), 2 * i), 0.0f),
                        fmaxf(bn_value(k, bf16_high(pair[i]), 2 * i + 1), 0.0f));
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* Applies batch norm and ReLU to the box at x: C channels, one position wider than the tile at p on every side. Called
 * by THREADS threads, each with one chunk of the channels. Positions outside the image stay 0. */
template <class BOX, int C, int THREADS>
__device__ __forceinline__ void apply_box(unsigned x, tile_position p, const tile_grid &image, unsigned affine,
                                          int thread)
{
    const int CHUNKS = C / 8, EACH = THREADS / CHUNKS, BATCH = 4, POSITIONS = BOX::POSITIONS, COLS = TILE + 2;
    int chunk = thread % CHUNKS, first = thread / CHUNKS;
    asm volatile("" : "+r"(chunk), "+r"(first)); /* or the compiler keeps the offsets of all tiles in registers */
    bn_affine<8> k;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        load_four(k.mean + 4 * h, affine + chunk * 32 + h * 16);
        load_four(k.slope + 4 * h, affine + 4 * C + chunk * 32 + h * 16);
        load_four(k.bias + 4 * h, affine + 8 * C + chunk * 32 + h * 16);
    }
#pragma unroll 1
    for (int from = first; from < POSITIONS && first < EACH; from += BATCH * EACH) {
        uint4 v[BATCH];
        bool inside[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int q = from + b * EACH, row = p.y - 1 + q / COLS, column = p.x - 1 + q % COLS;
            inside[b] = q < POSITIONS && row >= 0 && row < image.H && column >= 0 && column < image.W;
            if (inside[b]) v[b] = load_shared(x + BOX::at(q, chunk));
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (inside[b]) store_shared(x + BOX::at(from + b * EACH, chunk), apply_chunk(v[b], k));
    }
    shared_publish(); /* a bulk copy writes here next */
}

#endif
