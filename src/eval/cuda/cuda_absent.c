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
device *probe_gpu_device(probe_gpu *g) { return (void)g, NULL; }

cloob_status probe_gpu_load(probe_gpu *g, const probe_data *part, int parts, const int32_t *y, int64_t C)
{
    return (void)g, (void)part, (void)parts, (void)y, (void)C, CLOOB_ERR_UNSUPPORTED;
}
cloob_status probe_gpu_evaluate(probe_gpu *g, double *loss, double *gradient, const double *w)
{
    return (void)g, (void)loss, (void)gradient, (void)w, CLOOB_ERR_UNSUPPORTED;
}
cloob_status probe_gpu_hessian(probe_gpu *g, float *sum, int64_t stride, int64_t *used)
{
    return (void)g, (void)sum, (void)stride, (void)used, CLOOB_ERR_UNSUPPORTED;
}
cloob_status probe_gpu_invert(probe_gpu *g, const double *M) { return (void)g, (void)M, CLOOB_ERR_UNSUPPORTED; }
cloob_status probe_gpu_precondition(probe_gpu *g, double *out, const double *v)
{
    return (void)g, (void)out, (void)v, CLOOB_ERR_UNSUPPORTED;
}

cloob_status score_gpu_create(cloob_ctx *ctx, device *d, score_gpu **out, const double *w, int64_t C, int64_t D,
                              int64_t block)
{
    return (void)d, (void)w, (void)C, (void)D, (void)block, *out = NULL, none(ctx);
}
void score_gpu_destroy(score_gpu *s) { (void)s; }
cloob_status score_gpu_logits(score_gpu *s, float *z, const float *x, int64_t n)
{
    return (void)s, (void)z, (void)x, (void)n, CLOOB_ERR_UNSUPPORTED;
}
