/* Everything else: the methods without retrieval, stored sets, several ranks, sharp scales. Each rank has its
 * own rows as states and anchors, and sees all rows as stored patterns and samples (docs/explanation/objective.md 6):
 *
 *     gather x, y
 *     retrieve own rows
 *     per term: gather samples, contrast own anchors, sum-scatter the samples' gradient
 *     retrieval backward
 *     sum-scatter the stored patterns' gradient
 *
 * With one rank the gathered matrices are the local ones and nothing is copied. */
#include <string.h>

#include "loss/cpu.h"

enum { UX, UY, VX, VY };

typedef struct general {
    int64_t n, N, d;   /* own rows, all rows */
    rows x, y;         /* own */
    rows all_x, all_y; /* gathered */
    rows u, v;         /* stored */
    float *r[4];       /* (n, d): UX, UY, VX, VY, own rows */
    float *length[4], *shift[4];
    float *samples;       /* (N, d), several ranks only */
    float *dsamples;      /* (N, d); with several ranks it is one of the two below */
    float *sum_x, *sum_y; /* (N, d): gradients of gathered rows, several ranks only */
    void *gathered[2];
    double *lse[2], *weight[2], *dots, *column, *bias;
    float *mean[2]; /* (d) of anchors and samples */
    tiles t;
} general;

static size_t general_carve(const loss_plan *p, void *memory, general *g)
{
    size_t n = (size_t)p->s.rows, d = (size_t)p->s.dim, all = (size_t)p->total * d * sizeof(float);
    bool many = p->size > 1;
    carver c = { memory, 0 };
    memset(g, 0, sizeof *g);
    g->n = p->s.rows;
    g->N = p->total;
    g->d = p->s.dim;
    for (int i = 0; many && i < 2; i++) g->gathered[i] = carve(&c, p->s.dtype == CLOOB_F32 ? all : all / 2);
    for (int i = 0; p->hopfield && i < 4; i++) {
        g->r[i] = carve(&c, n * d * sizeof(float));
        g->length[i] = carve(&c, n * sizeof(float));
        g->shift[i] = carve(&c, n * sizeof(float));
    }
    if (many && p->hopfield) g->samples = carve(&c, all);
    if (many && p->o.gradients) g->sum_x = carve(&c, all), g->sum_y = carve(&c, all);
    if (p->o.gradients && p->hopfield) g->dsamples = many ? g->sum_x : carve(&c, all);
    for (int i = 0; i < 2; i++) g->lse[i] = carve(&c, n * sizeof(double)), g->weight[i] = carve(&c, n * sizeof(double));
    g->dots = carve(&c, n * sizeof(double));
    g->column = carve(&c, (size_t)g->N * sizeof(double));
    g->bias = carve(&c, (size_t)g->N * sizeof(double));
    for (int i = 0; i < 2; i++) g->mean[i] = carve(&c, d * sizeof(float));
    g->t = tiles_carve(&c, p);
    return c.used;
}

size_t general_bytes(const loss_plan *p)
{
    general g;
    return general_carve(p, NULL, &g);
}

/* ---- between ranks ---- */

static cloob_status gather_rows(cloob_ctx *ctx, loss_plan *p, general *g, const loss_inputs *in)
{
    const void *x = in->x, *y = in->y;
    g->x = (rows){ x, p->s.dtype, g->n, g->d };
    g->y = (rows){ y, p->s.dtype, g->n, g->d };
    if (p->size > 1) {
        CLOOB_TRY(comm_all_gather(ctx, p->c, x, g->gathered[0], p->elements, p->s.dtype));
        CLOOB_TRY(comm_all_gather(ctx, p->c, y, g->gathered[1], p->elements, p->s.dtype));
        x = g->gathered[0];
        y = g->gathered[1];
    }
    g->all_x = (rows){ x, p->s.dtype, g->N, g->d };
    g->all_y = (rows){ y, p->s.dtype, g->N, g->d };
    g->u = p->s.stored_u > 0 ? (rows){ in->u, p->s.dtype, p->s.stored_u, g->d } : g->all_x;
    g->v = p->s.stored_v > 0 ? (rows){ in->v, p->s.dtype, p->s.stored_v, g->d } : g->all_y;
    return CLOOB_OK;
}

