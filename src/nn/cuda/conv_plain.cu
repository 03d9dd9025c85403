/* Convolutions by plain loops, one output a thread, for what cuDNN has no engine for; and windows copied out
 * as rows. */
#include "nn/cuda/common.cuh"

typedef struct sizes {
    int64_t N, H, W, C, O, K, c, Ho, Wo, s, p;
} sizes;

static sizes sizes_of(const op_args *a, const tensor *x, const tensor *w, const tensor *y)
{
    return { x->dim[0], x->dim[1], x->dim[2], x->dim[3],      w->dim[0],  w->dim[1],
             w->dim[3], y->dim[1], y->dim[2], a->attr.stride, a->attr.pad };
}

extern "C" cloob_status conv_plain(const op_env *env, const op_args *a, const tensor *in, const tensor *weight,
                                   const tensor *out)
{
    sizes z = sizes_of(a, in, weight, out);
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(in), *w = data_of<T>(weight);
        return for_each(env, "conv2d", tensor_count(out), [=] __device__(int64_t at) {
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
        });
    });
}

/* dx sums over every output that read the position. */
extern "C" cloob_status conv_dx_plain(const op_env *env, const op_args *a, const tensor *out, const tensor *weight,
                                      const tensor *in)
{
    sizes z = sizes_of(a, out, weight, in);
    WITH_TYPE(out->dtype, {
        T *dx = data_of<T>(out);
        const T *w = data_of<T>(weight), *dy = data_of<T>(in);
        return for_each(env, "conv2d_dx", tensor_count(out), [=] __device__(int64_t at) {
            int64_t c = at % z.C, k = at / z.C % z.W, h = at / z.C / z.W % z.H, b = at / z.C / z.W / z.H;
            float sum = 0.0f;
            for (int64_t u = 0; u < z.K && c < z.c; u++)
                for (int64_t v = 0; v < z.K; v++) {
                    int64_t i = h + z.p - u, j = k + z.p - v;
                    if (i < 0 || j < 0 || i % z.s || j % z.s || i / z.s >= z.Ho || j / z.s >= z.Wo) continue;
                    const T *yi = dy + ((b * z.Ho + i / z.s) * z.Wo + j / z.s) * z.O;
                    for (int64_t o = 0; o < z.O; o++)
                        sum += to_float(yi[o]) * to_float(w[((o * z.K + u) * z.K + v) * z.c + c]);
                }
            dx[at] = from_float<T>(sum);
        });
    });
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

extern "C" cloob_status conv_dw_plain(const op_env *env, const op_args *a, const tensor *x, const tensor *dw,
                                      const tensor *dy)
{
    int64_t n = tensor_count(dw);
    WITH_TYPE(x->dtype, dw_kernel<T>
              <<<(unsigned)((n + 7) / 8), dim3(32, 8), 0, stream_of(env)>>>(data_of<float>(dw), data_of<T>(x),
                                                                            data_of<T>(dy), sizes_of(a, x, dw, dy), n));
    return cuda_launched(env->ctx, "conv2d_dw");
}

/* Each row of a window is K c neighbours where c is all channels: then in packs, which 32-bit numbers index. */
extern "C" cloob_status patches_cuda(const op_env *env, void *out, const tensor *in, int64_t K, int64_t c)
{
    sizes z = { in->dim[0], in->dim[1], in->dim[2], in->dim[3], 0, K, c, in->dim[1] / K, in->dim[2] / K, K, 0 };
    int64_t n = z.N * z.Ho * z.Wo * K * K * c;
    int width = pack_width(in->dtype, K * c);
    if (z.c == z.C && width > 1 && z.W * z.C % width == 0 && n / width < (int64_t)1 << 31)
        WITH_PACK(in->dtype, K * c, {
            T *to = (T *)out;
            const T *x = data_of<T>(in);
            unsigned packs = (unsigned)(K * c / V), k = (unsigned)K, Wo = (unsigned)z.Wo, Ho = (unsigned)z.Ho;
            return for_each(env, "conv2d", n / V, [=] __device__(int64_t i) {
                unsigned at = (unsigned)i, p = at % packs, line = at / packs, u = line % k, r = line / k, j = r % Wo,
                         q = r / Wo, h = q % Ho, b = q / Ho;
                const T *from = x + (((int64_t)b * z.H + h * k + u) * z.W + (int64_t)j * k) * z.C;
                store<T, V>(to + (int64_t)at * V, load<T, V>(from + p * V));
            });
        });
    WITH_TYPE(in->dtype, {
        T *to = (T *)out;
        const T *x = data_of<T>(in);
        return for_each(env, "conv2d", n, [=] __device__(int64_t at) {
            int64_t k = at % z.c, v = at / z.c % z.K, u = at / z.c / z.K % z.K, r = at / z.c / z.K / z.K;
            int64_t j = r % z.Wo, i = r / z.Wo % z.Ho, b = r / z.Wo / z.Ho;
            to[at] = x[((b * z.H + i * z.K + u) * z.W + j * z.K + v) * z.C + k];
        });
    });
}
