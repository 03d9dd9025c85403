/* The CUDA backend of a plan: device memory in one block, a cuBLAS handle, the check of the rows. */
#include <stdlib.h>
#include <string.h>

#include "loss/cuda/fused.h"
#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/libraries.h"
#include "tensor/tensor.h"

enum { DEFAULT_TILE = 4096, BLAS_BYTES = 32 << 20 };

cloob_status gpu_cuda(cloob_ctx *ctx, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return CLOOB_OK;
    return ctx_fail(ctx, e == cudaErrorMemoryAllocation ? CLOOB_ERR_MEMORY : CLOOB_ERR_DEVICE, "%s on the GPU: %s",
                    what, cudaGetErrorString(e));
}

static void choose(const loss_plan *p, gpu *g)
{
    int64_t limit = p->o.tile > 0 ? p->o.tile : DEFAULT_TILE, all = loss_longest(p);
    g->T = p->s.dtype;
    g->size = dtype_size(g->T);
    g->d = p->s.dim;
    g->tile = all < limit ? (all + 7) / 8 * 8 : limit;
    g->fused = !p->o.plain && !p->sigmoid && g->T == CLOOB_BF16 && p->total % 8 == 0 &&
               cuda_generation(p->gpu_generation) == 90 && fused_takes(g->d);
}

void gpu_carve_common(carver *c, const loss_plan *p, gpu *g)
{
    size_t tile = (size_t)g->tile, n = (size_t)p->s.rows, N = (size_t)p->total, d = (size_t)g->d;
    size_t longer = (size_t)loss_longest(p);
    bool f32 = g->T == CLOOB_F32, scores = !g->fused || (p->hopfield && !gpu_shares_scores(p));
    g->e = gpu_carve(c, tile * tile * g->size);
    g->ds = p->hopfield ? gpu_carve(c, tile * tile * g->size) : NULL;
    g->s = scores ? gpu_carve(c, tile * tile * sizeof(float)) : NULL;
    g->t = scores && p->hopfield ? gpu_carve(c, tile * tile * sizeof(float)) : NULL;
    g->panel = gpu_carve(c, tile * d * sizeof(float));
    g->top = gpu_carve(c, tile * sizeof(float));
    g->pos = gpu_carve(c, tile * sizeof(float));
    g->sum = gpu_carve(c, tile * sizeof(double));
    g->partial = g->fused ? gpu_carve(c, fused_partial_bytes(g->tile)) : NULL;
    g->bad = gpu_carve(c, GPU_BAD_CELLS * sizeof *g->bad);
    g->value = gpu_carve(c, longer * sizeof(double));
    g->dots = gpu_carve(c, longer * sizeof(double));
    g->total = gpu_carve(c, GPU_TOTALS * sizeof(double));
    if (!f32) return;
    g->mean_a = gpu_carve(c, d * sizeof(float));
    g->mean_b = gpu_carve(c, d * sizeof(float));
    g->column = gpu_carve(c, N * sizeof(double));
    g->centred_a = gpu_carve(c, n * d * sizeof(float));
    g->centred_b = gpu_carve(c, N * d * sizeof(float));
}

cloob_status gpu_carved(cloob_ctx *ctx, const loss_plan *p, size_t used)
{
    if (used + BLAS_BYTES <= p->bytes) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_DEVICE, "the objective was planned with %zu bytes on the GPU and takes %zu",
                    p->bytes - BLAS_BYTES, used);
}

static cloob_status gpu_open(cloob_ctx *ctx, loss_plan *p)
{
    gpu *g = calloc(1, sizeof *g);
    if (!g) return ctx_no_memory(ctx, sizeof *g, "the objective");
    p->device = g;
    CLOOB_TRY(cuda_libraries_load(ctx));
    GPU_TRY("finding the device", cudaGetDevice(&g->device));
    cublasStatus_t s = cuda_lib.cublasCreate_v2(&g->blas);
    if (s != CUBLAS_STATUS_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_DEVICE, "cuBLAS could not start: %s", cuda_lib.cublasGetStatusString(s));
    GPU_TRY("memory of cuBLAS", cudaMalloc(&g->blas_memory, BLAS_BYTES));
    GPU_TRY("results", cudaMallocHost((void **)&g->report, sizeof *g->report));
    return CLOOB_OK;
}