static cloob_status gather_samples(cloob_ctx *ctx, loss_plan *p, general *g, float *own, rows *all)
{
    *all = (rows){ own, CLOOB_F32, g->N, g->d };
    if (p->size == 1) return CLOOB_OK;
    all->data = g->samples;
    return comm_all_gather(ctx, p->c, own, g->samples, p->elements, CLOOB_F32);
}

/* own (n, d) += this rank's rows of the sum of all */
static cloob_status add_scattered(cloob_ctx *ctx, loss_plan *p, general *g, float *own, float *all)
{
    float *mine = all + p->first * g->d;
    CLOOB_TRY(comm_reduce_scatter(ctx, p->c, all, mine, p->elements, CLOOB_F32));
    for (int64_t i = 0; i < g->n * g->d; i++) own[i] += mine[i];
    return CLOOB_OK;
}

static void zero(float *m, int64_t elements)
{
    if (m) memset(m, 0, (size_t)elements * sizeof *m);
}

/* ---- retrieval ---- */

static search search_of(const loss_plan *p, const general *g, int which)
{
    return (search){ .states = which == UX || which == VX ? g->x : g->y,
                     .stored = which == UX || which == UY ? g->u : g->v,
                     .beta = p->o.beta,
                     .r = g->r[which],
                     .shift = g->shift[which],
                     .row = g->dots };
}

static cloob_status retrieve(cloob_ctx *ctx, loss_plan *p, general *g)
{
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < 4 && status == CLOOB_OK; i++) {
        search s = search_of(p, g, i);
        search_forward(ctx, &s, &g->t);
        int64_t bad = unit_forward(ctx, g->r[i], g->length[i], g->n, g->d);
        if (bad >= 0) status = loss_fail_retrieval(ctx, i % 2 ? "y" : "x", i < 2 ? "U" : "V", p->first + bad);
    }
    return comm_agree(ctx, p->c, status);
}

static cloob_status retrieve_backward(cloob_ctx *ctx, loss_plan *p, general *g, const loss_outputs *out, loss_result *r)
{
    if (p->size > 1) zero(g->sum_x, g->N * g->d), zero(g->sum_y, g->N * g->d);
    for (int i = 0; i < 4; i++) {
        search s = search_of(p, g, i);
        s.dstates = i % 2 ? out->dy : out->dx;
        s.dstored = loss_dstored(p, out, i >= VX, i >= VX ? g->sum_y : g->sum_x);
        r->dsum_dbeta += p->o.inv_tau * search_backward(ctx, &s, &g->t);
    }
    if (p->size == 1) return CLOOB_OK;
    if (p->s.stored_u == 0) CLOOB_TRY(add_scattered(ctx, p, g, out->dx, g->sum_x));
    else if (out->du) CLOOB_TRY(comm_all_reduce(ctx, p->c, out->du, p->s.stored_u * g->d, CLOOB_F32));
    if (p->s.stored_v == 0) return add_scattered(ctx, p, g, out->dy, g->sum_y);
    return out->dv ? comm_all_reduce(ctx, p->c, out->dv, p->s.stored_v * g->d, CLOOB_F32) : CLOOB_OK;
}

/* ---- the two terms ---- */

static contrast term(const loss_plan *p, const general *g, int text, rows anchors, rows samples)
{
    return (contrast){ .a = anchors,
                       .b = samples,
                       .first = p->first,
                       .owned = p->hopfield,
                       .mean_a = g->mean[0],
                       .mean_b = g->mean[1],
                       .bias = g->bias,
                       .inv_tau = p->o.inv_tau,
                       .leave_one_out = p->leave_one_out,
                       .lse = g->lse[text],
                       .weight = g->weight[text],
                       .column = g->column };
}

