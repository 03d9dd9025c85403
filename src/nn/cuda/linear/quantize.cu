/* One pass: elements are rounded under the scale that the steps before left, and the largest of them is noted for the
 * next. The last block to finish writes the inverse scale, which the product behind this pass reads, and moves on. */
#include "nn/cuda/linear/quantize.h"

#include <cuda_fp8.h>

#include "nn/cuda/common.cuh"

enum { THREADS = 256, SIDE = 32 };

/* A power of two, so that scaling does not round; nn/ref/linear.c has the same. */
__device__ __forceinline__ float scale_for(float max, quant_format format)
{
    float limit = format == QUANT_E4M3 ? 448.0f : 57344.0f;
    if (!(max > 0.0f)) return 1.0f;
    return exp2f(fminf(fmaxf(floorf(log2f(0.5f * limit / max)), -100.0f), 100.0f));
}

__device__ __forceinline__ uint8_t round8(float v, quant_format format)
{
    return (uint8_t)__nv_cvt_float_to_fp8(v, __NV_SATFINITE, format == QUANT_E4M3 ? __NV_E4M3 : __NV_E5M2);
}

/* The block's largest |element| into the tensor's. Bits of floats that are not negative are ordered like them. */
__device__ __forceinline__ void note_largest(quant_scale *s, float max)
{
    __shared__ float part[THREADS / 32];
    max = warp_max(max);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = max;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++) max = fmaxf(max, part[i]);
        atomicMax(&s->current, __float_as_uint(max));
    }
}

/* By the thread that noted: the last of all blocks ends the step. An element that is not finite changes nothing. */
__device__ __forceinline__ void end_step(quant_scale *s, float scale)
{
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(&s->blocks, 1) + 1 < gridDim.x * gridDim.y) return;
    float current = __uint_as_float(atomicExch(&s->current, 0));
    s->inverse = 1.0f / scale;
    if (isfinite(current)) s->max = fmaxf(current, 0.95f * s->max);
    s->blocks = 0;
}

static __global__ void __launch_bounds__(THREADS) largest_kernel(quant_scale *s, const bf16 *x, int64_t packs)
{
    float max = 0.0f;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packs; i += (int64_t)gridDim.x * THREADS) {
        pack<bf16, 8> p = load<bf16, 8>(x + i * 8);
#pragma unroll
        for (int k = 0; k < 8; k++) max = fmaxf(max, fabsf(to_float(p.v[k])));
    }
    note_largest(s, max);
}

static __global__ void first_scale_kernel(quant_scale *s)
{
    float current = __uint_as_float(s->current);
    s->max = isfinite(current) ? current : 0.0f;
    s->current = 0;
}

static __global__ void __launch_bounds__(THREADS)
    round_kernel(uint8_t *to, const bf16 *from, int64_t packs, quant_format format, quant_scale *s)
{
    enum { U = 2 };
    float scale = scale_for(s->max, format), max = 0.0f;
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packs; i += U * step) {
        pack<bf16, 8> p[U][2];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int64_t at = (i + u * step < packs ? i + u * step : i) * 16;
            p[u][0] = load<bf16, 8>(from + at), p[u][1] = load<bf16, 8>(from + at + 8);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            pack<uint8_t, 16> out;
#pragma unroll
            for (int k = 0; k < 16; k++) {
                float v = to_float(p[u][k / 8].v[k % 8]);
                max = fmaxf(max, fabsf(v));
                out.v[k] = round8(v * scale, format);
            }
            if (i + u * step < packs) store<uint8_t, 16>(to + (i + u * step) * 16, out);
        }
    }
    note_largest(s, max);
    end_step(s, scale);
}

static __global__ void __launch_bounds__(THREADS)
    round_turned_kernel(uint8_t *to, const bf16 *from, int rows, int cols, quant_format format, quant_scale *s)
{
    __shared__ uint8_t cell[SIDE][SIDE + 4];
    float scale = scale_for(s->max, format), max = 0.0f;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, row0 = blockIdx.y * SIDE, col0 = blockIdx.x * SIDE;
    for (int i = y; i < SIDE && col0 + x < cols; i += THREADS / SIDE) {
        if (row0 + i >= rows) break;
        float v = to_float(from[(int64_t)(row0 + i) * cols + col0 + x]);
        max = fmaxf(max, fabsf(v));
        cell[i][x] = round8(v * scale, format);
    }
    note_largest(s, max); /* with a barrier */
    for (int i = y; i < SIDE && row0 + x < rows; i += THREADS / SIDE)
        if (col0 + i < cols) to[(int64_t)(col0 + i) * rows + row0 + x] = cell[x][i];
    end_step(s, scale);
}

extern "C" cloob_status quantize_cuda(const op_env *env, const char *op, void *to, const void *from, int64_t rows,
                                      int64_t cols, bool turned, quant_format format, quant_scale *scale, bool fresh)
{
    const cuda_state *s = (const cuda_state *)env->dev->state;
    int64_t packs = rows * cols / 16, max = (int64_t)s->sms * 8, want = (packs + THREADS - 1) / THREADS;
    unsigned blocks = (unsigned)(want < max ? want : max);
    cudaStream_t stream = stream_of(env);
    if (packs == 0) return CLOOB_OK;
    if (fresh) {
        largest_kernel<<<blocks, THREADS, 0, stream>>>(scale, (const bf16 *)from, packs * 2);
        first_scale_kernel<<<1, 1, 0, stream>>>(scale);
    }
    if (turned) {
        dim3 grid((unsigned)((cols + SIDE - 1) / SIDE), (unsigned)((rows + SIDE - 1) / SIDE));
        round_turned_kernel<<<grid, THREADS, 0, stream>>>((uint8_t *)to, (const bf16 *)from, (int)rows, (int)cols,
                                                          format, scale);
    } else round_kernel<<<blocks, THREADS, 0, stream>>>((uint8_t *)to, (const bf16 *)from, packs, format, scale);
    return cuda_launched(env->ctx, op);
}
