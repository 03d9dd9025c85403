/* The CPU backend: one block of memory per plan, and the choice between the ways through. */
#include "loss/cpu.h"

#include <stdlib.h>

static size_t workspace(const loss_plan *p)
{
    if (p->sigmoid) return sigmoid_bytes(p);
    return batch_applies(p) ? batch_bytes(p) : general_bytes(p);
}

static cloob_status prepare(cloob_ctx *ctx, loss_plan *p)
{
    if (loss_is_tiny(p)) return loss_engine_ref.prepare(ctx, p);
    size_t bytes = workspace(p);
    if (bytes <= p->bytes && p->memory) return CLOOB_OK;
    free(p->memory);
    p->memory = aligned_alloc(64, bytes);
    p->bytes = p->memory ? bytes : 0;
    return p->memory ? CLOOB_OK : ctx_no_memory(ctx, bytes, "the objective");
}

static cloob_status run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                        loss_result *r)
{
    if (loss_is_tiny(p)) return loss_engine_ref.run(ctx, p, in, out, stream, r);
    if (p->sigmoid) return sigmoid_run(ctx, p, in, out, r);
    return batch_applies(p) ? batch_run(ctx, p, in, out, r) : general_run(ctx, p, in, out, r);
}

static void release(loss_plan *p)
{
    free(p->memory);
    p->memory = NULL;
}

static size_t bytes_of(const loss_plan *p) { return loss_is_tiny(p) ? 0 : workspace(p); }

const loss_engine loss_engine_cpu = { prepare, loss_check_host, run, release, bytes_of, NULL, NULL };
