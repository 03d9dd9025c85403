/* One pass: elements are rounded under the scale that the steps before left, and the largest of them is noted for the
 * next. The last block to finish writes the inverse scale, which the product behind this pass reads, and moves on. */
#include "nn/cuda/linear/quantize.cuh"

#include <stdlib.h>

enum { THREADS = 256, SIDE = 32 };

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

template <quant_format F>
static __global__ void __launch_bounds__(THREADS)
    round_kernel(uint8_t *to, const bf16 *from, int64_t packs, quant_scale *s, float *tail)
{
    enum { U = 2 };
    float scale = scale_for(s->max, F), max = 0.0f;
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
            uint2 low = round_pack<F>(p[u][0], scale, &max), high = round_pack<F>(p[u][1], scale, &max);
            if (i + u * step < packs)
                *reinterpret_cast<uint4 *>(to + (i + u * step) * 16) = make_uint4(low.x, low.y, high.x, high.y);
        }
    }
    note_largest(s, max);
    end_step(s, scale, tail);
}

static __global__ void __launch_bounds__(THREADS)
    round_turned_kernel(uint8_t *to, const bf16 *from, int rows, int cols, quant_scale *s)
{
    __shared__ uint8_t cell[SIDE][SIDE + 4];
    float scale = scale_for(s->max, QUANT_E4M3), max = 0.0f;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, row0 = blockIdx.y * SIDE, col0 = blockIdx.x * SIDE;
    for (int i = y; i < SIDE && col0 + x < cols; i += THREADS / SIDE) {
        if (row0 + i >= rows) break;
        float v = to_float(from[(int64_t)(row0 + i) * cols + col0 + x]);
        max = fmaxf(max, fabsf(v));
        cell[i][x] = (uint8_t)__nv_cvt_float_to_fp8(v * scale, __NV_SATFINITE, __NV_E4M3);
    }
    note_largest(s, max); /* with a barrier */
    for (int i = y; i < SIDE && row0 + x < rows; i += THREADS / SIDE)
        if (col0 + i < cols) to[(int64_t)(col0 + i) * rows + row0 + x] = cell[x][i];
    end_step(s, scale, NULL);
}

static void first_scale(const op_env *env, quant_scale *scale, const void *from, int64_t packs, unsigned blocks)
{
    largest_kernel<<<blocks, THREADS, 0, stream_of(env)>>>(scale, (const bf16 *)from, packs);
    first_scale_kernel<<<1, 1, 0, stream_of(env)>>>(scale);
}

extern "C" cloob_status quantize_cuda(const op_env *env, const char *op, void *to, const void *from, int64_t count,
                                      quant_format format, quant_scale *scale, float *tail, bool fresh)
{
    const cuda_state *s = (const cuda_state *)env->dev->state;
    int64_t packs = count / 16, max = (int64_t)s->sms * 8, want = (packs + THREADS - 1) / THREADS;
    unsigned blocks = (unsigned)(want < max ? want : max);
    cudaStream_t stream = stream_of(env);
    if (packs == 0) return CLOOB_OK;
    if (fresh) first_scale(env, scale, from, packs * 2, blocks);
    auto kernel = format == QUANT_E4M3 ? round_kernel<QUANT_E4M3> : round_kernel<QUANT_E5M2>;
    kernel<<<blocks, THREADS, 0, stream>>>((uint8_t *)to, (const bf16 *)from, packs, scale, tail);
    return cuda_launched(env->ctx, op);
}

extern "C" cloob_status quantize_turned_cuda(const op_env *env, const char *op, void *to, const void *from,
                                             int64_t rows, int64_t cols, quant_scale *scale, bool fresh)
{
    dim3 grid((unsigned)((cols + SIDE - 1) / SIDE), (unsigned)((rows + SIDE - 1) / SIDE));
    if (rows * cols == 0) return CLOOB_OK;
    if (fresh) first_scale(env, scale, from, rows * cols / 8, 256);
    round_turned_kernel<<<grid, THREADS, 0, stream_of(env)>>>((uint8_t *)to, (const bf16 *)from, (int)rows, (int)cols,
                                                              scale);
    return cuda_launched(env->ctx, op);
}

/* ---- a scale per row ----------------------------------------------------------------------------- */

