/* CLOOB with the batch as stored patterns, in one process: the common case. Four retrievals from three sets
 * of scores, and four matrices of N x d besides the inputs, one of which is the caller's dy:
 *
 *     image  anchors Ux (from x, stored x), samples Uy (from y, stored x)
 *     text   anchors Vy (from y, stored y), samples Vx (from x, stored y)
 *
 * Each holds the sums, then the unit rows, then their gradient. Where dx is not yet being summed it collects
 * the gradient of the samples. */
#include <string.h>

#include "loss/cpu.h"
#include "loss/cpu_vec.h"

typedef struct batch {
    int64_t n, d;
    rows x, y;
    float *ux, *uy, *vx, *vy;   /* (n, d) */
    float *length[4];           /* (n), in that order */
    double *lse[2], *weight[2]; /* (n): image, text */
    double *column, *bias;      /* (n) */
    float *mean[4];             /* (d), taken off the unit rows by the contrast */
    tiles t;
} batch;

bool batch_applies(const loss_plan *p)
{
    return p->hopfield && p->size == 1 && p->s.stored_u == 0 && p->s.stored_v == 0 &&
           p->o.beta <= PAIR_LARGEST_BETA;
}

/* memory NULL: only counts. Returns the bytes. */
static size_t batch_carve(const loss_plan *p, void *memory, const loss_outputs *out, batch *b)
{
    size_t n = (size_t)p->s.rows, matrix = n * (size_t)p->s.dim * sizeof(float);
    carver c = { memory, 0 };
    b->n = p->s.rows;
    b->d = p->s.dim;
    b->ux = p->o.gradients ? out->dy : carve(&c, matrix);
    b->uy = carve(&c, matrix);
    b->vx = carve(&c, matrix);
    b->vy = carve(&c, matrix);
    for (int i = 0; i < 4; i++) b->length[i] = carve(&c, n * sizeof(float));
    for (int i = 0; i < 2; i++) b->lse[i] = carve(&c, n * sizeof(double));
    for (int i = 0; i < 2; i++) b->weight[i] = carve(&c, n * sizeof(double));
    b->column = carve(&c, n * sizeof(double));
    b->bias = carve(&c, n * sizeof(double));
    for (int i = 0; i < 4; i++) b->mean[i] = carve(&c, (size_t)p->s.dim * sizeof(float));
    b->t = tiles_carve(&c, p);
    return c.used;
}

size_t batch_bytes(const loss_plan *p)
{
    batch b;
    const loss_outputs none = { NULL, NULL, NULL, NULL };
    return batch_carve(p, NULL, &none, &b);
}

static void zero(float *m, const batch *b) { memset(m, 0, (size_t)(b->n * b->d) * sizeof *m); }

static cloob_status retrieve(cloob_ctx *ctx, const loss_plan *p, batch *b)
{
    float *r[4] = { b->ux, b->uy, b->vx, b->vy };
    pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .ra = b->ux };
    pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .ra = b->vy };
    pair xy = { .a = b->x, .b = b->y, .beta = p->o.beta, .ra = b->vx, .rb = b->uy };
    for (int i = 0; i < 4; i++) zero(r[i], b);
    pair_forward(ctx, &xx, &b->t);
    pair_forward(ctx, &yy, &b->t);
    pair_forward(ctx, &xy, &b->t);
    for (int i = 0; i < 4; i++) {
        int64_t bad = unit_forward(ctx, r[i], b->length[i], b->n, b->d);
        if (bad >= 0) return loss_fail_retrieval(ctx, i % 2 ? "y" : "x", i < 2 ? "x" : "y", bad);
    }
    return CLOOB_OK;
}

static contrast term(const loss_plan *p, batch *b, int text)
{
    rows anchors = { text ? b->vy : b->ux, CLOOB_F32, b->n, b->d },
         samples = { text ? b->vx : b->uy, CLOOB_F32, b->n, b->d };
    return (contrast){ .a = anchors,
                       .b = samples,
                       .owned = true,
                       .mean_a = b->mean[text ? 3 : 0],
                       .mean_b = b->mean[text ? 2 : 1],
                       .bias = b->bias,
                       .inv_tau = p->o.inv_tau,
                       .leave_one_out = p->leave_one_out,
                       .lse = b->lse[text],
                       .weight = b->weight[text],
                       .column = b->column,
                       .unit_length = b->length[text ? 3 : 0] };
}

/* Unit rows become gradients of what was retrieved; scratch (n, d) collects the samples'. */
static double term_backward(cloob_ctx *ctx, const loss_plan *p, batch *b, int text, float *scratch)
{
    contrast c = term(p, b, text);
    c.db = scratch;
    zero(scratch, b);
    double along = contrast_backward(ctx, &c, &b->t);
    unit_backward(ctx, text ? b->vx : b->uy, c.mean_b, scratch, b->length[text ? 2 : 1], b->column, b->n,
                  b->d);
    return along;
}

/* sum_i x_i.dx_i + y_i.dy_i = 2 beta d loss / d beta: lengthening all rows by a factor multiplies every score
 * by its square and changes no direction that is retrieved (docs/objective.md 5). At beta = 0 all rows
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

static void retrieve_backward(cloob_ctx *ctx, const loss_plan *p, batch *b, const loss_outputs *out)
{
    pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .dra = b->ux, .da = out->dx };
    pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .dra = b->vy, .da = out->dy };
    pair xy = {
        .a = b->x, .b = b->y, .beta = p->o.beta, .dra = b->vx, .drb = b->uy, .da = out->dx, .db = out->dy
    };
    zero(out->dx, b);
    pair_backward(ctx, &xx, &b->t); /* the last use of ux, which is out->dy */
    zero(out->dy, b);
    pair_backward(ctx, &yy, &b->t);
    pair_backward(ctx, &xy, &b->t);
}

cloob_status batch_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out,
                       loss_result *r)
{
    batch b;
    batch_carve(p, p->memory, out, &b);
    b.x = (rows){ in->x, p->s.dtype, b.n, b.d };
    b.y = (rows){ in->y, p->s.dtype, b.n, b.d };
    CLOOB_TRY(retrieve(ctx, p, &b));
    contrast image = term(p, &b, 0), text = term(p, &b, 1);
    r->image_term = contrast_forward(ctx, &image, &b.t) / (double)p->total;
    r->text_term = contrast_forward(ctx, &text, &b.t) / (double)p->total;
    if (!p->o.gradients) return CLOOB_OK;
    r->dsum_dinv_tau = term_backward(ctx, p, &b, 0, out->dx);
    r->dsum_dinv_tau += term_backward(ctx, p, &b, 1, out->dx);
    retrieve_backward(ctx, p, &b, out);
    r->dsum_dbeta = p->o.inv_tau * dbeta(&b, out, p->o.beta);
    return CLOOB_OK;
}
