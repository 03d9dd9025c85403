/* nvJPEG in batches on a stream of its own, and the kernels behind it. */
#include "data/view/device_view.h"

#include <stdio.h>
#include <stdlib.h>

#include "data/view/cuda/view_kernels.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/nvjpeg.h"

enum { MAX_JOBS = 64 }; /* files in one call of nvJPEG */

struct device_decoder {
    device *dev;
    nvjpeg_backend backend;
    bool exact;
    char name[96];
};

struct device_view {
    device_decoder *d;
    int size, filter;
    nvjpeg_handle handle; /* calls with one handle take turns inside nvJPEG, so every thread has its own */
    nvjpeg_state state;
    int state_images; /* how many the state is made ready for */
    cudaStream_t stream;
    cudaEvent_t finished; /* waiting for it does not keep a core busy */
    uint8_t *scratch;     /* DEVICE_VIEW_BYTES on the device */
    gpu_view *images;     /* (MAX_JOBS) on the device */
    gpu_view *described;  /* the same in page-locked memory */
};

/* ---- the decoder ----------------------------------------------------------------------------------------- */

/* The fastest first: on an H200 16,800 images a second against 3,950 (docs/measurements/gpu.md). */
static cloob_status choose_backend(cloob_ctx *ctx, device_decoder *d)
{
    static const struct {
        nvjpeg_backend backend;
        const char *name;
    } rows[] = { { NVJPEG_ENGINES, "hardware decoders" }, { NVJPEG_KERNELS, "multiprocessors" } };
    int code = NVJPEG_OK, major = 0, minor = 0;
    nvjpeg_handle handle;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        code = nvjpeg.nvjpegCreateEx((int)rows[i].backend, NULL, NULL, 0, &handle);
        if (code != NVJPEG_OK) continue;
        nvjpeg.nvjpegDestroy(handle);
        d->backend = rows[i].backend;
        d->exact = rows[i].backend == NVJPEG_ENGINES;
        nvjpeg.nvjpegGetProperty(0, &major);
        nvjpeg.nvjpegGetProperty(1, &minor);
        snprintf(d->name, sizeof d->name, "nvJPEG %d.%d, %s", major, minor, rows[i].name);
        return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "nvJPEG does not start on %s (error %d); use `image_decoder` cpu",
                    d->dev->name, code);
}

cloob_status device_decoder_create(cloob_ctx *ctx, device *dev, device_decoder **out)
{
    *out = NULL;
    if (dev->backend != BACKEND_CUDA)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`image_decoder` gpu: device %s is no GPU; use cpu", dev->name);
    CLOOB_TRY(nvjpeg_load(ctx));
    device_decoder *d = calloc(1, sizeof *d);
    if (!d) return ctx_no_memory(ctx, sizeof *d, "the image decoder");
    d->dev = dev;
    cuda_use(dev);
    cloob_status status = choose_backend(ctx, d);
    if (status == CLOOB_OK) *out = d;
    else device_decoder_destroy(d);
    return status;
}

void device_decoder_destroy(device_decoder *d) { free(d); }

const char *device_decoder_name(const device_decoder *d) { return d->name; }
bool device_decoder_exact(const device_decoder *d) { return d->exact; }
device *device_decoder_device(const device_decoder *d) { return d->dev; }

/* ---- one thread's part ----------------------------------------------------------------------------------- */

static cloob_status checked(cloob_ctx *ctx, cudaError_t code) { return cuda_check(ctx, code, "decoding images"); }

static cloob_status make_parts(cloob_ctx *ctx, device_view *v)
{
    size_t bytes = MAX_JOBS * sizeof *v->images;
    if (nvjpeg.nvjpegCreateEx((int)v->d->backend, NULL, NULL, 0, &v->handle) != NVJPEG_OK ||
        nvjpeg.nvjpegJpegStateCreate(v->handle, &v->state) != NVJPEG_OK)
        return ctx_fail(ctx, CLOOB_ERR_DEVICE, "%s: no state for another thread", v->d->name);
    int low, high; /* small kernels overtake the step's, which would otherwise keep them waiting */
    CLOOB_TRY(checked(ctx, cudaDeviceGetStreamPriorityRange(&low, &high)));
    CLOOB_TRY(checked(ctx, cudaStreamCreateWithPriority(&v->stream, cudaStreamNonBlocking, high)));
    CLOOB_TRY(checked(ctx, cudaEventCreateWithFlags(&v->finished, cudaEventBlockingSync | cudaEventDisableTiming)));
    CLOOB_TRY(checked(ctx, cudaMalloc((void **)&v->scratch, DEVICE_VIEW_BYTES)));
    CLOOB_TRY(checked(ctx, cudaMalloc((void **)&v->images, bytes)));
    return checked(ctx, cudaHostAlloc((void **)&v->described, bytes, cudaHostAllocPortable));
}

cloob_status device_view_create(cloob_ctx *ctx, device_decoder *d, const transform_options *o, device_view **out)
{
    device_view *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return ctx_no_memory(ctx, sizeof *v, "the image decoder");
    *v = (device_view){ .d = d, .size = (int)o->size, .filter = (int)o->how.filter };
    cuda_use(d->dev);
    cloob_status status = make_parts(ctx, v);
    if (status == CLOOB_OK) *out = v;
    else device_view_destroy(v);
    return status;
}

