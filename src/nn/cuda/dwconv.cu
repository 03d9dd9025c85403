/* Convolution of each channel by its own kernels: a thread per element of the result; the weights' gradient by
 * blocks of 32 channels for each place of the kernel, sums always in the same order. */
#include "nn/cuda/common.cuh"

/* x (N,H,W,C), y (N,Ho,Wo,mC). */
typedef struct dw_sizes {
    int H, W, C, k, Ho, Wo, s, m;
} dw_sizes;

static dw_sizes sizes_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *attr)
{
    return { (int)x->dim[1], (int)x->dim[2], (int)x->dim[3],    (int)w->dim[1],
             (int)y->dim[1], (int)y->dim[2], (int)attr->stride, (int)(w->dim[0] / x->dim[3]) };
}

extern "C" cloob_status dwconv_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    const float *bias = data_of<float>(&a->in[2]);
    dw_sizes z = sizes_of(in, &a->in[1], out, &a->attr);
    WITH_TYPE(in->dtype, {
        T *y = data_of<T>(out);
        const T *x = data_of<T>(in), *w = data_of<T>(&a->in[1]);
        return for_each(env, "dwconv", tensor_count(out), [=] __device__(int64_t at) {
            int O = z.C * z.m, o = (int)(at % O), half = z.k / 2;
            int64_t place = at / O, n = place / z.Wo / z.Ho;
            int j = (int)(place % z.Wo) * z.s - half, i = (int)(place / z.Wo % z.Ho) * z.s - half;
            const T *image = x + n * z.H * z.W * z.C + o / z.m, *kernel = w + (int64_t)o * z.k * z.k;
            float sum = bias ? bias[o] : 0.0f;
            for (int u = max(0, -i); u < min(z.k, z.H - i); u++)
                for (int v = max(0, -j); v < min(z.k, z.W - j); v++)
                    sum += to_float(image[((int64_t)(i + u) * z.W + j + v) * z.C]) * to_float(kernel[u * z.k + v]);
            y[at] = from_float<T>(sum);
        });
    });
}

extern "C" cloob_status dwconv_dx_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    dw_sizes z = sizes_of(out, &a->in[1], in, &a->attr);
    WITH_TYPE(in->dtype, {
        T *dx = data_of<T>(out);
        const T *dy = data_of<T>(in), *w = data_of<T>(&a->in[1]);
        return for_each(env, "dwconv_dx", tensor_count(out), [=] __device__(int64_t at) {
            int c = (int)(at % z.C), O = z.C * z.m, K = z.k * z.k, half = z.k / 2;
            int64_t place = at / z.C, n = place / z.W / z.H;
            int l = (int)(place % z.W) + half, h = (int)(place / z.W % z.H) + half;
            float sum = 0.0f;
            for (int u = 0; u < z.k; u++)
                for (int v = 0; v < z.k; v++) {
                    int i = h - u, j = l - v;
                    if (i < 0 || j < 0 || i % z.s || j % z.s || i / z.s >= z.Ho || j / z.s >= z.Wo) continue;
                    const T *from = dy + ((n * z.Ho + i / z.s) * z.Wo + j / z.s) * O + (int64_t)c * z.m;
                    for (int q = 0; q < z.m; q++)
                        sum += to_float(from[q]) * to_float(w[((int64_t)c * z.m + q) * K + u * z.k + v]);
                }
            dx[at] = from_float<T>(sum);
        });
    });
}

/* blockIdx.y: the place (u, v) of the kernel. 32 channels of dy a block, 8 threads share the positions. */
template <typename T>
static __global__ void dwconv_dw_kernel(float *dw, const T *dy, const T *x, int64_t positions, dw_sizes z)
{
    __shared__ float part[8][32];
    int O = z.C * z.m, o = blockIdx.x * 32 + threadIdx.x, p = blockIdx.y, down = p / z.k - z.k / 2,
        right = p % z.k - z.k / 2;
    float sum = 0.0f;
    for (int64_t at = threadIdx.y; o < O && at < positions; at += 8) {
        int j = (int)(at % z.Wo) * z.s + right, i = (int)(at / z.Wo % z.Ho) * z.s + down;
        int64_t n = at / z.Wo / z.Ho;
        if (i >= 0 && i < z.H && j >= 0 && j < z.W)
            sum += to_float(dy[at * O + o]) * to_float(x[((n * z.H + i) * z.W + j) * z.C + o / z.m]);
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || o >= O) return;
    for (int n = 1; n < 8; n++) sum += part[n][threadIdx.x];
    dw[(int64_t)o * z.k * z.k + p] = sum;
}

extern "C" cloob_status dwconv_dw_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0];
    dw_sizes z = sizes_of(x, dw, dy, &a->attr);
    dim3 grid((unsigned)((dy->dim[3] + 31) / 32), (unsigned)(z.k * z.k));
    WITH_TYPE(x->dtype,
              dwconv_dw_kernel<T><<<grid, dim3(32, 8), 0, stream_of(env)>>>(data_of<float>(dw), data_of<T>(dy),
                                                                            data_of<T>(x), tensor_rows(dy), z));
    return cuda_launched(env->ctx, "dwconv_dw");
}
