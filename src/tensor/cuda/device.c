/* A GPU as a device: allocations, one stream, library handles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/libraries.h"
#include "tensor/cuda/tune.h"
#include "tensor/device.h"

enum { OLDEST = 80 }; /* compute capability, times ten: bf16 and mma.sync */

cloob_status cuda_check(cloob_ctx *ctx, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return CLOOB_OK;
    return ctx_fail(ctx, e == cudaErrorMemoryAllocation ? CLOOB_ERR_MEMORY : CLOOB_ERR_DEVICE, "%s: %s", what,
                    cudaGetErrorString(e));
}

cloob_status cuda_launched(cloob_ctx *ctx, const char *op) { return cuda_check(ctx, cudaGetLastError(), op); }

cuda_state *cuda_use(const device *d)
{
    cudaSetDevice(d->index);
    return d->state;
}

static cloob_status cuda_alloc(cloob_ctx *ctx, device *d, size_t bytes, const char *what, void **out)
{
    cuda_state *s = cuda_use(d);
    *out = NULL;
    cuda_trials_release(s);
    if (cudaMalloc(out, bytes ? bytes : 256) != cudaSuccess) {
        size_t available = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&available, &total);
        bool large = bytes >= (size_t)1 << 30;
        return ctx_fail(ctx, CLOOB_ERR_MEMORY,
                        "out of GPU memory: %.2f %s for %s, %.2f of %.2f GiB are free; use a smaller batch",
                        (double)bytes / (large ? 1073741824.0 : 1048576.0), large ? "GiB" : "MiB", what,
                        (double)available / 1073741824.0, (double)total / 1073741824.0);
    }
    cloob_status status = cuda_check(ctx, cudaMemsetAsync(*out, 0, bytes ? bytes : 256, s->stream), what);
    if (status == CLOOB_OK) status = cuda_check(ctx, cudaStreamSynchronize(s->stream), what);
    if (status == CLOOB_OK) return CLOOB_OK;
    cudaFree(*out);
    *out = NULL;
    return status;
}

static void cuda_free(device *d, void *p)
{
    cuda_use(d);
    cudaFree(p);
}

static cloob_status cuda_copy(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes)
{
    cuda_state *s = cuda_use(d);
    return bytes ? cuda_check(ctx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->stream), "copy on the GPU")
                 : CLOOB_OK;
}

static cloob_status cuda_sync(cloob_ctx *ctx, device *d)
{
    return cuda_check(ctx, cudaStreamSynchronize(cuda_use(d)->stream), "waiting for the GPU");
}

/* Waits, because the caller may reuse page-locked memory immediately; batches are uploaded by async_copy.h instead.
 */
static cloob_status cuda_to_device(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes)
{
    CLOOB_TRY(cuda_copy(ctx, d, to, from, bytes));
    return cuda_sync(ctx, d);
}

static cloob_status cuda_zero(cloob_ctx *ctx, device *d, void *p, size_t bytes)
{
    cuda_state *s = cuda_use(d);
    return bytes ? cuda_check(ctx, cudaMemsetAsync(p, 0, bytes, s->stream), "clearing GPU memory") : CLOOB_OK;
}

static void cuda_memory(device *d, size_t *total, size_t *available)
{
    cuda_use(d);
    if (cudaMemGetInfo(available, total) != cudaSuccess) *total = *available = 0;
}

/* ---- the second stream, and graph capture ----------------------------------------------------------- */

static cloob_status follow(cloob_ctx *ctx, cudaStream_t after, cudaStream_t before, cudaEvent_t mark)
{
    CLOOB_TRY(cuda_check(ctx, cudaEventRecord(mark, before), "ordering the GPU's streams"));
    return cuda_check(ctx, cudaStreamWaitEvent(after, mark, 0), "ordering the GPU's streams");
}

static cloob_status cuda_fork(cloob_ctx *ctx, device *d)
{
    cuda_state *s = cuda_use(d);
    return follow(ctx, s->side, s->stream, s->forked);
}

static cloob_status cuda_join(cloob_ctx *ctx, device *d)
{
    cuda_state *s = cuda_use(d);
    return follow(ctx, s->stream, s->side, s->joined);
}

