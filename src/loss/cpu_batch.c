/* The contrastive methods on any number of ranks. Each rank has its own rows as states and anchors, and sees all rows
 * as stored patterns and samples (docs/explanation/objective.md 6):
 *
 *     image  anchors Ux (x from U), samples Uy (y from U)
 *     text   anchors Vy (y from V), samples Vx (x from V)
 *
 *     gather x, y
 *     retrieve own rows; without retrieval: copy them
 *     per term: gather samples, contrast own anchors, sum-scatter the samples' gradient
 *     retrieval backward
 *     sum-scatter the stored patterns' gradient
 *
 * With one rank the gathered matrices are the local ones. */
#include <string.h>

#include "loss/cpu.h"

enum { UX, UY, VX, VY };

typedef struct batch {
    int64_t n, N, d; /* own rows, all rows */
    bool many;       /* ranks */
    rows x, y;       /* own */
    rows u, v;       /* stored */
    float *r[4];     /* (n, d): UX, UY, VX, VY of own rows: sums, then unit rows, then the gradients of the sums */
    float *length[4], *shift[4];
    void *gathered[2];
    float *samples;       /* (N, d), several ranks only */
    float *sum_x, *sum_y; /* (N, d): gradients of gathered rows, several ranks only */
    double *lse, *weight, *dots;
    double *column, *bias; /* (N) */
    float *mean[2];        /* (d) of anchors and samples */
    tiles t;
} batch;

/* memory NULL: only computes the size. Returns the bytes. */
static size_t batch_carve(const loss_plan *p, void *memory, batch *b)
{
    size_t n = (size_t)p->s.rows, d = (size_t)p->s.dim, N = (size_t)p->total, all = N * d * sizeof(float);
    carver c = { memory, 0 };
    *b = (batch){ .n = p->s.rows, .N = p->total, .d = p->s.dim, .many = p->size > 1 };
    for (int i = 0; i < 4; i++) {
        b->r[i] = carve(&c, n * d * sizeof(float));
        b->length[i] = carve(&c, n * sizeof(float));
        b->shift[i] = carve(&c, n * sizeof(float));
    }
    for (int i = 0; b->many && p->hopfield && i < 2; i++)
        b->gathered[i] = carve(&c, p->s.dtype == CLOOB_F32 ? all : all / 2);
    if (b->many) b->samples = carve(&c, all);
    if (b->many && p->o.gradients) b->sum_x = carve(&c, all);
    if (b->many && p->o.gradients && p->hopfield) b->sum_y = carve(&c, all);
    b->lse = carve(&c, n * sizeof(double));
    b->weight = carve(&c, n * sizeof(double));
    b->dots = carve(&c, n * sizeof(double));
    b->column = carve(&c, N * sizeof(double));
    b->bias = carve(&c, N * sizeof(double));
    for (int i = 0; i < 2; i++) b->mean[i] = carve(&c, d * sizeof(float));
    b->t = tiles_carve(&c, p);
    return c.used;
}

size_t batch_bytes(const loss_plan *p)
{
    batch b;
    return batch_carve(p, NULL, &b);
}

static void zero(float *m, int64_t elements)
{
    if (m) memset(m, 0, (size_t)elements * sizeof *m);
}

static void add(float *to, const float *from, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++) to[i] += from[i];
}

/* ---- between ranks ---- */

static cloob_status gather_rows(cloob_ctx *ctx, loss_plan *p, batch *b, const loss_inputs *in)
{
    const void *all[2] = { in->x, in->y };
    b->x = (rows){ in->x, p->s.dtype, b->n, b->d };
    b->y = (rows){ in->y, p->s.dtype, b->n, b->d };
    for (int i = 0; b->gathered[0] && i < 2; i++) {
        CLOOB_TRY(comm_all_gather(ctx, p->c, all[i], b->gathered[i], p->elements, p->s.dtype));
        all[i] = b->gathered[i];
    }
    b->u = (rows){ all[0], p->s.dtype, b->N, b->d };
    b->v = (rows){ all[1], p->s.dtype, b->N, b->d };
    if (p->s.stored_u > 0) b->u.data = in->u, b->u.n = p->s.stored_u;
    if (p->s.stored_v > 0) b->v.data = in->v, b->v.n = p->s.stored_v;
    return CLOOB_OK;
}