static size_t workspace(const loss_plan *p, gpu *g)
{
    return p->sigmoid ? gpu_sigmoid_bytes(p, g) : gpu_batch_bytes(p, g);
}

static cloob_status prepare(cloob_ctx *ctx, loss_plan *p)
{
    if (!p->device) CLOOB_TRY(gpu_open(ctx, p));
    gpu *g = p->device;
    choose(p, g);
    size_t bytes = workspace(p, g);
    if (p->memory && bytes + BLAS_BYTES <= p->bytes) return CLOOB_OK;
    GPU_TRY("choosing the device", cudaSetDevice(g->device));
    cudaFree(p->memory);
    p->memory = NULL;
    cudaError_t e = cudaMalloc(&p->memory, bytes);
    p->bytes = e == cudaSuccess ? bytes + BLAS_BYTES : 0;
    if (e != cudaSuccess)
        return ctx_fail(ctx, CLOOB_ERR_MEMORY, "the objective needs %.2f GiB on the GPU: %s",
                        (double)bytes / (1024.0 * 1024.0 * 1024.0), cudaGetErrorString(e));
    return CLOOB_OK;
}

static cloob_status begin(cloob_ctx *ctx, gpu *g, void *stream)
{
    g->stream = stream;
    GPU_TRY("choosing the device", cudaSetDevice(g->device));
    cublasStatus_t s = cuda_lib.cublasSetStream_v2(g->blas, g->stream);
    if (s == CUBLAS_STATUS_SUCCESS) s = cuda_lib.cublasSetWorkspace_v2(g->blas, g->blas_memory, BLAS_BYTES);
    return s == CUBLAS_STATUS_SUCCESS
               ? CLOOB_OK
               : ctx_fail(ctx, CLOOB_ERR_DEVICE, "cuBLAS: %s", cuda_lib.cublasGetStatusString(s));
}

cloob_status gpu_begin_totals(cloob_ctx *ctx, const gpu *g)
{
    GPU_TRY("results", cudaMemsetAsync(g->bad, 0xff, GPU_BAD_CELLS * sizeof *g->bad, g->stream));
    return gpu_zero(ctx, g, g->total, GPU_TOTALS * sizeof *g->total);
}

/* ---- rows that are refused ---- */

typedef struct named_rows {
    const char *name;
    const void *data;
    int64_t n, first;
} named_rows;

static cloob_status first_bad(cloob_ctx *ctx, const gpu *g, const named_rows *r, const unsigned long long *bad,
                              const float *length)
{
    for (int i = 0; i < 4; i++) {
        float l;
        if (bad[i] >= (unsigned long long)r[i].n) continue;
        /* Lengths were overwritten by the sets after this one: this row's again. */
        GPU_TRY("checking rows", k_check_rows(g->stream, g->T, mat_at(g, r[i].data, (int64_t)bad[i]), 1, g->d, 1e30,
                                              (float *)(uintptr_t)length, g->bad));
        GPU_TRY("checking rows", cudaMemcpyAsync(&l, length, sizeof l, cudaMemcpyDeviceToHost, g->stream));
        GPU_TRY("checking rows", cudaStreamSynchronize(g->stream));
        return loss_fail_row(ctx, r[i].name, r[i].first + (int64_t)bad[i], (double)l);
    }
    return CLOOB_OK;
}

static void carve_for_check(loss_plan *p, gpu *g)
{
    carver c = { p->memory, 0 };
    gpu_carve_common(&c, p, g);
}

