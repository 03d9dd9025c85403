/* Trials: how long a candidate takes, and memory to try it on.
 *
 * The memory comes from a pool of the driver that keeps freed memory, since allocating and mapping gigabytes takes
 * longer than most trials. The device's next allocation empties the pool. */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"

/* ---- memory -------------------------------------------------------------------------------------- */

void cuda_trials_open(cuda_state *s, int index)
{
    uint64_t all = UINT64_MAX;
    struct cudaMemPoolProps props = { .allocType = cudaMemAllocationTypePinned,
                                      .location = { .type = cudaMemLocationTypeDevice, .id = index } };
    if (cudaMemPoolCreate(&s->trials, &props) != cudaSuccess) s->trials = NULL;
    else cudaMemPoolSetAttribute(s->trials, cudaMemPoolAttrReleaseThreshold, &all);
    cudaGetLastError();
}

void cuda_trials_release(cuda_state *s)
{
    uint64_t bytes = 0;
    if (!s->trials || cudaMemPoolGetAttribute(s->trials, cudaMemPoolAttrReservedMemCurrent, &bytes) != cudaSuccess ||
        bytes == 0)
        return;
    cudaStreamSynchronize(s->stream); /* what was given back there counts as free from then on */
    cudaMemPoolTrimTo(s->trials, 0);
}

void cuda_trials_close(cuda_state *s)
{
    if (s->trials) cudaMemPoolDestroy(s->trials);
    s->trials = NULL;
}

static cudaError_t take(cuda_state *s, size_t bytes, void **out)
{
    if (!s->trials) return cudaMalloc(out, bytes);
    return cudaMallocFromPoolAsync(out, bytes, s->trials, s->stream);
}

cloob_status cuda_trial_room(cloob_ctx *ctx, device *d, size_t bytes, void **out)
{
    cuda_state *s = cuda_use(d);
    *out = NULL;
    cudaError_t e = take(s, bytes ? bytes : 1, out);
    if (e == cudaErrorMemoryAllocation && s->trials) { /* the pool may have enough, in pieces too small */
        cudaGetLastError();
        cuda_trials_release(s);
        e = take(s, bytes ? bytes : 1, out);
    }
    if (e != cudaSuccess) cudaGetLastError(), *out = NULL;
    return cuda_check(ctx, e, "memory for a trial");
}

cloob_status cuda_trial_noise(cloob_ctx *ctx, device *d, cloob_dtype dtype, int64_t n, void **out)
{
    CLOOB_TRY(cuda_trial_room(ctx, d, (size_t)n * dtype_size(dtype), out));
    return cuda_fill_noise(ctx, cuda_use(d)->stream, *out, dtype, n);
}

void cuda_trial_free(device *d, void *p)
{
    cuda_state *s = cuda_use(d);
    if (!p) return;
    if (s->trials) cudaFreeAsync(p, s->stream);
    else cudaFree(p);
    cudaGetLastError();
}

/* ---- timing -------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { TIMED_RUNS = 5, TIMED_RUNS_LONG = 3 };

/* The runs from `first` to `last`, each between two marks; waits for them. */
static cloob_status time_runs(cloob_ctx *ctx, cloob_status (*run)(void *user), void *user, cudaStream_t stream,
                              cudaEvent_t *mark, int first, int last, float *each)
{
    CLOOB_TRY(cuda_check(ctx, cudaEventRecord(mark[first], stream), "timing"));
    for (int i = first; i < last; i++) {
        CLOOB_TRY(run(user));
        CLOOB_TRY(cuda_check(ctx, cudaEventRecord(mark[i + 1], stream), "timing"));
    }
    CLOOB_TRY(cuda_check(ctx, cudaEventSynchronize(mark[last]), "timing"));
    for (int i = first; i < last; i++)
        CLOOB_TRY(cuda_check(ctx, cudaEventElapsedTime(&each[i], mark[i], mark[i + 1]), "timing"));
    return CLOOB_OK;
}

cloob_status cuda_time_against(cloob_ctx *ctx, device *d, cloob_status (*run)(void *user), void *user, float best,
                               float *ms)
{
    const float hopeless = 1.25f, long_ms = 0.5f; /* times of long runs vary little */
    cuda_state *s = cuda_use(d);
    cudaEvent_t mark[TIMED_RUNS + 1] = { 0 };
    float each[TIMED_RUNS];
    cloob_status status = CLOOB_OK;
    int runs = 1;
    for (int i = 0; i <= TIMED_RUNS; i++) CLOOB_TRY_GOTO(cuda_check(ctx, cudaEventCreate(&mark[i]), "timing"), done);
    CLOOB_TRY_GOTO(run(user), done); /* warm */
    CLOOB_TRY_GOTO(time_runs(ctx, run, user, s->stream, mark, 0, 1, each), done);
    if (each[0] <= hopeless * best) {
        runs = each[0] > long_ms ? TIMED_RUNS_LONG : TIMED_RUNS;
        CLOOB_TRY_GOTO(time_runs(ctx, run, user, s->stream, mark, 1, runs, each), done);
    }
    qsort(each, (size_t)runs, sizeof *each, by_size);
    *ms = each[runs / 2];
done:
    if (status != CLOOB_OK) cudaGetLastError();
    for (int i = 0; i <= TIMED_RUNS; i++)
        if (mark[i]) cudaEventDestroy(mark[i]);
    return status;
}

cloob_status cuda_time(cloob_ctx *ctx, device *d, cloob_status (*run)(void *user), void *user, float *ms)
{
    return cuda_time_against(ctx, d, run, user, 1e30f, ms);
}