/* own (n, d) += this rank's rows of the sum of all */
static cloob_status add_scattered(cloob_ctx *ctx, loss_plan *p, const batch *b, float *own, float *all)
{
    float *mine = all + p->first * b->d;
    CLOOB_TRY(comm_reduce_scatter(ctx, p->c, all, mine, p->elements, CLOOB_F32));
    add(own, mine, b->n * b->d);
    return CLOOB_OK;
}

/* ---- retrieval ---- */

/* In one process, three sets of scores give all four retrievals. */
static bool shares_scores(const loss_plan *p)
{
    return p->size == 1 && p->s.stored_u == 0 && p->s.stored_v == 0 && p->o.beta <= SHARED_LARGEST_BETA;
}

enum { MOST_RETRIEVALS = 4 };

/* Lists the retrievals, with the gradients that backward adds to. */
static int list_retrievals(const loss_plan *p, const batch *b, const loss_outputs *out, retrieval q[MOST_RETRIEVALS])
{
    double beta = p->o.beta;
    if (shares_scores(p)) {
        q[0] = (retrieval){ .a = b->x, .b = b->x, .same = true, .beta = beta, .ra = b->r[UX], .da = out->dx };
        q[1] = (retrieval){ .a = b->y, .b = b->y, .same = true, .beta = beta, .ra = b->r[VY], .da = out->dy };
        q[2] = (retrieval){
            .a = b->x, .b = b->y, .beta = beta, .ra = b->r[VX], .rb = b->r[UY], .da = out->dx, .db = out->dy
        };
        return 3;
    }
    for (int i = 0; i < 4; i++)
        q[i] = (retrieval){ .a = i % 2 ? b->y : b->x,
                            .b = i < VX ? b->u : b->v,
                            .beta = beta,
                            .ra = b->r[i],
                            .shift = b->shift[i],
                            .da = i % 2 ? out->dy : out->dx,
                            .db = loss_dstored(p, out, i >= VX, i >= VX ? b->sum_y : b->sum_x) };
    return 4;
}

static cloob_status to_unit(cloob_ctx *ctx, const loss_plan *p, const batch *b, int which)
{
    int64_t bad = unit_forward(ctx, b->r[which], b->length[which], b->n, b->d);
    if (bad < 0) return CLOOB_OK;
    return loss_fail_retrieval(ctx, which % 2 ? "y" : "x", which < VX ? "U" : "V", p->first + bad);
}

static cloob_status retrieve(cloob_ctx *ctx, loss_plan *p, const batch *b, const loss_outputs *out)
{
    retrieval q[MOST_RETRIEVALS];
    cloob_status status = CLOOB_OK;
    int count = list_retrievals(p, b, out, q);
    for (int i = 0; i < count; i++) retrieve_forward(ctx, &q[i], &b->t);
    for (int i = 0; i < 4 && status == CLOOB_OK; i++) status = to_unit(ctx, p, b, i);
    return comm_agree(ctx, p->c, status);
}

/* With shared scores sum_i x_i.dx_i + y_i.dy_i = 2 beta d loss / d beta: lengthening all rows by a factor multiplies
 * every score by its square and changes no direction that is retrieved (docs/explanation/objective.md 5). */
static double twice_along(const batch *b, const loss_outputs *out)
{
    double total = 0;
    for (int64_t i = 0; i < b->n; i++) {
        total += vec_dot(rows_f32(&b->x, i, 1, b->t.a), out->dx + i * b->d, b->d);
        total += vec_dot(rows_f32(&b->y, i, 1, b->t.b), out->dy + i * b->d, b->d);
    }
    return total;
}

static cloob_status retrieve_back(cloob_ctx *ctx, loss_plan *p, const batch *b, const loss_outputs *out, loss_result *r)
{
    retrieval q[MOST_RETRIEVALS];
    int count = list_retrievals(p, b, out, q);
    double along = 0, beta = p->o.beta; /* along: beta d loss / d beta */
    zero(b->sum_x, b->N * b->d), zero(b->sum_y, b->N * b->d);
    for (int i = 0; i < count; i++) along += retrieve_backward(ctx, &q[i], &b->t);
    if (shares_scores(p)) along = twice_along(b, out) / 2;
    r->dsum_dbeta = beta > 0 ? p->o.inv_tau * along / beta : 0; /* at 0 all rows retrieve the same pattern */
    if (!b->many) return CLOOB_OK;
    if (p->s.stored_u == 0) CLOOB_TRY(add_scattered(ctx, p, b, out->dx, b->sum_x));
    else if (out->du) CLOOB_TRY(comm_all_reduce(ctx, p->c, out->du, p->s.stored_u * b->d, CLOOB_F32));
    if (p->s.stored_v == 0) return add_scattered(ctx, p, b, out->dy, b->sum_y);
    return out->dv ? comm_all_reduce(ctx, p->c, out->dv, p->s.stored_v * b->d, CLOOB_F32) : CLOOB_OK;
}