enum { WARPS = 8 };

/* A warp to a row, which it reads twice: for its largest element, and to round it (from the cache). */
static __device__ __forceinline__ float row_largest(const bf16 *x, int64_t k)
{
    float max = 0.0f;
    for (int64_t i = threadIdx.x * 8; i < k; i += 32 * 8) {
        pack<bf16, 8> p = load<bf16, 8>(x + i);
#pragma unroll
        for (int j = 0; j < 8; j++) max = fmaxf(max, fabsf(to_float(p.v[j])));
    }
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(max)));
}

static __global__ void __launch_bounds__(32 * WARPS)
    rows_kernel(uint8_t *to, float *inverse, const bf16 *from, int64_t rows, int64_t k)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows) return;
    const bf16 *x = from + row * k;
    float max = row_largest(x, k), scale = max > 0.0f ? 448.0f / max : 1.0f, unused = 0.0f;
    for (int64_t i = threadIdx.x * 8; i < k; i += 32 * 8)
        *reinterpret_cast<uint2 *>(to + row * k + i) = round_pack<QUANT_E4M3>(load<bf16, 8>(x + i), scale, &unused);
    if (threadIdx.x == 0) inverse[row] = max > 0.0f ? max / 448.0f : 1.0f;
}

extern "C" cloob_status quantize_rows_cuda(const op_env *env, const char *op, void *to, float *inverse,
                                           const void *from, int64_t rows, int64_t k)
{
    if (rows == 0) return CLOOB_OK;
    rows_kernel<<<(unsigned)((rows + WARPS - 1) / WARPS), dim3(32, WARPS), 0, stream_of(env)>>>((uint8_t *)to, inverse,
                                                                                                (const bf16 *)from,
                                                                                                rows, k);
    return cuda_launched(env->ctx, op);
}

/* ---- copies by the op that writes the tensor ----------------------------------------------------- */

/* For kernels that noted the largest element and left the rest. */
static __global__ void end_kernel(quant_scale *s, float *tail, quant_format format)
{
    float inverse = 1.0f / scale_for(s->max, format), current = __uint_as_float(s->current);
    s->current = 0;
    s->inverse = *tail = inverse;
    if (isfinite(current)) s->max = fmaxf(current, 0.95f * s->max);
}

extern "C" cloob_status rounding_open(const op_env *env, rounding *r)
{
    void *place;
    r->fresh = true;
    CLOOB_TRY(env->dev->alloc(env->ctx, env->dev, sizeof *r->scale, "8-bit scales", &place));
    r->scale = (quant_scale *)place;
    return CLOOB_OK;
}

extern "C" cloob_status rounding_prepare_cuda(const op_env *env, op_args *a)
{
    if (!op_has(&a->out[OP_ROUNDED_OUT])) return CLOOB_OK;
    rounding *r = (rounding *)calloc(1, sizeof *r);
    a->state = r;
    if (!r) return ctx_no_memory(env->ctx, sizeof *r, "an 8-bit copy");
    return rounding_open(env, r);
}

extern "C" void rounding_release_cuda(const op_env *env, op_args *a)
{
    rounding *r = (rounding *)a->state;
    if (r && r->scale) env->dev->free(env->dev, r->scale);
    free(r);
    a->state = NULL;
}

extern "C" bool rounding_is_fused(const op_args *a)
{
    return a->out[OP_ROUNDED_OUT].data && !((const rounding *)a->state)->fresh;
}

extern "C" cloob_status rounding_pass(const op_env *env, const char *op, const op_args *a, quant_format format)
{
    if (!a->out[OP_ROUNDED_OUT].data) return CLOOB_OK;
    round_out to = round_out_of(a);
    rounding *r = (rounding *)a->state;
    bool fresh = r->fresh;
    r->fresh = false;
    return quantize_cuda(env, op, to.to, a->out[0].data, tensor_count(&a->out[0]), format, to.scale, to.tail, fresh);
}

extern "C" cloob_status rounding_end(const op_env *env, const char *op, const op_args *a, quant_format format)
{
    round_out to = round_out_of(a);
    end_kernel<<<1, 1, 0, stream_of(env)>>>(to.scale, to.tail, format);
    return cuda_launched(env->ctx, op);
}