void device_view_destroy(device_view *v)
{
    if (!v) return;
    cuda_use(v->d->dev);
    if (v->stream) cudaStreamSynchronize(v->stream);
    if (v->state) nvjpeg.nvjpegJpegStateDestroy(v->state);
    if (v->handle) nvjpeg.nvjpegDestroy(v->handle);
    if (v->finished) cudaEventDestroy(v->finished);
    if (v->stream) cudaStreamDestroy(v->stream);
    cudaFree(v->scratch);
    cudaFree(v->images);
    cudaFreeHost(v->described);
    free(v);
}

static cloob_status wait(cloob_ctx *ctx, device_view *v)
{
    CLOOB_TRY(checked(ctx, cudaEventRecord(v->finished, v->stream)));
    return checked(ctx, cudaEventSynchronize(v->finished));
}

/* ---- a group of files ------------------------------------------------------------------------------------ */

static int32_t whole_blocks(int32_t n) { return (n + 15) / 16 * 16; }

/* Where the planes of a file go: whole blocks, which decoders write. Returns the bytes. */
static size_t place_planes(ycc_planes *p, const jpeg_layout *l, uint8_t *base)
{
    size_t used = 0;
    *p = (ycc_planes){ .width = l->width, .height = l->height, .components = l->components };
    p->across = l->across, p->down = l->down;
    for (int c = 0; c < l->components; c++) {
        int32_t across = c ? l->across : 1, down = c ? l->down : 1;
        p->pitch[c] = whole_blocks((l->width + across - 1) / across);
        p->plane[c] = base + used;
        used += (size_t)p->pitch[c] * (size_t)whole_blocks((l->height + down - 1) / down);
        used = (used + 255) / 256 * 256;
    }
    return used;
}

/* Planes and scratch of one job from base on. Returns the bytes. */
static size_t describe(const device_view *v, const view_job *job, gpu_view *im, uint8_t *base)
{
    *im = (gpu_view){ .top = (int32_t)job->box.top, .left = (int32_t)job->box.left, .out = job->out };
    im->flip = job->flip;
    im->axis[0].in = (int32_t)job->box.width;
    im->axis[1].in = (int32_t)job->box.height;
    size_t used = place_planes(&im->planes, &job->layout, base);
    return used + gpu_view_carve(im, v->size, v->filter, base + used);
}

/* As many jobs as the scratch holds. */
static int describe_some(const device_view *v, const view_job *jobs, int n)
{
    size_t used = 0;
    int i = 0;
    for (; i < n && i < MAX_JOBS; i++) {
        size_t more = describe(v, &jobs[i], &v->described[i], v->scratch + used);
        if (used + more > DEVICE_VIEW_BYTES) break;
        used += more;
    }
    return i;
}

static bool decode(device_view *v, const view_job *jobs, int first, int n)
{
    const unsigned char *bytes[MAX_JOBS];
    size_t sizes[MAX_JOBS];
    nvjpeg_image to[MAX_JOBS] = { 0 };
    for (int i = 0; i < n; i++) {
        const ycc_planes *p = &v->described[first + i].planes;
        bytes[i] = jobs[first + i].bytes;
        sizes[i] = jobs[first + i].layout.size;
        for (int c = 0; c < p->components; c++)
            to[i].plane[c] = (unsigned char *)p->plane[c], to[i].pitch[c] = (size_t)p->pitch[c];
    }
    bool ok = v->state_images == n ||
              nvjpeg.nvjpegDecodeBatchedInitialize(v->handle, v->state, n, 1, NVJPEG_YCC) == NVJPEG_OK;
    ok = ok && nvjpeg.nvjpegDecodeBatched(v->handle, v->state, bytes, sizes, to, v->stream) == NVJPEG_OK;
    v->state_images = ok ? n : 0;
    return ok;
}

/* All together, or, where nvJPEG refuses that, one by one; what is left over is moved out of the list. Returns how many
 * of `described` have their planes. */
static int decode_some(device_view *v, view_job *jobs, int n)
{
    int kept = 0;
    bool all = decode(v, jobs, 0, n);
    for (int i = 0; i < n; i++) {
        jobs[i].done = all || (n > 1 && decode(v, jobs, i, 1));
        if (jobs[i].done) v->described[kept++] = v->described[i];
    }
    return kept;
}

cloob_status device_view_run(cloob_ctx *ctx, device_view *v, view_job *jobs, int n)
{
    cuda_use(v->d->dev);
    while (n > 0) {
        int some = describe_some(v, jobs, n);
        if (!some) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "an image too large to be decoded on the GPU");
        int kept = decode_some(v, jobs, some);
        if (kept) {
            CLOOB_TRY(checked(ctx, cudaMemcpyAsync(v->images, v->described, (size_t)kept * sizeof *v->images,
                                                   cudaMemcpyHostToDevice, v->stream)));
            CLOOB_TRY(checked(ctx, gpu_views_run(v->images, kept, v->size, v->filter, v->stream)));
        }
        CLOOB_TRY(wait(ctx, v));
        jobs += some;
        n -= some;
    }
    return CLOOB_OK;
}

cloob_status device_view_put(cloob_ctx *ctx, device_view *v, uint8_t *const *out, const uint8_t *views, int n)
{
    size_t bytes = (size_t)v->size * (size_t)v->size * 3;
    if (!n) return CLOOB_OK;
    cuda_use(v->d->dev);
    for (int i = 0; i < n; i++)
        CLOOB_TRY(
            checked(ctx, cudaMemcpyAsync(out[i], views + (size_t)i * bytes, bytes, cudaMemcpyHostToDevice, v->stream)));
    return wait(ctx, v);
}
