/* Options, plans, and what all backends share. */
#include "loss/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cloob/options.h"
#include "loss/impl.h"
#include "tensor/tensor.h"

static const struct {
    const char *name;
    bool hopfield, leave_one_out, sigmoid;
    bool cross; /* contrasts U_x with V_y; only ref implements it */
} methods[] = {
    [CLOOB_METHOD_CLOOB] = { "cloob", true, true, false },
    [CLOOB_METHOD_CLIP] = { "clip", false, false, false },
    [CLOOB_METHOD_INFOLOOB] = { "infoloob", false, true, false },
    [CLOOB_METHOD_INFONCE_HOPFIELD] = { "infonce-hopfield", true, false, false },
    [CLOOB_METHOD_SIGLIP] = { "siglip", false, false, true },
    [CLOOB_METHOD_CLOOB_UV] = { "cloob-uv", true, true, false, true },
};
enum { METHODS = sizeof methods / sizeof *methods };

static const loss_engine *const engines[] = {
    [LOSS_REF] = &loss_engine_ref, [LOSS_CPU] = &loss_engine_cpu, [LOSS_CUDA] = &loss_engine_cuda
};

const char *loss_method_name(cloob_method m) { return methods[m].name; }
bool loss_method_has_hopfield(cloob_method m) { return methods[m].hopfield; }
bool loss_method_leaves_one_out(cloob_method m) { return methods[m].leave_one_out; }
bool loss_method_is_sigmoid(cloob_method m) { return methods[m].sigmoid; }

bool loss_method_from_name(const char *name, cloob_method *out)
{
    for (int i = 0; i < METHODS; i++)
        if (strcmp(name, methods[i].name) == 0) {
            *out = (cloob_method)i;
            return true;
        }
    return false;
}

void loss_options_init(loss_options *o)
{
    *o = (loss_options){ .method = CLOOB_METHOD_CLOOB,
                         .backend = LOSS_CPU,
                         .inv_tau = CLOOB_DEFAULT_INV_TAU,
                         .beta = CLOOB_DEFAULT_SCALE_HOPFIELD,
                         .bias = CLOOB_DEFAULT_LOGIT_BIAS,
                         .gradients = true };
}

/* ---- learnable scales ---- */

static const double LARGEST_SCALE = 100;

double loss_scale_clamp(double logit) { return fmin(fmax(logit, 0.0), log(LARGEST_SCALE)); }
double loss_scale_value(double logit) { return fmin(exp(logit), LARGEST_SCALE); }

/* What the sum of both terms is divided by in `loss`. */
static double divisor(cloob_method m, double inv_tau) { return methods[m].sigmoid ? 1 : inv_tau; }

double loss_train_factor(cloob_method m, double inv_tau)
{
    return methods[m].sigmoid || methods[m].leave_one_out ? 1 : inv_tau / 2;
}

/* d inv_tau / d logit = inv_tau; InfoLOOB's 1 / inv_tau is differentiated, too. */
double loss_dlogit_inv_tau(cloob_method m, const loss_result *r, double inv_tau)
{
    double factor = loss_train_factor(m, inv_tau) / divisor(m, inv_tau);
    double sum = methods[m].leave_one_out ? r->image_term + r->text_term : 0;
    return factor * (r->dsum_dinv_tau * inv_tau - sum);
}

double loss_dlogit_beta(cloob_method m, const loss_result *r, double inv_tau, double beta)
{
    return loss_train_factor(m, inv_tau) / divisor(m, inv_tau) * r->dsum_dbeta * beta;
}

/* ---- plans ---- */

static cloob_status check_scales(cloob_ctx *ctx, bool hopfield, double inv_tau, double beta)
{
    if (!isfinite(inv_tau) || inv_tau <= 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "inverse temperature %g: must be finite and above 0", inv_tau);
    if (hopfield && (!isfinite(beta) || beta < 0))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "Hopfield scale %g: must be finite and not negative", beta);
    return CLOOB_OK;
}

static cloob_status check_bias(cloob_ctx *ctx, double bias)
{
    return isfinite(bias) ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "logit bias %g: must be finite", bias);
}

