/* A build without CUDA. */
#include "loss/impl.h"

static cloob_status prepare(cloob_ctx *ctx, loss_plan *p)
{
    (void)p;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "this build has no CUDA; use `device` cpu");
}

static cloob_status check(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, void *stream)
{
    (void)in, (void)stream;
    return prepare(ctx, p);
}

static cloob_status run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                        loss_result *r)
{
    (void)in, (void)out, (void)stream, (void)r;
    return prepare(ctx, p);
}

static void release(loss_plan *p) { (void)p; }

static size_t bytes_of(const loss_plan *p) { return (void)p, 0; }

const loss_engine loss_engine_cuda = { prepare, check, run, release, bytes_of, NULL, NULL };
