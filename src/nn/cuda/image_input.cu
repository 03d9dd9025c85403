/* Images in: bytes or floats become what the first convolution reads, positions by themselves or windows as rows. */
#include "nn/cuda/common.cuh"

typedef struct image_norm {
    float mean[3], scale[3];
} image_norm;

/* The first three of C channels are given, the rest is 0; written in packs. */
template <typename T, int V>
__device__ __forceinline__ void put_position(T *y, const float v[3], int C)
{
    for (int c = 0; c < C; c += V) {
        pack<T, V> out;
#pragma unroll
        for (int j = 0; j < V; j++)
            out.v[j] = from_float<T>(c + j == 0 ? v[0] : c + j == 1 ? v[1] : c + j == 2 ? v[2] : 0.0f);
        store<T, V>(y + c, out);
    }
}

typedef struct patch_sizes {
    unsigned P, H, W; /* side of a window; the image */
    unsigned packs;   /* of an image */
    int64_t N;
} patch_sizes;

/* Where pack `at` of an image's windows comes from: line, column and channel. */
typedef struct patch_place {
    unsigned i, j, c;
} patch_place;

template <int V>
__device__ __forceinline__ patch_place place_of(unsigned at, const patch_sizes &z)
{
    unsigned packs = z.P * 3 / V, p = at % packs * V, line = at / packs, r = line / z.P, across = z.W / z.P;
    return { r / across * z.P + line % z.P, r % across * z.P + p / 3, p % 3 };
}

/* Windows as rows: a thread per pack of an image, for every gridDim.y-th image. The 3 x 256 values that bytes become
 * are in a table. */
template <typename T, int V>
static __global__ void __launch_bounds__(256) byte_patches_kernel(T *y, const uint8_t *x, image_norm m, patch_sizes z)
{
    __shared__ float value[3 * 256];
    for (int i = threadIdx.x; i < 3 * 256; i += 256)
        value[i] = ((float)(i % 256) / 255.0f - m.mean[i / 256]) / m.scale[i / 256];
    __syncthreads();
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= z.packs) return;
    patch_place w = place_of<V>(at, z);
#pragma unroll 4
    for (int64_t n = blockIdx.y; n < z.N; n += gridDim.y) {
        pack<uint8_t, V> in = load<uint8_t, V>(x + ((n * z.H + w.i) * z.W + w.j) * 3 + w.c);
        pack<T, V> out;
#pragma unroll
        for (int k = 0; k < V; k++) out.v[k] = from_float<T>(value[(w.c + k) % 3 * 256 + in.v[k]]);
        store<T, V>(y + (n * z.packs + at) * V, out);
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(256) plane_patches_kernel(T *y, const float *x, patch_sizes z)
{
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= z.packs) return;
    patch_place w = place_of<V>(at, z);
    for (int64_t n = blockIdx.y; n < z.N; n += gridDim.y) {
        pack<T, V> out;
#pragma unroll
        for (int k = 0; k < V; k++)
            out.v[k] = from_float<T>(x[((n * 3 + (w.c + k) % 3) * z.H + w.i) * z.W + w.j + (w.c + k) / 3]);
        store<T, V>(y + (n * z.packs + at) * V, out);
    }
}

static image_norm norm_of(const op_attr *attr)
{
    image_norm m;
    for (int c = 0; c < 3; c++) m.mean[c] = attr->mean[c], m.scale[c] = attr->std[c];
    return m;
}

static cloob_status patches_input(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    unsigned P = (unsigned)a->attr.patch;
    patch_sizes z = { P, (unsigned)y->dim[1] * P, (unsigned)y->dim[2] * P, 0, y->dim[0] };
    WITH_PACK(y->dtype, 3 * P, {
        z.packs = z.H * z.W * 3 / V;
        dim3 grid(blocks_for(z.packs));
        grid.y = (unsigned)min(z.N, resident_blocks(env, byte_patches_kernel<T, V>) / grid.x + 1);
        if (x->dtype == CLOOB_U8)
            byte_patches_kernel<T, V>
                <<<grid, 256, 0, stream_of(env)>>>((T *)y->data, (const uint8_t *)x->data, norm_of(&a->attr), z);
        else plane_patches_kernel<T, V><<<grid, 256, 0, stream_of(env)>>>((T *)y->data, (const float *)x->data, z);
    });
    return cuda_launched(env->ctx, "image_input");
}

/* A thread per position. Bytes are (N, HW, 3), floats (N, 3, HW). */
extern "C" cloob_status image_input_cuda(const op_env *env, const op_args *a)
{
    const tensor *in = &a->in[0], *out = &a->out[0];
    int64_t HW = out->dim[1] * out->dim[2], positions = out->dim[0] * HW;
    int C = (int)out->dim[3];
    image_norm m = norm_of(&a->attr);
    if (a->attr.patch > 1) return patches_input(env, a);
    WITH_PACK(out->dtype, C, {
        T *y = data_of<T>(out);
        const uint8_t *bytes = in->dtype == CLOOB_U8 ? data_of<uint8_t>(in) : NULL;
        const float *x = data_of<float>(in);
        return for_each(env, "image_input", positions, [=] __device__(int64_t i) {
            int64_t n = i / HW, p = i % HW;
            float v[3];
            for (int c = 0; c < 3; c++)
                v[c] = bytes ? ((float)bytes[i * 3 + c] / 255.0f - m.mean[c]) / m.scale[c] : x[(n * 3 + c) * HW + p];
            put_position<T, V>(y + i * C, v, C);
        });
    });
}
