/* The objective of rows in host memory, or of rows that are on a device already (cloob/objective.h). */
#include "cloob/objective.h"

#include <stdlib.h>
#include <string.h>

#include "cloob/options.h"
#include "core/needs.h"
#include "loss/loss.h"
#include "tensor/device.h"

void cloob_objective_options_init_size(cloob_objective_options *o, size_t size)
{
    cloob_objective_options d = { .method = CLOOB_METHOD_CLOOB,
                                  .inv_tau = CLOOB_DEFAULT_INV_TAU,
                                  .scale_hopfield = CLOOB_DEFAULT_SCALE_HOPFIELD,
                                  .device = "auto",
                                  .compute = CLOOB_F32,
                                  .logit_bias = CLOOB_DEFAULT_LOGIT_BIAS };
    options_write(o, size, &d, sizeof d);
}

static void fill_options(const cloob_objective_options *o, const device *dev, bool gradients, loss_options *out)
{
    static const loss_backend backend[] = {
        [BACKEND_REF] = LOSS_REF, [BACKEND_CPU] = LOSS_CPU, [BACKEND_CUDA] = LOSS_CUDA
    };
    loss_options_init(out);
    out->method = o->method;
    out->backend = backend[dev->backend];
    out->inv_tau = o->inv_tau;
    out->beta = o->scale_hopfield;
    out->bias = o->logit_bias;
    out->gradients = gradients;
}

static void fill_result(const loss_shape *s, const loss_result *l, cloob_objective_result *r)
{
    *r = (cloob_objective_result){ l->loss, l->image_term, l->text_term, l->dsum_dinv_tau, l->dsum_dbeta,
                                   s->rows, s->dim,        s->stored_u,  s->stored_v,      l->dsum_dbias };
}

/* ---- rows in device memory ---- */

struct cloob_objective_plan {
    device *dev;
    loss_plan *plan;
    loss_shape shape;
};

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
    fill_options(o, p->dev, s->gradients, &l);
    return loss_plan_create(ctx, &l, &p->shape, NULL, &p->plan);
}

cloob_status cloob_objective_plan_create(cloob_ctx *ctx, const cloob_objective_options *o,
                                         const cloob_objective_shape *s, cloob_objective_plan **out)
{
    API_NEEDS(ctx, o && s && out);
    OPTIONS_READ(ctx, cloob_objective_options, o);
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
    fill_result(&p->shape, &l, r);
    return CLOOB_OK;
}

void cloob_objective_plan_destroy(cloob_objective_plan *p)
{
    if (!p) return;
    loss_plan_destroy(p->plan);
    device_close(p->dev);
    free(p);
}

/* ---- rows in host memory: uploaded in the type that is computed with ---- */

enum { X, Y, U, V, MATRICES };

static cloob_status upload(cloob_ctx *ctx, device *dev, cloob_dtype dtype, int64_t count, const float *rows, void **out)
{
    size_t bytes = (size_t)count * dtype_size(dtype);
    if (count == 0) return CLOOB_OK;
    CLOOB_TRY(dev->alloc(ctx, dev, bytes, "embeddings", out));
    if (dtype == CLOOB_F32) return dev->to_device(ctx, dev, *out, rows, bytes);
    void *narrow = malloc(bytes);
    if (!narrow) return ctx_no_memory(ctx, bytes, "embeddings");
    dtype_convert(dtype, narrow, CLOOB_F32, rows, count);
    cloob_status status = dev->to_device(ctx, dev, *out, narrow, bytes);
    if (status == CLOOB_OK) status = dev->sync(ctx, dev);
    free(narrow);
    return status;
}

/* in, d: device memory for the rows and their gradients, which the caller frees. */
static cloob_status evaluate(cloob_ctx *ctx, cloob_objective_plan *p, const cloob_pairs *e, const cloob_gradients *g,
                             void *in[MATRICES], void *d[MATRICES], cloob_objective_result *r)
{
    const cloob_gradients none = { 0 }, *to = g ? g : &none;
    const float *rows[MATRICES] = { e->x, e->y, e->u, e->v };
    float *out[MATRICES] = { to->dx, to->dy, to->du, to->dv };
    int64_t n[MATRICES] = { e->n, e->n, p->shape.stored_u, p->shape.stored_v };
    for (int i = 0; i < MATRICES; i++) {
        CLOOB_TRY(upload(ctx, p->dev, p->shape.dtype, n[i] * e->d, rows[i], &in[i]));
        if (g && n[i]) CLOOB_TRY(p->dev->alloc(ctx, p->dev, (size_t)(n[i] * e->d) * sizeof(float), "gradients", &d[i]));
    }
    cloob_objective_rows at = { in[X], in[Y], in[U], in[V], d[X], d[Y], d[U], d[V] };
    CLOOB_TRY(cloob_objective_plan_run(ctx, p, &at, r));
    for (int i = 0; i < MATRICES; i++)
        if (out[i] && d[i])
            CLOOB_TRY(p->dev->to_host(ctx, p->dev, out[i], d[i], (size_t)(n[i] * e->d) * sizeof(float)));
    return CLOOB_OK;
}

cloob_status cloob_objective(cloob_ctx *ctx, const cloob_objective_options *o, const cloob_pairs *e,
                             const cloob_gradients *g, cloob_objective_result *r)
{
    API_NEEDS(ctx, o && e && r);
    OPTIONS_READ(ctx, cloob_objective_options, o);
    cloob_objective_plan *p;
    void *in[MATRICES] = { NULL }, *d[MATRICES] = { NULL };
    memset(r, 0, sizeof *r);
    if (e->n < 1 || e->d < 1 || !e->x || !e->y)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "x, y of %lld rows of width %lld: nothing to compare", (long long)e->n,
                        (long long)e->d);
    cloob_objective_shape shape = { .n = e->n,
                                    .d = e->d,
                                    .nu = e->u ? e->nu : 0,
                                    .nv = e->v ? e->nv : 0,
                                    .dtype = o->compute,
                                    .gradients = g != NULL };
    CLOOB_TRY(cloob_objective_plan_create(ctx, o, &shape, &p));
    cloob_status status = evaluate(ctx, p, e, g, in, d, r);
    for (int i = 0; i < MATRICES; i++) p->dev->free(p->dev, in[i]), p->dev->free(p->dev, d[i]);
    cloob_objective_plan_destroy(p);
    return status;
}