/* ---- methods without retrieval ---- */

static void copy_rows(const loss_plan *p, const batch *b)
{
    for (int i = 0; i < 4; i++) {
        const rows *side = i % 2 ? &b->y : &b->x;
        if (p->s.dtype == CLOOB_F32) memcpy(b->r[i], side->data, (size_t)(b->n * b->d) * sizeof(float));
        else rows_f32(side, 0, b->n, b->r[i]);
    }
}

static void add_copies(const batch *b, const loss_outputs *out)
{
    for (int i = 0; i < 4; i++) add(i % 2 ? out->dy : out->dx, b->r[i], b->n * b->d);
}

/* ---- the two terms ---- */

/* Adds the value and d / d inv_tau; with gradients, the rows in b->r become gradients. On one rank dx or dy collects
 * the samples' gradient: both are scratch until the terms are done. */
static cloob_status term(cloob_ctx *ctx, loss_plan *p, const batch *b, int text, const loss_outputs *out,
                         loss_result *r)
{
    int anchors = text ? VY : UX, samples = text ? VX : UY;
    bool unit = p->hopfield;
    float *dsamples = b->many ? b->sum_x : text ? out->dy : out->dx;
    contrast c = { .a = b->r[anchors],
                   .b = b->many ? b->samples : b->r[samples],
                   .n = b->n,
                   .N = b->N,
                   .d = b->d,
                   .first = p->first,
                   .inv_tau = p->o.inv_tau,
                   .leave_one_out = p->leave_one_out,
                   .mean_a = b->mean[0],
                   .mean_b = b->mean[1],
                   .bias = b->bias,
                   .lse = b->lse,
                   .weight = b->weight,
                   .column = b->column,
                   .length = unit ? b->length[anchors] : NULL,
                   .db = dsamples };
    if (b->many) CLOOB_TRY(comm_all_gather(ctx, p->c, b->r[samples], b->samples, p->elements, CLOOB_F32));
    *(text ? &r->text_term : &r->image_term) = contrast_forward(ctx, &c, &b->t) / (double)b->N;
    if (!p->o.gradients) return CLOOB_OK;
    zero(dsamples, b->N * b->d);
    r->dsum_dinv_tau += contrast_backward(ctx, &c, &b->t);
    float *mine = dsamples + p->first * b->d;
    CLOOB_TRY(comm_reduce_scatter(ctx, p->c, dsamples, mine, p->elements, CLOOB_F32));
    unit_backward(ctx, b->r[samples], b->many ? NULL : c.mean_b, mine, unit ? b->length[samples] : NULL, b->dots, b->n,
                  b->d);
    return CLOOB_OK;
}

static void begin_gradients(const loss_plan *p, const batch *b, const loss_outputs *out)
{
    zero(out->dx, b->n * b->d);
    zero(out->dy, b->n * b->d);
    zero(out->du, p->s.stored_u * b->d);
    zero(out->dv, p->s.stored_v * b->d);
}

cloob_status batch_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r)
{
    batch b;
    batch_carve(p, p->memory, &b);
    CLOOB_TRY(gather_rows(ctx, p, &b, in));
    if (p->hopfield) CLOOB_TRY(retrieve(ctx, p, &b, out));
    else copy_rows(p, &b);
    for (int text = 0; text < 2; text++) CLOOB_TRY(term(ctx, p, &b, text, out, r));
    if (p->o.gradients) begin_gradients(p, &b, out);
    if (p->o.gradients && p->hopfield) CLOOB_TRY(retrieve_back(ctx, p, &b, out, r));
    else if (p->o.gradients) add_copies(&b, out);
    double sums[4] = { r->image_term, r->text_term, r->dsum_dinv_tau, r->dsum_dbeta };
    CLOOB_TRY(comm_host_sum_f64(ctx, p->c, sums, 4));
    r->image_term = sums[0], r->text_term = sums[1], r->dsum_dinv_tau = sums[2], r->dsum_dbeta = sums[3];
    return CLOOB_OK;
}
