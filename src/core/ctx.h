/* Internals of a context: errors, log lines and progress.
 *
 *     if (n < 2) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "batch of %d: a leave-one-out loss needs two", n);
 *     CLOOB_TRY(file_read(ctx, path, &bytes));
 *
 * The first function that knows the cause writes the text; callers pass the status on. */
#ifndef CORE_CTX_H
#define CORE_CTX_H

#include "cloob/types.h"

enum { CTX_ERROR_BYTES = 2048 };

/* The kernels that a GPU runs where an op has several. By default timing selects one; tests and measurements choose. */
typedef enum fused_gemm_choice {
    FUSED_GEMM_AUTO,
    FUSED_GEMM_NEVER,
    FUSED_GEMM_2_CONSUMERS, /* consumer warpgroups per block */
    FUSED_GEMM_4_CONSUMERS
} fused_gemm_choice;

typedef struct kernel_choices {
    fused_gemm_choice fused_gemm; /* convolutions that also compute the batch norm sums */
    int gpu_generation; /* 80, 86 or 89: the kernels of that compute capability on a newer GPU; 0: the GPU's own. A new
                         * context takes it from the environment variable CLOOB_GPU_GENERATION */
} kernel_choices;

struct cloob_ctx {
    char error[CTX_ERROR_BYTES];
    int threads;
    cloob_log_fn *log;
    void *log_user;
    cloob_log_level log_level;
    cloob_progress_fn *progress;
    void *progress_user;
    kernel_choices kernels;
    bool (*should_stop)(void *user);
    void *stop_user;
    bool copy_files;
};

#define CLOOB_TRY(expr)                                                                                                \
    do {                                                                                                               \
        cloob_status try_status_ = (expr);                                                                             \
        if (try_status_ != CLOOB_OK) return try_status_;                                                               \
    } while (0)

/* For functions with one clean-up label: needs `cloob_status status` in scope. */
#define CLOOB_TRY_GOTO(expr, label)                                                                                    \
    do {                                                                                                               \
        status = (expr);                                                                                               \
        if (status != CLOOB_OK) goto label;                                                                            \
    } while (0)

/* Writes the text (newlines become spaces, so that an error is one line) and returns s. */
cloob_status ctx_fail(cloob_ctx *ctx, cloob_status s, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "out of memory: N bytes for WHAT" */
cloob_status ctx_no_memory(cloob_ctx *ctx, size_t bytes, const char *what);

/* Puts "PREFIX: " before the text of a failure that is passed on. Returns s. */
cloob_status ctx_wrap(cloob_ctx *ctx, cloob_status s, const char *format, ...) __attribute__((format(printf, 3, 4)));

void ctx_log(cloob_ctx *ctx, cloob_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* True when a long call should save its work and return CLOOB_ERR_STOPPED. */
bool ctx_should_stop(const cloob_ctx *ctx);

/* Reports progress to the context's sink, if it has one: `done` of `total` (0: not known) `unit`s. Cheap enough to call
 * for every item of a loop. */
void ctx_progress(cloob_ctx *ctx, const char *task, int64_t done, int64_t total, const char *unit);
/* The same with all fields. */
void ctx_progress_show(cloob_ctx *ctx, const cloob_progress *p);

/* A context for one worker thread: same log sink and settings, its own error text, one CPU thread.
 * Destroy with cloob_ctx_destroy. */
cloob_ctx *ctx_worker(const cloob_ctx *parent);

#endif