static cloob_status check_plan(cloob_ctx *ctx, const loss_options *o, const loss_shape *s)
{
    if ((unsigned)o->method >= METHODS) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "method %d is not known", o->method);
    if (methods[o->method].cross && o->backend != LOSS_REF)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "method %s: only the device ref supports it",
                        methods[o->method].name);
    CLOOB_TRY(check_scales(ctx, methods[o->method].hopfield, o->inv_tau, o->beta));
    CLOOB_TRY(check_bias(ctx, o->bias));
    if (s->dtype == CLOOB_F64 && o->backend != LOSS_REF)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "embeddings are F64: only the device ref supports them");
    if (s->dtype != CLOOB_F32 && s->dtype != CLOOB_BF16 && s->dtype != CLOOB_F64)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "embeddings are %s: must be F32 or BF16", dtype_name(s->dtype));
    if (o->tile < 0 || o->tile % 8 != 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "tiles of %lld: must be a multiple of 8, or 0", (long long)o->tile);
    if (s->dim < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "embeddings of width %lld", (long long)s->dim);
    if (s->rows < 0 || s->stored_u < 0 || s->stored_v < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a negative number of rows");
    return CLOOB_OK;
}

/* The ranks exchange their numbers of rows. */
static cloob_status count_rows(cloob_ctx *ctx, loss_plan *p, const loss_shape *s)
{
    p->elements = calloc((size_t)p->size, sizeof *p->elements);
    if (!p->elements) return ctx_no_memory(ctx, (size_t)p->size * sizeof *p->elements, "row counts");
    p->elements[p->rank] = s->rows;
    CLOOB_TRY(comm_host_sum(ctx, p->c, p->elements, p->size));
    for (int r = 0; r < p->size; r++) {
        if (r < p->rank) p->first += p->elements[r];
        p->total += p->elements[r];
        p->elements[r] *= s->dim;
    }
    return CLOOB_OK;
}

static cloob_status check_total(cloob_ctx *ctx, const loss_plan *p)
{
    if (p->total < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no pairs");
    if (p->total == 1 && p->leave_one_out)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a batch of 1 pair: %s leaves the positive out and needs at least 2",
                        methods[p->o.method].name);
    return CLOOB_OK;
}

static void take_method(const cloob_ctx *ctx, loss_plan *p)
{
    p->hopfield = methods[p->o.method].hopfield;
    p->leave_one_out = methods[p->o.method].leave_one_out;
    p->sigmoid = methods[p->o.method].sigmoid;
    p->cross = methods[p->o.method].cross;
    p->gpu_generation = ctx->kernels.gpu_generation;
}

static cloob_status plan_fill(cloob_ctx *ctx, loss_plan *p, const loss_options *o, const loss_shape *s)
{
    CLOOB_TRY(comm_agree(ctx, p->c, check_plan(ctx, o, s)));
    take_method(ctx, p);
    CLOOB_TRY(count_rows(ctx, p, s));
    CLOOB_TRY(check_total(ctx, p));
    return comm_agree(ctx, p->c, engines[o->backend]->prepare(ctx, p));
}

cloob_status loss_plan_create(cloob_ctx *ctx, const loss_options *o, const loss_shape *s, comm *c, loss_plan **out)
{
    loss_plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ctx_no_memory(ctx, sizeof *p, "a loss plan");
    p->o = *o;
    p->s = *s;
    p->c = c;
    p->rank = comm_rank(c);
    p->size = comm_size(c);
    cloob_status status = plan_fill(ctx, p, o, s);
    if (status != CLOOB_OK) loss_plan_destroy(p);
    else *out = p;
    return status;
}

cloob_status loss_measure(cloob_ctx *ctx, const loss_options *o, const loss_shape *s, int ranks, size_t *bytes)
{
    loss_plan p = { .o = *o, .s = *s, .size = ranks, .total = s->rows * ranks };
    CLOOB_TRY(check_plan(ctx, o, s));
    take_method(ctx, &p);
    CLOOB_TRY(check_total(ctx, &p));
    *bytes = engines[o->backend]->bytes(&p);
    return CLOOB_OK;
}

void loss_plan_destroy(loss_plan *p)
{
    if (!p) return;
    engines[p->o.backend]->release(p);
    free(p->elements);
    free(p);
}

size_t loss_plan_bytes(const loss_plan *p) { return p->bytes; }

cloob_status loss_plan_scales(cloob_ctx *ctx, loss_plan *p, double inv_tau, double beta)
{
    CLOOB_TRY(check_scales(ctx, p->hopfield, inv_tau, beta));
    p->o.inv_tau = inv_tau;
    p->o.beta = beta;
    return engines[p->o.backend]->prepare(ctx, p);
}

cloob_status loss_plan_bias(cloob_ctx *ctx, loss_plan *p, double bias)
{
    CLOOB_TRY(check_bias(ctx, bias));
    p->o.bias = bias;
    return CLOOB_OK;
}

cloob_status loss_plan_stored(cloob_ctx *ctx, loss_plan *p, int64_t stored_u, int64_t stored_v)
{
    if (stored_u < 0 || stored_v < 0) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a negative number of stored rows");
    if (stored_u == p->s.stored_u && stored_v == p->s.stored_v) return CLOOB_OK;
    p->s.stored_u = stored_u;
    p->s.stored_v = stored_v;
    return engines[p->o.backend]->prepare(ctx, p);
}

