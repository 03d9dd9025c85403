/* Batch norm in place on boxes in shared memory: apply with ReLU before a convolution reads the box, and backward apply
 * before a weight gradient reads it as dy. The instructions are the same as in bn_apply and bn_bwd_apply, so that all
 * passes compute the same ReLU mask. */
#ifndef NN_CUDA_STEM_CONV_SMALL_NORM_CUH
#define NN_CUDA_STEM_CONV_SMALL_NORM_CUH

#include "nn/cuda/bn_common.cuh"
#include "nn/cuda/stem/conv_small.cuh"

typedef struct norm_in {
    const float *mean, *rstd, *gain, *bias, *sums; /* (C); sums (2, C), for backward */
    float count;                                   /* rows of the sums */
} norm_in;

static inline norm_in norm_of(const small_call *c)
{
    const float *const *v = c->data.norm;
    norm_in n = { v[0], v[1], v[2], v[3], c->data.sums, c->data.count };
    return n;
}

/* Coefficients per channel, (AFFINE, C) floats in shared memory, which are read for every tile because registers are
 * short: mean, slope, bias; backward two more factors. */
enum { AFFINE = 3, AFFINE_BWD = 5 };

template <int C>
__device__ __forceinline__ void affine_load(float *affine, const norm_in &n)
{
    int c = threadIdx.x;
    if (c < C) affine[c] = n.mean[c], affine[C + c] = n.rstd[c] * n.gain[c], affine[2 * C + c] = n.bias[c];
}

template <int C>
__device__ __forceinline__ void affine_bwd_load(float *affine, const norm_in &n)
{
    int c = threadIdx.x;
    affine_load<C>(affine, n);
    if (c >= C) return;
    affine[3 * C + c] = n.sums[c] / n.count;
    affine[4 * C + c] = n.sums[C + c] / n.count * n.rstd[c] * (n.rstd[c] * n.gain[c]);
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

/* Backward apply of batch norm for half a chunk of dy, masked by ReLU of x. */
struct backward_four {
    float mean[4], slope[4], bias[4], m1[4], m2[4];

    template <int C>
    __device__ __forceinline__ void load(unsigned affine, int half)
    {
        load_four(mean, affine + half * 16);
        load_four(slope, affine + 4 * C + half * 16);
        load_four(bias, affine + 8 * C + half * 16);
        load_four(m1, affine + 12 * C + half * 16);
        load_four(m2, affine + 16 * C + half * 16);
    }

    __device__ __forceinline__ float one(float dy, float x, int i) const
    {
        float g = fmaf(x - mean[i], slope[i], bias[i]) > 0.0f ? dy : 0.0f;
        return slope[i] * (g - m1[i]) - (x - mean[i]) * m2[i];
    }

    __device__ __forceinline__ uint2 operator()(uint2 dy, uint2 x) const
    {
        return make_uint2(pack2(one(bf16_low(dy.x), bf16_low(x.x), 0), one(bf16_high(dy.x), bf16_high(x.x), 1)),
                          pack2(one(bf16_low(dy.y), bf16_low(x.y), 2), one(bf16_high(dy.y), bf16_high(x.y), 3)));
    }
};

/* Backward apply of the box of dy at tile p, C channels, in place; x: the box of batch norm's input. Positions outside
 * the image stay 0. */
template <class BOX, int C, int THREADS>
__device__ __forceinline__ void backward_box(unsigned dy, unsigned x, tile_position p, const tile_grid &image,
                                             unsigned affine)
{
    const int HALVES = C / 4, EACH = THREADS / HALVES, BATCH = 4, POSITIONS = BOX::POSITIONS;
    int half = threadIdx.x % HALVES, first = threadIdx.x / HALVES;
    asm volatile("" : "+r"(half), "+r"(first));
    backward_four k;
    k.load<C>(affine, half);
#pragma unroll 1
    for (int from = first; from < POSITIONS && first < EACH; from += BATCH * EACH) {
        uint2 a[BATCH], b[BATCH];
        bool inside[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int q = from + i * EACH;
            inside[i] = q < POSITIONS && p.y + q / TILE < image.H && p.x + q % TILE < image.W;
            unsigned at = BOX::at(q, half / 2) + half % 2 * 8;
            if (inside[i]) a[i] = load_shared8(dy + at), b[i] = load_shared8(x + at);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (inside[i]) store_shared8(dy + BOX::at(from + i * EACH, half / 2) + half % 2 * 8, k(a[i], b[i]));
    }
    shared_publish(); /* a bulk copy writes here next */
}

#endif
