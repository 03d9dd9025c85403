/* Convolution of each channel by its own kernel: a thread per element of the result; the weights' gradient by
 * blocks of 32 channels for each place of the kernel, sums always in the same order. */
#include "nn/cuda/common.cuh"

template <typename T>
static __global__ void __launch_bounds__(256)
    dwconv_kernel(T *y, const T *x, const T *w, int64_t items, int H, int W, int C, int k, bool turned)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= items) return;
    int c = (int)(at % C), j = (int)(at / C % W), i = (int)(at / C / W % H), half = k / 2, K = k * k;
    const T *image = x + (at / C - (int64_t)i * W - j) * C + c, *kernel = w + (int64_t)c * K;
    float sum = 0.0f;
    for (int u = max(0, half - i); u < min(k, H + half - i); u++)
        for (int v = max(0, half - j); v < min(k, W + half - j); v++) {
            int p = u * k + v;
            sum += to_float(image[((int64_t)(i + u - half) * W + j + v - half) * C]) *
                   to_float(kernel[turned ? K - 1 - p : p]);
        }
    y[at] = from_float<T>(sum);
}

/* blockIdx.y: the place (u, v) of the kernel. 32 channels a block, 8 threads share the positions. */
template <typename T>
static __global__ void dwconv_dw_kernel(float *dw, const T *dy, const T *x, int64_t positions, int H, int W, int C,
                                        int k)
{
    __shared__ float part[8][32];
    int c = blockIdx.x * 32 + threadIdx.x, p = blockIdx.y, down = p / k - k / 2, right = p % k - k / 2;
    float sum = 0.0f;
    for (int64_t at = threadIdx.y; c < C && at < positions; at += 8) {
        int j = (int)(at % W) + right, i = (int)(at / W % H) + down;
        if (i >= 0 && i < H && j >= 0 && j < W)
            sum += to_float(dy[at * C + c]) * to_float(x[(at + (int64_t)down * W + right) * C + c]);
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= C) return;
    for (int n = 1; n < 8; n++) sum += part[n][threadIdx.x];
    dw[(int64_t)c * k * k + p] = sum;
}

static cloob_status run(const op_env *env, const char *op, const op_args *a, bool turned)
{
    const tensor *x = &a->in[0], *w = &a->in[1];
    int64_t items = tensor_count(x);
    WITH_TYPE(x->dtype, dwconv_kernel<T>
              <<<blocks_for(items), 256, 0, stream_of(env)>>>((T *)a->out[0].data, (const T *)x->data,
                                                              (const T *)w->data, items, (int)x->dim[1], (int)x->dim[2],
                                                              (int)x->dim[3], (int)w->dim[1], turned));
    return cuda_launched(env->ctx, op);
}

extern "C" cloob_status dwconv_cuda(const op_env *env, const op_args *a) { return run(env, "dwconv", a, false); }

extern "C" cloob_status dwconv_dx_cuda(const op_env *env, const op_args *a) { return run(env, "dwconv_dx", a, true); }

extern "C" cloob_status dwconv_dw_cuda(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1];
    int k = (int)a->out[0].dim[1];
    dim3 grid((unsigned)((x->dim[3] + 31) / 32), (unsigned)(k * k));
    WITH_TYPE(x->dtype, dwconv_dw_kernel<T>
              <<<grid, dim3(32, 8), 0, stream_of(env)>>>((float *)a->out[0].data, (const T *)dy->data,
                                                         (const T *)x->data, tensor_rows(x), (int)x->dim[1],
                                                         (int)x->dim[2], (int)x->dim[3], k));
    return cuda_launched(env->ctx, "dwconv_dw");
}