/* Value and gradients; what was retrieved is replaced by its gradient. */
static cloob_status hopfield_term(cloob_ctx *ctx, loss_plan *p, general *g, int text, double *value, double *dinv_tau)
{
    int a = text ? VY : UX, b = text ? VX : UY;
    rows anchors = { g->r[a], CLOOB_F32, g->n, g->d }, samples;
    CLOOB_TRY(gather_samples(ctx, p, g, g->r[b], &samples));
    contrast c = term(p, g, text, anchors, samples);
    *value = contrast_forward(ctx, &c, &g->t);
    if (!p->o.gradients) return CLOOB_OK;
    c.unit_length = g->length[a];
    c.db = g->dsamples;
    zero(c.db, g->N * g->d);
    *dinv_tau += contrast_backward(ctx, &c, &g->t);
    float *mine = c.db + p->first * g->d;
    CLOOB_TRY(comm_reduce_scatter(ctx, p->c, c.db, mine, p->elements, CLOOB_F32));
    unit_backward(ctx, g->r[b], p->size > 1 ? NULL : c.mean_b, mine, g->length[b], g->dots, g->n, g->d);
    return CLOOB_OK;
}

static cloob_status plain_terms(cloob_ctx *ctx, loss_plan *p, general *g, const loss_outputs *out, double value[2],
                                double *dinv_tau)
{
    bool many = p->size > 1;
    contrast image = term(p, g, 0, g->x, g->all_y), text = term(p, g, 1, g->y, g->all_x);
    value[0] = contrast_forward(ctx, &image, &g->t);
    value[1] = contrast_forward(ctx, &text, &g->t);
    if (!p->o.gradients) return CLOOB_OK;
    image.da = text.db = out->dx;
    image.db = text.da = out->dy;
    if (many) image.db = g->sum_y, text.db = g->sum_x, zero(g->sum_x, g->N * g->d), zero(g->sum_y, g->N * g->d);
    *dinv_tau += contrast_backward(ctx, &image, &g->t);
    *dinv_tau += contrast_backward(ctx, &text, &g->t);
    if (!many) return CLOOB_OK;
    CLOOB_TRY(add_scattered(ctx, p, g, out->dx, g->sum_x));
    return add_scattered(ctx, p, g, out->dy, g->sum_y);
}

static void begin_gradients(const loss_plan *p, const general *g, const loss_outputs *out)
{
    zero(out->dx, g->n * g->d);
    zero(out->dy, g->n * g->d);
    zero(out->du, p->s.stored_u * g->d);
    zero(out->dv, p->s.stored_v * g->d);
}

static cloob_status terms(cloob_ctx *ctx, loss_plan *p, general *g, const loss_outputs *out, double value[2],
                          loss_result *r)
{
    if (!p->hopfield) return plain_terms(ctx, p, g, out, value, &r->dsum_dinv_tau);
    CLOOB_TRY(retrieve(ctx, p, g));
    CLOOB_TRY(hopfield_term(ctx, p, g, 0, &value[0], &r->dsum_dinv_tau));
    CLOOB_TRY(hopfield_term(ctx, p, g, 1, &value[1], &r->dsum_dinv_tau));
    return p->o.gradients ? retrieve_backward(ctx, p, g, out, r) : CLOOB_OK;
}

cloob_status general_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r)
{
    general g;
    double value[2] = { 0, 0 };
    general_carve(p, p->memory, &g);
    CLOOB_TRY(gather_rows(ctx, p, &g, in));
    if (p->o.gradients) begin_gradients(p, &g, out);
    CLOOB_TRY(terms(ctx, p, &g, out, value, r));
    double sums[4] = { value[0], value[1], r->dsum_dinv_tau, r->dsum_dbeta };
    CLOOB_TRY(comm_host_sum_f64(ctx, p->c, sums, 4));
    r->image_term = sums[0] / (double)p->total;
    r->text_term = sums[1] / (double)p->total;
    r->dsum_dinv_tau = sums[2];
    r->dsum_dbeta = sums[3];
    return CLOOB_OK;
}
