/* Convolutions by plain loops, one output a thread, for what cuDNN has no engine for; and windows copied out
 * as rows. */
#include "nn/cuda/common.cuh"
#include "nn/cuda/patches.h"

typedef struct sizes {
    int64_t N, H, W, C, O, K, c, Ho, Wo, s, p;
} sizes;

template <typename T>
static __global__ void __launch_bounds__(256) forward_kernel(T *y, const T *x, const T *w, sizes z, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    int64_t o = at % z.O, j = at / z.O % z.Wo, i = at / z.O / z.Wo % z.Ho, b = at / z.O / z.Wo / z.Ho;
    float sum = 0.0f;
    for (int64_t u = 0; u < z.K; u++)
        for (int64_t v = 0; v < z.K; v++) {
            int64_t h = i * z.s + u - z.p, k = j * z.s + v - z.p;
            if (h < 0 || h >= z.H || k < 0 || k >= z.W) continue;
            const T *xi = x + ((b * z.H + h) * z.W + k) * z.C, *wi = w + ((o * z.K + u) * z.K + v) * z.c;
            for (int64_t c = 0; c < z.c; c++) sum += to_float(xi[c]) * to_float(wi[c]);
        }
    y[at] = from_float<T>(sum);
}

/* dx gathers what every output that saw the position sends back. */
template <typename T>
static __global__ void __launch_bounds__(256) dx_kernel(T *dx, const T *w, const T *dy, sizes z, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    int64_t c = at % z.C, k = at / z.C % z.W, h = at / z.C / z.W % z.H, b = at / z.C / z.W / z.H;
    float sum = 0.0f;
    for (int64_t u = 0; u < z.K && c < z.c; u++)
        for (int64_t v = 0; v < z.K; v++) {
            int64_t i = h + z.p - u, j = k + z.p - v;
            if (i < 0 || j < 0 || i % z.s || j % z.s || i / z.s >= z.Ho || j / z.s >= z.Wo) continue;
            const T *yi = dy + ((b * z.Ho + i / z.s) * z.Wo + j / z.s) * z.O;
            for (int64_t o = 0; o < z.O; o++) sum += to_float(yi[o]) * to_float(w[((o * z.K + u) * z.K + v) * z.c + c]);
        }
    dx[at] = from_float<T>(sum);
}

/* A warp per weight: lanes share the positions. */
template <typename T>
static __global__ void __launch_bounds__(256) dw_kernel(float *dw, const T *x, const T *dy, sizes z, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * 8 + threadIdx.y, positions = z.N * z.Ho * z.Wo;
    if (at >= n) return;
    int64_t c = at % z.c, v = at / z.c % z.K, u = at / z.c / z.K % z.K, o = at / z.c / z.K / z.K;
    float sum = 0.0f;
    for (int64_t r = threadIdx.x; r < positions; r += 32) {
        int64_t j = r % z.Wo, i = r / z.Wo % z.Ho, b = r / z.Wo / z.Ho, h = i * z.s + u - z.p, k = j * z.s + v - z.p;
        if (h < 0 || h >= z.H || k < 0 || k >= z.W) continue;
        sum += to_float(dy[r * z.O + o]) * to_float(x[((b * z.H + h) * z.W + k) * z.C + c]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) dw[at] = sum;
}

/* A thread per element of the result. */
template <typename T>
static __global__ void __launch_bounds__(256) patches_kernel(T *to, const T *x, sizes z, int64_t n)
{
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (int64_t)gridDim.x * blockDim.x) {
        int64_t c = at % z.c, v = at / z.c % z.K, u = at / z.c / z.K % z.K, r = at / z.c / z.K / z.K;
        int64_t j = r % z.Wo, i = r / z.Wo % z.Ho, b = r / z.Wo / z.Ho;
        to[at] = x[((b * z.H + i * z.K + u) * z.W + j * z.K + v) * z.C + c];
    }
}

