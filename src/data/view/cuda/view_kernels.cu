/* One row of the grid per image; its threads process that image's pixels, of which scratch memory holds far fewer
 * than an int counts. Compiled without fused multiply-add: the weights are the host's to the last bit. */
#include "data/view/cuda/view_kernels.h"

#include "data/view/resize_weights.h"
#include "tensor/cuda/vendor.cuh"

enum { THREADS = 256, BLOCKS = 64 }; /* blocks per image, each of which takes every 64th group of pixels */

#define FOR_EACH(i, n)                                                                                                 \
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < (n); i += (int)(gridDim.x * blockDim.x))

static __global__ void weights_kernel(const gpu_view *images, int size, int filter)
{
    const view_axis *a = &images[blockIdx.y].axis[blockIdx.z];
    resize_span s = resize_span_of(filter, a->in, size);
    FOR_EACH(i, size)
    {
        int64_t lo, hi;
        double sum = 0.0, centre = resize_centre(&s, i);
        resize_inputs(&s, centre, &lo, &hi);
        for (int64_t t = 0; t < hi - lo; t++) sum += resize_weight(&s, centre, lo, t);
        a->first[i] = (int32_t)lo;
        a->count[i] = (int32_t)(hi - lo);
        for (int64_t t = 0; t < hi - lo; t++) {
            double w = resize_weight(&s, centre, lo, t);
            a->k[(int64_t)i * a->taps + t] = resize_to_fixed(sum != 0.0 ? w / sum : w);
        }
    }
}

static __global__ void rgb_kernel(const gpu_view *images)
{
    const gpu_view *v = &images[blockIdx.y];
    int width = v->axis[0].in, height = v->axis[1].in;
    FOR_EACH(i, width * height)
    {
        uint8_t rgb[3];
        ycc_pixel(&v->planes, v->left + i % width, v->top + i / width, rgb);
        v->rgb[i] = make_uchar4(rgb[0], rgb[1], rgb[2], 0);
    }
}

/* Output i of an axis from inputs `stride` apart. */
static __device__ uchar4 weighted(const view_axis *a, int i, const uchar4 *in, int64_t stride)
{
    const int32_t *k = a->k + (int64_t)i * a->taps;
    int r = RESIZE_HALF, g = RESIZE_HALF, b = RESIZE_HALF;
    in += a->first[i] * stride;
    for (int t = 0, n = a->count[i]; t < n; t++, in += stride) {
        uchar4 p = *in;
        r += k[t] * p.x, g += k[t] * p.y, b += k[t] * p.z;
    }
    return make_uchar4(ycc_byte(r >> RESIZE_BITS), ycc_byte(g >> RESIZE_BITS), ycc_byte(b >> RESIZE_BITS), 0);
}

static __host__ __device__ bool is_down_first(const gpu_view *v, int size)
{
    return resize_down_first(v->axis[0].in, v->axis[1].in, size, size);
}

static __global__ void first_kernel(const gpu_view *images, int size)
{
    const gpu_view *v = &images[blockIdx.y];
    const view_axis *x = &v->axis[0], *y = &v->axis[1];
    if (is_down_first(v, size))
        FOR_EACH(i, size * x->in) v->mid[i] = weighted(y, i / x->in, v->rgb + i % x->in, x->in);
    else
        FOR_EACH(i, y->in * size) v->mid[i] = weighted(x, i % size, v->rgb + (int64_t)(i / size) * x->in, 1);
}

static __global__ void second_kernel(const gpu_view *images, int size)
{
    const gpu_view *v = &images[blockIdx.y];
    FOR_EACH(i, size * size)
    {
        int x = i % size, y = i / size;
        uchar4 p = is_down_first(v, size) ? weighted(&v->axis[0], x, v->mid + (int64_t)y * v->axis[0].in, 1)
                                          : weighted(&v->axis[1], y, v->mid + x, size);
        uint8_t *out = v->out + ((int64_t)y * size + (v->flip ? size - 1 - x : x)) * 3;
        out[0] = p.x, out[1] = p.y, out[2] = p.z;
    }
}

static size_t carve(uint8_t *base, size_t *used, size_t bytes, void **out)
{
    *out = base + *used;
    *used += (bytes + 255) / 256 * 256;
    return *used;
}

size_t gpu_view_carve(gpu_view *v, int size, int filter, uint8_t *base)
{
    size_t used = 0, n = (size_t)size, width = (size_t)v->axis[0].in, height = (size_t)v->axis[1].in;
    for (int d = 0; d < 2; d++) {
        view_axis *a = &v->axis[d];
        resize_span s = resize_span_of(filter, a->in, size);
        a->taps = (int32_t)resize_taps(&s);
        carve(base, &used, n * 4, (void **)&a->first);
        carve(base, &used, n * 4, (void **)&a->count);
        carve(base, &used, n * (size_t)a->taps * 4, (void **)&a->k);
    }
    carve(base, &used, width * height * sizeof(uchar4), (void **)&v->rgb);
    return carve(base, &used, (is_down_first(v, size) ? width : height) * n * sizeof(uchar4), (void **)&v->mid);
}

cudaError_t gpu_views_run(const gpu_view *images, int n, int size, int filter, cudaStream_t stream)
{
    dim3 grid(BLOCKS, (unsigned)n), axes((unsigned)((size + THREADS - 1) / THREADS), (unsigned)n, 2);
    weights_kernel<<<axes, THREADS, 0, stream>>>(images, size, filter);
    rgb_kernel<<<grid, THREADS, 0, stream>>>(images);
    first_kernel<<<grid, THREADS, 0, stream>>>(images, size);
    second_kernel<<<grid, THREADS, 0, stream>>>(images, size);
    return cudaGetLastError();
}