static cloob_status check_pointers(cloob_ctx *ctx, const loss_plan *p, const loss_inputs *in, const loss_outputs *out)
{
    if (p->s.rows > 0 && (!in->x || !in->y)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "x or y is missing");
    if (p->hopfield && ((p->s.stored_u > 0 && !in->u) || (p->s.stored_v > 0 && !in->v)))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "stored patterns U or V are missing");
    if (p->o.gradients && p->s.rows > 0 && (!out || !out->dx || !out->dy))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "gradients are requested, but dx or dy is missing");
    return CLOOB_OK;
}

static cloob_status finish(cloob_ctx *ctx, const loss_plan *p, loss_result *r)
{
    r->loss = (r->image_term + r->text_term) / divisor(p->o.method, p->o.inv_tau);
    if (!isfinite(r->loss)) return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "the loss is not finite (%g)", r->loss);
    return CLOOB_OK;
}

cloob_status loss_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream,
                      loss_result *r)
{
    const loss_engine *e = engines[p->o.backend];
    const loss_outputs none = { NULL, NULL, NULL, NULL };
    memset(r, 0, sizeof *r);
    cloob_status status = check_pointers(ctx, p, in, out);
    if (status == CLOOB_OK && !p->o.unchecked) status = e->check(ctx, p, in, stream);
    CLOOB_TRY(comm_agree(ctx, p->c, status));
    CLOOB_TRY(e->run(ctx, p, in, out ? out : &none, stream, r));
    return finish(ctx, p, r);
}

bool loss_can_queue(const loss_plan *p) { return engines[p->o.backend]->queue && p->size == 1 && !loss_is_hosted(p); }

cloob_status loss_queue(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, void *stream)
{
    CLOOB_TRY(check_pointers(ctx, p, in, out));
    return engines[p->o.backend]->queue(ctx, p, in, out, stream);
}

cloob_status loss_collect(cloob_ctx *ctx, loss_plan *p, loss_result *r)
{
    memset(r, 0, sizeof *r);
    CLOOB_TRY(engines[p->o.backend]->collect(ctx, p, r));
    return finish(ctx, p, r);
}

/* ---- shared by the backends ---- */

float *loss_dstored(const loss_plan *p, const loss_outputs *out, bool text, float *sum)
{
    if (text ? p->s.stored_v > 0 : p->s.stored_u > 0) return text ? out->dv : out->du;
    if (p->size > 1) return sum;
    return text ? out->dy : out->dx;
}

int64_t loss_longest(const loss_plan *p)
{
    int64_t n = p->total;
    if (p->hopfield && p->s.stored_u > n) n = p->s.stored_u;
    return p->hopfield && p->s.stored_v > n ? p->s.stored_v : n;
}

/* Scores times width. */
static double work_of(const loss_plan *p) { return (double)p->total * (double)loss_longest(p) * (double)p->s.dim; }

bool loss_is_small(const loss_plan *p) { return work_of(p) <= 1 << 21; }

bool loss_is_tiny(const loss_plan *p)
{
    enum { FEW = 8, FEW_WORK = 1 << 18, LITTLE_WORK = 1 << 14 };
    double work = work_of(p);
    return work <= LITTLE_WORK || (p->total <= FEW && work <= FEW_WORK);
}

bool loss_is_hosted(const loss_plan *p)
{
    return p->size == 1 && (p->s.dtype == CLOOB_F32 ? loss_is_small(p) : loss_is_tiny(p));
}

double loss_row_value(double lse, double pos, bool leave_one_out, double *weight)
{
    double v = lse - pos;
    *weight = 1.0;
    if (leave_one_out) return v;
    *weight = v > 0 ? 1 / (1 + exp(-v)) : exp(v) / (1 + exp(v));
    return v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
}

double loss_unit_tolerance(cloob_dtype dtype) { return dtype == CLOOB_BF16 ? 1e-2 : 1e-3; }

cloob_status loss_fail_row(cloob_ctx *ctx, const char *name, int64_t row, double length)
{
    if (!isfinite(length))
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "%s: row %lld holds NaN or infinity", name, (long long)row);
    return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                    "%s: row %lld has length %.6g, but rows must have unit length: divide each by its norm", name,
                    (long long)row, length);
}

cloob_status loss_fail_retrieval(cloob_ctx *ctx, const char *states, const char *stored, int64_t row)
{
    return ctx_fail(ctx, CLOOB_ERR_NUMERIC,
                    "the retrieval of %s row %lld from %s is zero and has no direction: the stored patterns cancel",
                    states, (long long)row, stored);
}