static sizes sizes_of(const op_args *a, const tensor *x, const tensor *w, const tensor *y)
{
    sizes z = { x->dim[0], x->dim[1], x->dim[2], x->dim[3],      w->dim[0],  w->dim[1],
                w->dim[3], y->dim[1], y->dim[2], a->attr.stride, a->attr.pad };
    return z;
}

extern "C" cloob_status conv_plain(const op_env *env, const op_args *a, const tensor *x, const tensor *w,
                                   const tensor *y)
{
    int64_t n = tensor_count(y);
    WITH_TYPE(x->dtype, forward_kernel<T><<<blocks_for(n), 256, 0, stream_of(env)>>>((T *)y->data, (const T *)x->data,
                                                                                     (const T *)w->data,
                                                                                     sizes_of(a, x, w, y), n));
    return cuda_launched(env->ctx, "conv2d");
}

extern "C" cloob_status conv_dx_plain(const op_env *env, const op_args *a, const tensor *dx, const tensor *w,
                                      const tensor *dy)
{
    int64_t n = tensor_count(dx);
    WITH_TYPE(dx->dtype,
              dx_kernel<T><<<blocks_for(n), 256, 0, stream_of(env)>>>((T *)dx->data, (const T *)w->data,
                                                                      (const T *)dy->data, sizes_of(a, dx, w, dy), n));
    return cuda_launched(env->ctx, "conv2d_dx");
}

extern "C" cloob_status conv_dw_plain(const op_env *env, const op_args *a, const tensor *x, const tensor *dw,
                                      const tensor *dy)
{
    int64_t n = tensor_count(dw);
    WITH_TYPE(x->dtype, dw_kernel<T><<<(unsigned)((n + 7) / 8), dim3(32, 8), 0, stream_of(env)>>>(
                            (float *)dw->data, (const T *)x->data, (const T *)dy->data, sizes_of(a, x, dw, dy), n));
    return cuda_launched(env->ctx, "conv2d_dw");
}

/* The same where windows take all channels: each of their rows is K C neighbours, `packs` packs. */
template <typename T, int V>
static __global__ void __launch_bounds__(256) rows_kernel(T *to, const T *x, sizes z, unsigned packs, unsigned n)
{
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, K = (unsigned)z.K, Wo = (unsigned)z.Wo, Ho = (unsigned)z.Ho;
    if (at >= n) return;
    unsigned p = at % packs, line = at / packs, u = line % K, r = line / K, j = r % Wo, q = r / Wo, i = q % Ho,
             b = q / Ho;
    const T *from = x + (((int64_t)b * z.H + i * K + u) * z.W + (int64_t)j * K) * z.C;
    store<T, V>(to + (int64_t)at * V, load<T, V>(from + p * V));
}

extern "C" cloob_status patches_cuda(const op_env *env, void *to, const tensor *x, int64_t K, int64_t c)
{
    sizes z = { x->dim[0], x->dim[1], x->dim[2], x->dim[3], 0, K, c, x->dim[1] / K, x->dim[2] / K, K, 0 };
    int64_t n = z.N * z.Ho * z.Wo * K * K * c;
    unsigned blocks = n < 65536 * 256 ? blocks_for(n) : 65536;
    int V = pack_width(x->dtype, K * c);
    if (z.c == z.C && V > 1 && z.W * z.C % V == 0 && n / V < (int64_t)1 << 31) {
        WITH_PACK(x->dtype, K * c,
                  (rows_kernel<T, V><<<blocks_for(n / V), 256, 0, stream_of(env)>>>((T *)to, (const T *)x->data, z,
                                                                                    (unsigned)(K * c / V),
                                                                                    (unsigned)(n / V))));
        return cuda_launched(env->ctx, "conv2d");
    }
    WITH_TYPE(x->dtype, patches_kernel<T><<<blocks, 256, 0, stream_of(env)>>>((T *)to, (const T *)x->data, z, n));
    return cuda_launched(env->ctx, "conv2d");
}