static cloob_status check(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, void *stream)
{
    gpu *g = p->device;
    named_rows r[4] = { { "x", in->x, p->s.rows, p->first },
                        { "y", in->y, p->s.rows, p->first },
                        { "U", in->u, p->hopfield ? p->s.stored_u : 0, 0 },
                        { "V", in->v, p->hopfield ? p->s.stored_v : 0, 0 } };
    unsigned long long bad[GPU_BAD_CELLS];
    CLOOB_TRY(begin(ctx, g, stream));
    carve_for_check(p, g);
    float *length = (float *)g->dots;
    GPU_TRY("checking rows", cudaMemsetAsync(g->bad, 0xff, sizeof bad, g->stream));
    for (int i = 0; i < 4; i++)
        GPU_TRY("checking rows",
                k_check_rows(g->stream, g->T, r[i].data, r[i].n, g->d, loss_unit_tolerance(g->T), length, &g->bad[i]));
    GPU_TRY("checking rows", cudaMemcpyAsync(bad, g->bad, sizeof bad, cudaMemcpyDeviceToHost, g->stream));
    GPU_TRY("checking rows", cudaStreamSynchronize(g->stream));
    return first_bad(ctx, g, r, bad, length);
}

cloob_status gpu_send_totals(cloob_ctx *ctx, const gpu *g)
{
    GPU_TRY("results",
            cudaMemcpyAsync(g->report->totals, g->total, sizeof g->report->totals, cudaMemcpyDeviceToHost, g->stream));
    return gpu_cuda(ctx,
                    cudaMemcpyAsync(g->report->bad, g->bad, sizeof g->report->bad, cudaMemcpyDeviceToHost, g->stream),
                    "results");
}

/* Refuses the retrieval that had no direction. */
static cloob_status read_report(cloob_ctx *ctx, const loss_plan *p, const gpu *g)
{
    const unsigned long long *bad = g->report->bad;
    GPU_TRY("the objective", cudaStreamSynchronize(g->stream));
    for (int i = 0; p->hopfield && i < 4; i++)
        if (bad[i] < (unsigned long long)p->s.rows)
            return loss_fail_retrieval(ctx, i % 2 ? "y" : "x", i < 2 ? "U" : "V", p->first + (int64_t)bad[i]);
    return CLOOB_OK;
}

static cloob_status queue(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream)
{
    gpu *g = p->device;
    CLOOB_TRY(begin(ctx, g, stream));
    comm_set_stream(p->c, stream); /* exchanges run after this work, and later work waits for them */
    return p->sigmoid ? gpu_sigmoid_queue(ctx, p, g, in, out) : gpu_batch_queue(ctx, p, g, in, out);
}

static cloob_status collect(cloob_ctx *ctx, loss_plan *p, loss_result *r)
{
    gpu *g = p->device;
    CLOOB_TRY(comm_agree(ctx, p->c, read_report(ctx, p, g)));
    CLOOB_TRY(comm_host_sum_f64(ctx, p->c, g->report->totals, GPU_TOTALS));
    if (p->sigmoid) gpu_sigmoid_result(p, g->report->totals, r);
    else gpu_batch_result(p, g->report->totals, r);
    return CLOOB_OK;
}

static cloob_status run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                        loss_result *r)
{
    if (loss_is_hosted(p)) {
        CLOOB_TRY(begin(ctx, p->device, stream));
        return gpu_host_run(ctx, p, p->device, in, out, r);
    }
    CLOOB_TRY(queue(ctx, p, in, out, stream));
    return collect(ctx, p, r);
}

static void release(loss_plan *p)
{
    gpu *g = p->device;
    if (!g) return;
    cudaSetDevice(g->device);
    cudaFree(p->memory);
    cudaFree(g->blas_memory);
    cudaFreeHost(g->report);
    if (g->blas) cuda_lib.cublasDestroy_v2(g->blas);
    free(g);
    p->device = NULL;
}

static size_t bytes_of(const loss_plan *p)
{
    gpu g = { 0 };
    choose(p, &g);
    return BLAS_BYTES + workspace(p, &g);
}

const loss_engine loss_engine_cuda = { prepare, check, run, release, bytes_of, queue, collect };