static cloob_status cuda_record_begin(cloob_ctx *ctx, device *d)
{
    return cuda_check(ctx, cudaStreamBeginCapture(cuda_use(d)->stream, cudaStreamCaptureModeRelaxed), "recording");
}

static cloob_status cuda_record_end(cloob_ctx *ctx, device *d, void **out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    (void)ctx;
    *out = NULL;
    if (cudaStreamEndCapture(cuda_use(d)->stream, &graph) == cudaSuccess && graph &&
        cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess)
        *out = ready;
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return CLOOB_OK;
}

static cloob_status cuda_replay(cloob_ctx *ctx, device *d, void *recording)
{
    return cuda_check(ctx, cudaGraphLaunch((cudaGraphExec_t)recording, cuda_use(d)->stream), "replaying a step");
}

static void cuda_forget(device *d, void *recording)
{
    cuda_use(d);
    cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

static void cuda_close(device *d)
{
    cuda_state *s = d->state;
    if (s) {
        cuda_use(d);
        tune_close(s->tune);
        cuda_trials_close(s);
        cudaFree(s->small);
        cudaFreeHost(s->pinned);
        if (s->dnn) cuda_lib.cudnnDestroy(s->dnn);
        if (s->lt) cuda_lib.cublasLtDestroy(s->lt);
        if (s->forked) cudaEventDestroy(s->forked);
        if (s->joined) cudaEventDestroy(s->joined);
        if (s->side) cudaStreamDestroy(s->side);
        if (s->stream) cudaStreamDestroy(s->stream);
    }
    free(s);
    free(d);
}

/* NULL when there is a GPU to use, else why not. */
static const char *no_gpu_reason(int *count)
{
    cudaError_t e = cudaGetDeviceCount(count);
    cudaGetLastError();
    if (e == cudaSuccess && *count > 0) return NULL;
    *count = 0;
    if (e != cudaErrorInsufficientDriver) return e == cudaSuccess ? "no GPU here" : cudaGetErrorString(e);
    int driver = 0;
    return cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0
               ? "the NVIDIA driver is older than this build's CUDA; update the driver"
               : "no NVIDIA driver here";
}

int device_cuda_count(void)
{
    int n = 0;
    no_gpu_reason(&n);
    return n;
}

int cuda_generation(int wanted)
{
    int index, major = 0, minor = 0;
    if (cudaGetDevice(&index) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess)
        return 0;
    int own = 10 * major + minor;
    return wanted >= OLDEST && wanted < own ? wanted : own;
}

bool cuda_has_hopper(const device *d) { return ((const cuda_state *)d->state)->generation == 90; }

/* Shared memory of a block, where a generation below the GPU's own is asked for. */
static int smem_limit(int generation, int own)
{
    int limit = generation == 80 ? 163 << 10 : generation < 90 ? 99 << 10 : own;
    return limit < own ? limit : own;
}

static cloob_status check_generation(cloob_ctx *ctx, const device *d, const struct cudaDeviceProp *prop)
{
    if (10 * prop->major + prop->minor < OLDEST)
        return ctx_fail(
            ctx, CLOOB_ERR_UNSUPPORTED,
            "device cuda:%d: %s has compute capability %d.%d; 8.0 (Ampere) or later is needed; use `device` cpu",
            d->index, prop->name, prop->major, prop->minor);
    if (cuda_has_code()) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "device cuda:%d: this build has no code for %s (compute capability %d.%d); configure with "
                    "-DCLOOB_GPU_ARCHS=%d%d",
                    d->index, prop->name, prop->major, prop->minor, prop->major, prop->minor);
}

/* "compute capability 9.0, kernels of 9.0: bf16, fp8, Hopper's own" */
static void describe_kernels(device *d, const struct cudaDeviceProp *prop)
{
    int generation = ((cuda_state *)d->state)->generation;
    snprintf(d->runs, sizeof d->runs, "compute capability %d.%d, kernels for %d.%d: bf16%s%s", prop->major, prop->minor,
             generation / 10, generation % 10, d->fp8 ? ", fp8" : "",
             cuda_has_hopper(d) ? ", wgmma and TMA" : ", without Hopper's");
}

