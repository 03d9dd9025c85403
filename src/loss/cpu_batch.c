/* CLOOB with the batch as stored patterns, in one process: the common case. Four retrievals from three sets
 * of scores:
 *
 *     image  anchors Ux (from x, stored x), samples Uy (from y, stored x)
 *     text   anchors Vy (from y, stored y), samples Vx (from x, stored y)
 *
 * Each holds the sums, then the unit rows, then their gradient dR. What is in memory besides the inputs, in
 * matrices of N x d; each line writes the matrix in brackets:
 *
 *     retrieve image        ux       uy    vx   [ux, uy, vx]
 *     image term            dx* ux   uy    vx   [ux, uy become gradients; dx* collects the samples']
 *     x against x, back     dx  ux   uy    vx   [dx]
 *     retrieve text         dx  vy   uy    vx   [vy]
 *     text term             dx  vy   uy    vx   dy* [vy, vx become gradients; dy* collects the samples']
 *     y against y, back     dx  vy   uy    vx   dy  [dy]
 *     x against y, back     dx       uy    vx   dy  [dx, dy]
 *
 * which is never more than five, two of them the caller's dx and dy. */
#include <string.h>

#include "loss/cpu.h"

typedef struct batch {
    int64_t n, d;
    rows x, y;
    float *anchors;        /* (n, d): Ux, then Vy */
    float *uy, *vx;        /* (n, d) */
    float *length[4];      /* (n): Ux, Uy, Vx, Vy */
    double *lse, *weight;  /* (n), of one term after the other */
    double *column, *bias; /* (n) */
    float *mean[2];        /* (d) of anchors and samples, taken off the unit rows by the contrast */
    tiles t;
} batch;

bool batch_applies(const loss_plan *p)
{
    return p->hopfield && p->size == 1 && p->s.stored_u == 0 && p->s.stored_v == 0 && p->o.beta <= PAIR_LARGEST_BETA;
}

/* memory NULL: only counts. Returns the bytes. */
static size_t batch_carve(const loss_plan *p, void *memory, batch *b)
{
    size_t n = (size_t)p->s.rows, d = (size_t)p->s.dim, matrix = n * d * sizeof(float);
    carver c = { memory, 0 };
    b->n = p->s.rows;
    b->d = p->s.dim;
    b->anchors = carve(&c, matrix);
    b->uy = carve(&c, matrix);
    b->vx = carve(&c, matrix);
    for (int i = 0; i < 4; i++) b->length[i] = carve(&c, n * sizeof(float));
    b->lse = carve(&c, n * sizeof(double));
    b->weight = carve(&c, n * sizeof(double));
    b->column = carve(&c, n * sizeof(double));
    b->bias = carve(&c, n * sizeof(double));
    for (int i = 0; i < 2; i++) b->mean[i] = carve(&c, d * sizeof(float));
    b->t = tiles_carve(&c, p);
    return c.used;
}

size_t batch_bytes(const loss_plan *p)
{
    batch b;
    return batch_carve(p, NULL, &b);
}

static void zero(float *m, const batch *b) { memset(m, 0, (size_t)(b->n * b->d) * sizeof *m); }

/* ---- retrieval ---- */

enum { UX, UY, VX, VY };

static cloob_status to_unit(cloob_ctx *ctx, const batch *b, float *r, int which)
{
    int64_t bad = unit_forward(ctx, r, b->length[which], b->n, b->d);
    if (bad < 0) return CLOOB_OK;
    return loss_fail_retrieval(ctx, which % 2 ? "y" : "x", which < VX ? "x" : "y", bad);
}

/* anchors = what a side retrieves from itself */
static cloob_status retrieve_own(cloob_ctx *ctx, const loss_plan *p, batch *b, const rows *side, int which)
{
    pair own = { .a = *side, .b = *side, .same = true, .beta = p->o.beta, .ra = b->anchors };
    zero(b->anchors, b);
    pair_forward(ctx, &own, &b->t);
    return to_unit(ctx, b, b->anchors, which);
}

static cloob_status retrieve_across(cloob_ctx *ctx, const loss_plan *p, batch *b)
{
    pair xy = { .a = b->x, .b = b->y, .beta = p->o.beta, .ra = b->vx, .rb = b->uy };
    zero(b->vx, b);
    zero(b->uy, b);
    pair_forward(ctx, &xy, &b->t);
    CLOOB_TRY(to_unit(ctx, b, b->uy, UY));
    return to_unit(ctx, b, b->vx, VX);
}

