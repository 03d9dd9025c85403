/* A small batch: copied to the host, computed there, and its gradients copied back. */
#include <stdlib.h>

#include "loss/cuda/gpu.h"

enum { SETS = 4 }; /* x, y, U, V */

static cloob_status copy(cloob_ctx *ctx, const gpu *g, void *to, const void *from, size_t bytes,
                         enum cudaMemcpyKind direction)
{
    return gpu_cuda(ctx, cudaMemcpyAsync(to, from, bytes, direction, g->stream), "copying a small batch");
}

/* block: every set, then the gradients of every set. */
static cloob_status evaluate(cloob_ctx *ctx, loss_plan *p, const gpu *g, char *block, const int64_t n[SETS],
                             const void *const in[SETS], float *const out[SETS], loss_result *r)
{
    loss_plan host = *p;
    void *rows[SETS] = { 0 };
    float *gradient[SETS] = { 0 };
    for (int i = 0; i < SETS; i++) {
        size_t bytes = (size_t)(n[i] * g->d) * sizeof(float);
        if (n[i]) rows[i] = block, gradient[i] = out[i] ? (float *)(block + bytes) : NULL;
        if (n[i] && in[i]) /* U and V are not read without retrieval */
            CLOOB_TRY(copy(ctx, g, rows[i], in[i], (size_t)(n[i] * g->d) * g->size, cudaMemcpyDeviceToHost));
        block += 2 * bytes;
    }
    GPU_TRY("copying a small batch", cudaStreamSynchronize(g->stream));
    host.memory = NULL, host.bytes = 0, host.c = NULL;
    CLOOB_TRY(loss_engine_cpu.prepare(ctx, &host));
    cloob_status status =
        loss_engine_cpu.run(ctx, &host, &(loss_inputs){ rows[0], rows[1], rows[2], rows[3] },
                            &(loss_outputs){ gradient[0], gradient[1], gradient[2], gradient[3] }, NULL, r);
    loss_engine_cpu.release(&host);
    CLOOB_TRY(status);
    for (int i = 0; i < SETS && p->o.gradients; i++)
        if (gradient[i])
            CLOOB_TRY(copy(ctx, g, out[i], gradient[i], (size_t)(n[i] * g->d) * sizeof(float), cudaMemcpyHostToDevice));
    return gpu_cuda(ctx, cudaStreamSynchronize(g->stream), "copying a small batch");
}

cloob_status gpu_host_run(cloob_ctx *ctx, loss_plan *p, const gpu *g, const loss_inputs *in, const loss_outputs *out,
                          loss_result *r)
{
    int64_t n[SETS] = { p->s.rows, p->s.rows, p->s.stored_u, p->s.stored_v };
    size_t bytes = 2 * sizeof(float) * (size_t)(g->d * (n[0] + n[1] + n[2] + n[3]));
    char *block = malloc(bytes);
    if (!block) return ctx_no_memory(ctx, bytes, "a small batch");
    cloob_status status = evaluate(ctx, p, g, block, n, (const void *const[]){ in->x, in->y, in->u, in->v },
                                   (float *const[]){ out->dx, out->dy, out->du, out->dv }, r);
    free(block);
    return status;
}
