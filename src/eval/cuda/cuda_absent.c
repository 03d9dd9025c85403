/* A build without CUDA: no GPU can be opened, so none of these is reached with one. */
#include "eval/probe/probe_gpu.h"
#include "eval/retrieval.h"

static cloob_status none(cloob_ctx *ctx)
{
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "evaluation on a GPU: this build has no CUDA; use `device` cpu");
}

cloob_status ranks_gpu(cloob_ctx *ctx, device *d, const rank_pass *p) { return (void)d, (void)p, none(ctx); }

cloob_status probe_gpu_create(cloob_ctx *ctx, device *d, size_t limit, probe_gpu **out)
{
    return (void)d, (void)limit, *out = NULL, none(ctx);
}
void probe_gpu_destroy(probe_gpu *g) { (void)g; }
cloob_status probe_gpu_load(probe_gpu *g, const probe_data *part, int parts, const int32_t *y, int64_t C)
{
    return (void)g, (void)part, (void)parts, (void)y, (void)C, CLOOB_ERR_UNSUPPORTED;
}
cloob_status probe_gpu_evaluate(probe_gpu *g, double *loss, double *gradient, const double *w)
{
    return (void)g, (void)loss, (void)gradient, (void)w, CLOOB_ERR_UNSUPPORTED;
}
cloob_status probe_gpu_uncertain(probe_gpu *g, float *out) { return (void)g, (void)out, CLOOB_ERR_UNSUPPORTED; }