/* d (n, d) = the gradient of a side through what it retrieved from itself */
static void retrieve_own_backward(cloob_ctx *ctx, const loss_plan *p, const batch *b, const rows *side, float *d)
{
    pair own = { .a = *side, .b = *side, .same = true, .beta = p->o.beta, .dra = b->anchors, .da = d };
    zero(d, b);
    pair_backward(ctx, &own, &b->t);
}

/* ---- one term ---- */

/* *mean = its value; with gradients unit rows become gradients of what was retrieved. scratch (n, d) collects
 * the samples'. */
static void term(cloob_ctx *ctx, const loss_plan *p, const batch *b, int text, float *scratch, loss_result *r)
{
    float *samples = text ? b->vx : b->uy;
    contrast c = { .a = { b->anchors, CLOOB_F32, b->n, b->d },
                   .b = { samples, CLOOB_F32, b->n, b->d },
                   .owned = true,
                   .mean_a = b->mean[0],
                   .mean_b = b->mean[1],
                   .bias = b->bias,
                   .inv_tau = p->o.inv_tau,
                   .leave_one_out = p->leave_one_out,
                   .lse = b->lse,
                   .weight = b->weight,
                   .column = b->column,
                   .unit_length = b->length[text ? VY : UX],
                   .db = scratch };
    *(text ? &r->text_term : &r->image_term) = contrast_forward(ctx, &c, &b->t) / (double)p->total;
    if (!p->o.gradients) return;
    zero(scratch, b);
    r->dsum_dinv_tau += contrast_backward(ctx, &c, &b->t);
    unit_backward(ctx, samples, c.mean_b, scratch, b->length[text ? VX : UY], b->column, b->n, b->d);
}

/* sum_i x_i.dx_i + y_i.dy_i = 2 beta d loss / d beta: lengthening all rows by a factor multiplies every score
 * by its square and changes no direction that is retrieved (docs/explanation/objective.md 5). At beta = 0 all rows
 * retrieve the same pattern and the derivative is 0. */
static double dbeta(const batch *b, const loss_outputs *out, double beta)
{
    double total = 0;
    for (int64_t i = 0; beta > 0 && i < b->n; i++) {
        total += vec_dot(rows_f32(&b->x, i, 1, b->t.a), out->dx + i * b->d, b->d);
        total += vec_dot(rows_f32(&b->y, i, 1, b->t.b), out->dy + i * b->d, b->d);
    }
    return beta > 0 ? total / (2 * beta) : 0;
}

/* ---- the whole ---- */

static cloob_status image_side(cloob_ctx *ctx, const loss_plan *p, batch *b, const loss_outputs *out, loss_result *r)
{
    CLOOB_TRY(retrieve_own(ctx, p, b, &b->x, UX));
    CLOOB_TRY(retrieve_across(ctx, p, b));
    term(ctx, p, b, 0, out->dx, r);
    if (p->o.gradients) retrieve_own_backward(ctx, p, b, &b->x, out->dx);
    return CLOOB_OK;
}

static cloob_status text_side(cloob_ctx *ctx, const loss_plan *p, batch *b, const loss_outputs *out, loss_result *r)
{
    CLOOB_TRY(retrieve_own(ctx, p, b, &b->y, VY));
    term(ctx, p, b, 1, out->dy, r);
    if (p->o.gradients) retrieve_own_backward(ctx, p, b, &b->y, out->dy);
    return CLOOB_OK;
}

cloob_status batch_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r)
{
    batch b;
    batch_carve(p, p->memory, &b);
    b.x = (rows){ in->x, p->s.dtype, b.n, b.d };
    b.y = (rows){ in->y, p->s.dtype, b.n, b.d };
    CLOOB_TRY(image_side(ctx, p, &b, out, r));
    CLOOB_TRY(text_side(ctx, p, &b, out, r));
    if (!p->o.gradients) return CLOOB_OK;
    pair xy = { .a = b.x, .b = b.y, .beta = p->o.beta, .dra = b.vx, .drb = b.uy, .da = out->dx, .db = out->dy };
    pair_backward(ctx, &xy, &b.t);
    r->dsum_dbeta = p->o.inv_tau * dbeta(&b, out, p->o.beta);
    return CLOOB_OK;
}
