/* Context life cycle, error text, log lines. */
#include "core/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/needs.h"
#include "core/pool.h"

void cloob_ctx_options_init_size(cloob_ctx_options *o, size_t size)
{
    cloob_ctx_options d = { .log_level = CLOOB_LOG_INFO };
    options_write(o, size, &d, sizeof d);
}

static int core_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (int)n;
}

/* The requested number of threads, limited to the useful maximum and to what the system can start. One thread returns
 * early: counting cores reads /sys, which takes longer than encoding a text, and every range of a parallel loop has a
 * context. */
static int count_threads(int asked)
{
    if (asked == 1) return 1;
    int n = asked > 0 ? asked : core_count();
    if (n > limits_max_threads()) n = limits_max_threads();
    return n > core_count() || (n > 1 && limits_memory()) ? limits_threads_possible(n) : n;
}

cloob_ctx *cloob_ctx_create(const cloob_ctx_options *o)
{
    cloob_ctx_options own;
    cloob_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return NULL;
    cloob_ctx_options_init(&own);
    if (o && options_read(ctx, "cloob_ctx_options", &own, sizeof own, o) != CLOOB_OK) return free(ctx), NULL;
    o = &own;
    pool_survive_forks();
    ctx->threads = count_threads(o->threads);
    ctx->log = o->log;
    ctx->log_user = o->log_user;
    ctx->log_level = o->log_level;
    ctx->progress = o->progress;
    ctx->progress_user = o->progress_user;
    const char *generation = getenv("CLOOB_GPU_GENERATION");
    if (generation) ctx->kernels.gpu_generation = atoi(generation);
    ctx->should_stop = o->should_stop, ctx->stop_user = o->stop_user;
    ctx->copy_files = o->copy_files;
    return ctx;
}

void cloob_ctx_destroy(cloob_ctx *ctx) { free(ctx); }

cloob_ctx *ctx_worker(const cloob_ctx *parent)
{
    cloob_ctx_options o = { .size = sizeof o,
                            .threads = 1,
                            .log = parent->log,
                            .log_user = parent->log_user,
                            .log_level = parent->log_level,
                            .progress = parent->progress,
                            .progress_user = parent->progress_user,
                            .copy_files = parent->copy_files };
    cloob_ctx *ctx = cloob_ctx_create(&o);
    if (ctx) ctx->kernels = parent->kernels;
    return ctx;
}

const char *cloob_error(const cloob_ctx *ctx) { return ctx ? ctx->error : "no context"; }

const char *cloob_status_name(cloob_status s)
{
    static const char *const names[] = { "ok",   "argument",    "io",      "format",  "memory", "device",
                                         "peer", "unsupported", "numeric", "stopped", "busy" };
    return (size_t)s < sizeof names / sizeof *names ? names[s] : "unknown";
}

const char *cloob_version(void) { return CLOOB_VERSION; }

/* Messages contain untrusted names: line ends become spaces, and terminal control characters become '?'. */
static void one_line(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
        else if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f) *c = '?';
}

cloob_status ctx_fail(cloob_ctx *ctx, cloob_status s, const char *format, ...)
{
    char text[CTX_ERROR_BYTES]; /* the arguments may point into the old text */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    one_line(text);
    memcpy(ctx->error, text, sizeof text);
    return s;
}

cloob_status ctx_no_memory(cloob_ctx *ctx, size_t bytes, const char *what)
{
    return ctx_fail(ctx, CLOOB_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

cloob_status ctx_wrap(cloob_ctx *ctx, cloob_status s, const char *format, ...)
{
    char text[CTX_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) n = (int)sizeof text - 1;
    snprintf(text + n, sizeof text - (size_t)n, ": %s", ctx->error);
    one_line(text);
    memcpy(ctx->error, text, sizeof text);
    return s;
}

void ctx_log(cloob_ctx *ctx, cloob_log_level level, const char *format, ...)
{
    char text[CTX_ERROR_BYTES];
    va_list args;
    if (!ctx->log || level < ctx->log_level) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, text);
}

bool ctx_should_stop(const cloob_ctx *ctx) { return ctx->should_stop && ctx->should_stop(ctx->stop_user); }

void ctx_progress_show(cloob_ctx *ctx, const cloob_progress *p)
{
    if (ctx->progress) ctx->progress(ctx->progress_user, p);
}

void ctx_progress(cloob_ctx *ctx, const char *task, int64_t done, int64_t total, const char *unit)
{
    ctx_progress_show(ctx,
                      &(cloob_progress){ .task = task, .unit = unit, .done = done, .total = total, .per_unit = 1 });
}