static cloob_status open_handles(cloob_ctx *ctx, device *d)
{
    cuda_state *s = d->state;
    struct cudaDeviceProp prop;
    CLOOB_TRY(cuda_check(ctx, cudaSetDevice(d->index), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaGetDeviceProperties(&prop, d->index), "device cuda"));
    CLOOB_TRY(check_generation(ctx, d, &prop));
    cloob_status loaded = cuda_libraries_load(ctx);
    if (loaded != CLOOB_OK) return ctx_wrap(ctx, loaded, "device cuda:%d", d->index);
    s->generation = cuda_generation(ctx->kernels.gpu_generation);
    d->fp8 = s->generation >= 90;
    s->sms = prop.multiProcessorCount;
    s->smem_bytes = smem_limit(s->generation, (int)prop.sharedMemPerBlockOptin);
    CLOOB_TRY(cuda_check(ctx, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaStreamCreateWithFlags(&s->side, cudaStreamNonBlocking), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaEventCreateWithFlags(&s->forked, cudaEventDisableTiming), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaEventCreateWithFlags(&s->joined, cudaEventDisableTiming), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaMalloc((void **)&s->small, CUDA_SMALL_DOUBLES * sizeof *s->small), "device cuda"));
    CLOOB_TRY(cuda_check(ctx, cudaMallocHost((void **)&s->pinned, sizeof *s->pinned), "device cuda"));
    if (cuda_lib.cublasLtCreate(&s->lt) != CUBLAS_STATUS_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_DEVICE, "device cuda: cuBLASLt does not start");
    if (cuda_lib.cudnnCreate((cudnnHandle_t *)&s->dnn) != CUDNN_STATUS_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_DEVICE, "device cuda: cuDNN does not start");
    cuda_trials_open(s, d->index);
    d->stream = s->stream;
    d->side = s->side;
    snprintf(d->name, sizeof d->name, "%s", prop.name);
    describe_kernels(d, &prop);
    char versions[80];
    snprintf(versions, sizeof versions, "sm_%d cublasLt-%zu cudnn-%zu", s->generation, cuda_lib.cublasLtGetVersion(),
             cuda_lib.cudnnGetVersion());
    return tune_open(ctx, prop.name, versions, &s->tune);
}

void machine_describe_cuda(sbuf *s, device *d)
{
    const cuda_state *state = d->state;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    sbuf_printf(s, "gpu: sm_%d, CUDA driver %d\ncublaslt: %zu\ncudnn: %zu\ntuning: %016llx\n", state->generation,
                driver, cuda_lib.cublasLtGetVersion(), cuda_lib.cudnnGetVersion(),
                (unsigned long long)tune_choices_hash(state->tune));
}

cloob_status device_open_cuda(cloob_ctx *ctx, int index, device **out)
{
    int count;
    const char *reason = no_gpu_reason(&count);
    if (index >= count)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "device cuda:%d: %s; use `device` cpu", index,
                        reason ? reason : "there are fewer GPUs here");
    device *d = calloc(1, sizeof *d);
    if (!d || !(d->state = calloc(1, sizeof(cuda_state)))) {
        free(d);
        return ctx_no_memory(ctx, sizeof(cuda_state), "a device");
    }
    d->backend = BACKEND_CUDA;
    d->index = index;
    d->alloc = cuda_alloc;
    d->free = cuda_free;
    d->to_device = cuda_to_device;
    d->to_host = cuda_to_device;
    d->copy = cuda_copy;
    d->zero = cuda_zero;
    d->sync = cuda_sync;
    d->memory = cuda_memory;
    d->fork = cuda_fork;
    d->join = cuda_join;
    d->record_begin = cuda_record_begin;
    d->record_end = cuda_record_end;
    d->replay = cuda_replay;
    d->forget = cuda_forget;
    d->close = cuda_close;
    cloob_status status = open_handles(ctx, d);
    if (status == CLOOB_OK) *out = d;
    else cuda_close(d);
    return status;
}
