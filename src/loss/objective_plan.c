/* The objective of rows that lie where they are computed with. */
#include "loss/objective_plan.h"
#include "core/needs.h"

#include <stdlib.h>
#include <string.h>

struct cloob_objective_plan {
    device *dev;
    loss_plan *plan;
    loss_shape shape;
};

void objective_loss_options(const cloob_objective_options *o, const device *dev, bool gradients, loss_options *out)
{
    static const loss_backend backend[] = {
        [BACKEND_REF] = LOSS_REF, [BACKEND_CPU] = LOSS_CPU, [BACKEND_CUDA] = LOSS_CUDA
    };
    loss_options_init(out);
    out->method = (loss_method)o->method;
    out->backend = backend[dev->backend];
    out->inv_tau = o->inv_tau;
    out->beta = o->scale_hopfield;
    out->bias = o->logit_bias;
    out->gradients = gradients;
}

void objective_fill_result(const loss_shape *s, const loss_result *l, cloob_objective_result *r)
{
    *r = (cloob_objective_result){ l->loss, l->image_term, l->text_term, l->dsum_dinv_tau, l->dsum_dbeta,
                                   s->rows, s->dim,        s->stored_u,  s->stored_v,      l->dsum_dbias };
}

static const char *device_for(const cloob_objective_options *o, cloob_dtype dtype)
{
    const char *name = o->device ? o->device : "auto";
    return dtype == CLOOB_F64 && strcmp(name, "auto") == 0 ? "ref" : name;
}

static cloob_status plan_fill(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_objective_shape *s,
                              cloob_objective_plan *p)
{
    loss_options l;
    p->shape = (loss_shape){ s->n, s->d, s->nu, s->nv, s->dtype };
    CLOOB_TRY(device_open(ctx, device_for(o, s->dtype), &p->dev));
    objective_loss_options(o, p->dev, s->gradients, &l);
    return loss_plan_create(ctx, &l, &p->shape, NULL, &p->plan);
}

cloob_status cloob_objective_plan_create(cloob_ctx *ctx, const cloob_objective_options *o,
                                         const cloob_objective_shape *s, cloob_objective_plan **out)
{
    API_NEEDS(ctx, o && s && out);
    cloob_objective_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a plan of the objective");
    cloob_status status = plan_fill(ctx, o, s, p);
    if (status == CLOOB_OK) *out = p;
    else cloob_objective_plan_destroy(p);
    return status;
}

cloob_status cloob_objective_plan_scales(cloob_ctx *ctx, cloob_objective_plan *p, double inv_tau, double scale_hopfield)
{
    API_NEEDS(ctx, p);
    return loss_plan_scales(ctx, p->plan, inv_tau, scale_hopfield);
}

cloob_status cloob_objective_plan_run(cloob_ctx *ctx, cloob_objective_plan *p, const cloob_objective_rows *rows,
                                      cloob_objective_result *r)
{
    API_NEEDS(ctx, p && rows && r);
    loss_inputs in = { rows->x, rows->y, rows->u, rows->v };
    loss_outputs out = { rows->dx, rows->dy, rows->du, rows->dv };
    loss_result l;
    memset(r, 0, sizeof *r);
    CLOOB_TRY(loss_run(ctx, p->plan, &in, &out, p->dev->stream, &l));
    CLOOB_TRY(p->dev->sync(ctx, p->dev));
    objective_fill_result(&p->shape, &l, r);
    return CLOOB_OK;
}

void cloob_objective_plan_destroy(cloob_objective_plan *p)
{
    if (!p) return;
    loss_plan_destroy(p->plan);
    device_close(p->dev);
    free(p);
}
