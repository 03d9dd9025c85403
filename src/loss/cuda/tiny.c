/* A batch of a few pairs: copied to the host, computed by the definition, and its gradients copied back. */
#include <stdlib.h>

#include "loss/cuda/gpu.h"

enum { SETS = 4 }; /* x, y, U, V */

typedef struct copies {
    char *block;
    void *in[SETS];
    float *out[SETS]; /* NULL where no gradient is wanted */
} copies;

static size_t rounded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static cloob_status take(cloob_ctx *ctx, const gpu *g, copies *c, const int64_t n[SETS], float *const wanted[SETS])
{
    size_t bytes = 0, at = 0;
    for (int i = 0; i < SETS; i++) bytes += 2 * rounded((size_t)(n[i] * g->d) * sizeof(float));
    c->block = malloc(bytes);
    if (!c->block) return ctx_no_memory(ctx, bytes, "a batch of a few pairs");
    for (int i = 0; i < SETS; i++) {
        size_t room = rounded((size_t)(n[i] * g->d) * sizeof(float));
        c->in[i] = n[i] ? c->block + at : NULL; /* U and V are not read without retrieval */
        c->out[i] = n[i] && wanted[i] ? (float *)(c->block + at + room) : NULL;
        at += 2 * room;
    }
    return CLOOB_OK;
}

static cloob_status evaluate(cloob_ctx *ctx, loss_plan *p, const gpu *g, copies *c, const int64_t n[SETS],
                             const void *const in[SETS], float *const out[SETS], loss_result *r)
{
    for (int i = 0; i < SETS; i++)
        if (n[i] && in[i])
            GPU_TRY("reading a few pairs", cudaMemcpyAsync(c->in[i], in[i], (size_t)(n[i] * g->d) * g->size,
                                                           cudaMemcpyDeviceToHost, g->stream));
    GPU_TRY("reading a few pairs", cudaStreamSynchronize(g->stream));
    loss_inputs host_in = { c->in[0], c->in[1], c->in[2], c->in[3] };
    loss_outputs host_out = { c->out[0], c->out[1], c->out[2], c->out[3] };
    CLOOB_TRY(loss_engine_ref.run(ctx, p, &host_in, &host_out, NULL, r));
    for (int i = 0; i < SETS; i++)
        if (p->o.gradients && c->out[i])
            GPU_TRY("gradients of a few pairs",
                    cudaMemcpyAsync(out[i], c->out[i], (size_t)(n[i] * g->d) * sizeof(float), cudaMemcpyHostToDevice,
                                    g->stream));
    return gpu_cuda(ctx, cudaStreamSynchronize(g->stream), "gradients of a few pairs");
}

cloob_status gpu_tiny_run(cloob_ctx *ctx, loss_plan *p, const gpu *g, const loss_inputs *in, const loss_outputs *out,
                          loss_result *r)
{
    int64_t n[SETS] = { p->s.rows, p->s.rows, p->s.stored_u, p->s.stored_v };
    const void *from[SETS] = { in->x, in->y, in->u, in->v };
    float *to[SETS] = { out->dx, out->dy, out->du, out->dv };
    copies c = { 0 };
    CLOOB_TRY(take(ctx, g, &c, n, to));
    cloob_status status = evaluate(ctx, p, g, &c, n, from, to, r);
    free(c.block);
    return status;
}
