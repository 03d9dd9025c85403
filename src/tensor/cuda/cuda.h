/* Internals of a GPU device for the files of the cuda backend: handles, and the translation of runtime errors to
 * cloob_status.
 *
 * Every tensor handed to a kernel begins at a multiple of 16 bytes. Entry points launch kernels on the stream they are
 * given and return; nothing in a run synchronises, allocates or touches the default stream, so that a step can be
 * captured as a graph. */
#ifndef TENSOR_CUDA_CUDA_H
#define TENSOR_CUDA_CUDA_H

#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "tensor/device.h"

typedef struct tune_cache tune_cache;

enum { CUDA_SMALL_DOUBLES = 1024 };

typedef struct cuda_state {
    int generation; /* the compute capability whose kernels are used (cuda_generation) */
    int sms;        /* multiprocessors */
    int smem_bytes; /* shared memory a block may ask for */
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    cublasLtHandle_t lt;
    void *dnn; /* cudnnHandle_t; used by one thread at a time, like the device */
    struct dnn_plan *dnn_plans;
    tune_cache *tune;
    cudaMemPool_t trials; /* memory for trials; NULL where the driver has no pools */
    double *small;        /* CUDA_SMALL_DOUBLES on the device, for sums that end on the host */
    double *pinned;       /* one double on the host */
} cuda_state;

/* The state, with this GPU made the thread's current one. */
cuda_state *cuda_use(const device *d);

/* Compute capability of the thread's current GPU as one number (80, 89, 90, ...), or `wanted` where that is lower
 * (kernel_choices.gpu_generation). 0: no GPU. */
int cuda_generation(int wanted);
/* Whether the device runs the kernels for Hopper (tensor/cuda/hopper.cuh). */
bool cuda_has_hopper(const device *d);
/* Whether this build has machine code or PTX for the thread's current GPU. */
bool cuda_has_code(void);

/* "bn_stats: an illegal memory access was encountered" */
cloob_status cuda_check(cloob_ctx *ctx, cudaError_t e, const char *what);
/* The check after a launch. */
cloob_status cuda_launched(cloob_ctx *ctx, const char *op);

/* Fills p with numbers that are nearly normal (F32, BF16), so that timing does not run on zeros. p begins at a multiple
 * of 16 bytes. */
cloob_status cuda_fill_noise(cloob_ctx *ctx, cudaStream_t stream, void *p, cloob_dtype dtype, int64_t n);

/* Memory for trials: what a candidate writes, and what it reads, which is filled with noise. Taking and freeing cost
 * microseconds, since a pool keeps the memory until the device allocates next. *out is NULL where there is no room. */
cloob_status cuda_trial_room(cloob_ctx *ctx, device *d, size_t bytes, void **out);
cloob_status cuda_trial_noise(cloob_ctx *ctx, device *d, cloob_dtype dtype, int64_t n, void **out);
void cuda_trial_free(device *d, void *p); /* NULL is fine */
/* Creates, destroys (both with the device) and empties the pool. */
void cuda_trials_open(cuda_state *s, int index);
void cuda_trials_release(cuda_state *s);
void cuda_trials_close(cuda_state *s);

/* Median milliseconds of `run(user)` on the device's stream. Returns the status of a failing run, without a message.
 * Synchronises, so for plan time only. */
cloob_status cuda_time(cloob_ctx *ctx, device *d, cloob_status (*run)(void *user), void *user, float *ms);
/* The same, but a candidate that is far slower than `best` milliseconds is measured only once. */
cloob_status cuda_time_against(cloob_ctx *ctx, device *d, cloob_status (*run)(void *user), void *user, float best,
                               float *ms);

#ifdef __cplusplus
}
#endif
#endif
