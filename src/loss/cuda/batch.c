/* The contrastive methods on any number of GPUs, as cpu_batch.c has them: each rank has its own rows as states and
 * anchors, and sees all rows as stored patterns and samples.
 *
 *     gather x, y
 *     retrieve own rows
 *     per term: gather samples, contrast own anchors, sum-scatter the samples' gradient
 *     retrieval backward
 *     sum-scatter the stored patterns' gradient
 *
 * Retrieved rows are stored in T. The f32 sums of a retrieval, and then the gradient of a term's samples, are computed
 * where the gradients of the rows will be: dx and dy on one rank, sum_x and sum_y on several. */
#include <string.h>

#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"

/* As in cpu.h: exp(-2 beta) and its square stay far from underflow. */
static const double LARGEST_BETA = 20;

enum { UX, UY, VX, VY };

typedef struct batch {
    int64_t n, N, d; /* own rows, all rows */
    bool many;       /* ranks */
    mat x, y;        /* own */
    mat all_x, all_y, u, v;
    void *r[4], *low[4]; /* (n, d) of T; bf16: unit rows are r + low */
    float *length[4], *shift[4];
    void *gathered[2];    /* (N, d) of T, several ranks only */
    void *samples;        /* (N, d) of T, several ranks only */
    float *sum_x, *sum_y; /* (N, d): sums, gradients of samples, then of all rows */
    double *lse, *weight; /* (n) */
} batch;

bool gpu_shares_scores(const loss_plan *p)
{
    return p->hopfield && p->size == 1 && p->s.stored_u == 0 && p->s.stored_v == 0 && p->o.beta <= LARGEST_BETA;
}

/* memory NULL: only counts. Returns the bytes. */
static size_t batch_carve(const loss_plan *p, gpu *g, void *memory, const loss_outputs *out, batch *b)
{
    size_t n = (size_t)p->s.rows, nd = n * (size_t)p->s.dim, all = (size_t)(p->total * p->s.dim);
    bool many = p->size > 1, gradients = p->o.gradients;
    carver c = { memory, 0 };
    *b = (batch){ .n = p->s.rows, .N = p->total, .d = p->s.dim, .many = many };
    for (int i = 0; many && i < 2; i++) b->gathered[i] = gpu_carve(&c, all * g->size);
    for (int i = 0; p->hopfield && i < 4; i++) {
        b->r[i] = gpu_carve(&c, nd * g->size);
        b->low[i] = g->T == CLOOB_BF16 ? gpu_carve(&c, nd * g->size) : NULL;
        b->length[i] = gpu_carve(&c, n * sizeof(float));
        b->shift[i] = gpu_shares_scores(p) ? NULL : gpu_carve(&c, n * sizeof(float));
    }
    if (many && p->hopfield) b->samples = gpu_carve(&c, all * g->size);
    if (many ? gradients || p->hopfield : p->hopfield && !gradients) {
        b->sum_x = gpu_carve(&c, all * sizeof(float));
        b->sum_y = gpu_carve(&c, all * sizeof(float));
    } else b->sum_x = out->dx, b->sum_y = out->dy;
    b->lse = gpu_carve(&c, n * sizeof(double));
    b->weight = gpu_carve(&c, n * sizeof(double));
    gpu_carve_common(&c, p, g);
    return c.used;
}

size_t gpu_batch_bytes(const loss_plan *p, gpu *g)
{
    batch b;
    const loss_outputs none = { NULL, NULL, NULL, NULL };
    return batch_carve(p, g, NULL, &none, &b);
}

static cloob_status zero(cloob_ctx *ctx, const gpu *g, float *m, int64_t elements)
{
    return m ? gpu_zero(ctx, g, m, (size_t)elements * sizeof *m) : CLOOB_OK;
}

/* ---- between ranks ---- */

static cloob_status gather_rows(cloob_ctx *ctx, loss_plan *p, batch *b, const loss_inputs *in)
{
    const void *all[2] = { in->x, in->y };
    b->x = (mat){ in->x, b->n }, b->y = (mat){ in->y, b->n };
    for (int i = 0; b->many && i < 2; i++) {
        CLOOB_TRY(comm_all_gather(ctx, p->c, all[i], b->gathered[i], p->elements, p->s.dtype));
        all[i] = b->gathered[i];
    }
    b->all_x = (mat){ all[0], b->N }, b->all_y = (mat){ all[1], b->N };
    b->u = p->s.stored_u > 0 ? (mat){ in->u, p->s.stored_u } : b->all_x;
    b->v = p->s.stored_v > 0 ? (mat){ in->v, p->s.stored_v } : b->all_y;
    return CLOOB_OK;
}

/* all's part of this rank becomes the sum over the ranks. */
static cloob_status scatter(cloob_ctx *ctx, loss_plan *p, const batch *b, float *all)
{
    if (!b->many) return CLOOB_OK;
    return comm_reduce_scatter(ctx, p->c, all, all + p->first * b->d, p->elements, CLOOB_F32);
}

static cloob_status add_scattered(cloob_ctx *ctx, loss_plan *p, const gpu *g, const batch *b, float *own, float *all)
{
    CLOOB_TRY(scatter(ctx, p, b, all));
    return gpu_cuda(ctx, k_add_rows(g->stream, g->T, own, all + p->first * b->d, 1, b->x.data, g->dots, b->n, b->d),
                    "sums over ranks");
}

/* ---- retrieval ---- */

static cloob_status unit(cloob_ctx *ctx, const gpu *g, const batch *b, int which, const float *sums)
{
    return gpu_cuda(ctx,
                    k_unit_forward(g->stream, g->T, b->r[which], b->low[which], b->length[which], sums, b->n, b->d,
                                   &g->bad[which]),
                    "unit length");
}

/* With both sides of the batch in one process, three sets of scores serve four retrievals. */
static cloob_status retrieve_shared(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b)
{
    float *sx = b->sum_x, *sy = b->sum_y;
    gpu_pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .ra = sx };
    gpu_pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .ra = sy };
    gpu_pair xy = { .a = b->x, .b = b->y, .beta = p->o.beta, .ra = sx, .rb = sy };
    CLOOB_TRY(zero(ctx, g, sx, b->n * b->d));
    CLOOB_TRY(zero(ctx, g, sy, b->n * b->d));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &xx));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &yy));
    CLOOB_TRY(unit(ctx, g, b, UX, sx));
    CLOOB_TRY(unit(ctx, g, b, VY, sy));
    CLOOB_TRY(zero(ctx, g, sx, b->n * b->d));
    CLOOB_TRY(zero(ctx, g, sy, b->n * b->d));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &xy));
    CLOOB_TRY(unit(ctx, g, b, VX, sx));
    return unit(ctx, g, b, UY, sy);
}

static gpu_search search_of(const loss_plan *p, const batch *b, int which)
{
    return (gpu_search){ .states = which == UX || which == VX ? b->x : b->y,
                         .stored = which == UX || which == UY ? b->u : b->v,
                         .beta = p->o.beta,
                         .r = b->sum_x,
                         .dr = b->r[which],
                         .shift = b->shift[which] };
}

static cloob_status retrieve(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b)
{
    if (gpu_shares_scores(p)) return retrieve_shared(ctx, p, g, b);
    for (int i = 0; i < 4; i++) {
        gpu_search s = search_of(p, b, i);
        CLOOB_TRY(gpu_search_forward(ctx, g, &s));
        CLOOB_TRY(unit(ctx, g, b, i, b->sum_x));
    }
    return CLOOB_OK;
}

/* And sum x.dx + y.dy = 2 beta d loss / d beta (docs/explanation/objective.md 5). */
static cloob_status retrieve_shared_backward(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b,
                                             const loss_outputs *out)
{
    float *dx = out->dx, *dy = out->dy;
    gpu_pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .dra = b->r[UX], .da = dx };
    gpu_pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .dra = b->r[VY], .da = dy };
    gpu_pair xy = { .a = b->x, .b = b->y, .beta = p->o.beta, .dra = b->r[VX], .drb = b->r[UY], .da = dx, .db = dy };
    CLOOB_TRY(gpu_pair_backward(ctx, g, &xx));
    CLOOB_TRY(gpu_pair_backward(ctx, g, &yy));
    CLOOB_TRY(gpu_pair_backward(ctx, g, &xy));
    GPU_TRY("sums", k_dot_rows(g->stream, g->T, b->x.data, dx, g->dots, b->n, b->d));
    GPU_TRY("sums", k_sum(g->stream, &g->total[GPU_DBETA], g->dots, b->n));
    GPU_TRY("sums", k_dot_rows(g->stream, g->T, b->y.data, dy, g->dots, b->n, b->d));
    return gpu_cuda(ctx, k_sum(g->stream, &g->total[GPU_DBETA], g->dots, b->n), "sums");
}

static cloob_status sum_stored(cloob_ctx *ctx, loss_plan *p, const gpu *g, float *stored, int64_t rows)
{
    return stored ? comm_all_reduce(ctx, p->c, stored, rows * g->d, CLOOB_F32) : CLOOB_OK;
}

static cloob_status retrieve_backward(cloob_ctx *ctx, loss_plan *p, const gpu *g, const batch *b,
                                      const loss_outputs *out)
{
    if (gpu_shares_scores(p)) return retrieve_shared_backward(ctx, p, g, b, out);
    if (b->many) CLOOB_TRY(zero(ctx, g, b->sum_x, b->N * b->d));
    if (b->many) CLOOB_TRY(zero(ctx, g, b->sum_y, b->N * b->d));
    for (int i = 0; i < 4; i++) {
        gpu_search s = search_of(p, b, i);
        s.dstates = i % 2 ? out->dy : out->dx;
        s.dstored = loss_dstored(p, out, i >= VX, i >= VX ? b->sum_y : b->sum_x);
        CLOOB_TRY(gpu_search_backward(ctx, g, &s));
    }
    if (!b->many) return CLOOB_OK;
    if (p->s.stored_u == 0) CLOOB_TRY(add_scattered(ctx, p, g, b, out->dx, b->sum_x));
    else CLOOB_TRY(sum_stored(ctx, p, g, out->du, p->s.stored_u));
    if (p->s.stored_v == 0) return add_scattered(ctx, p, g, b, out->dy, b->sum_y);
    return sum_stored(ctx, p, g, out->dv, p->s.stored_v);
}

/* ---- the two terms ---- */

static gpu_contrast term(const loss_plan *p, const batch *b, mat anchors, mat samples)
{
    return (gpu_contrast){ .a = anchors,
                           .b = samples,
                           .first = p->first,
                           .inv_tau = p->o.inv_tau,
                           .leave_one_out = p->leave_one_out,
                           .lse = b->lse,
                           .weight = b->weight };
}

/* Of retrieved rows, which become the gradients of their sums. */
static cloob_status hopfield_term(cloob_ctx *ctx, loss_plan *p, const gpu *g, const batch *b, int text)
{
    int anchors = text ? VY : UX, samples = text ? VX : UY;
    mat all = { b->r[samples], b->N };
    if (b->many) {
        all.data = b->samples;
        CLOOB_TRY(comm_all_gather(ctx, p->c, b->r[samples], b->samples, p->elements, g->T));
    }
    gpu_contrast c = term(p, b, (mat){ b->r[anchors], b->n }, all);
    CLOOB_TRY(gpu_contrast_forward(ctx, g, &c, &g->total[text ? GPU_TEXT : GPU_IMAGE]));
    if (!p->o.gradients) return CLOOB_OK;
    c.unit_length = b->length[anchors];
    c.low = b->low[anchors];
    c.db = b->sum_x;
    CLOOB_TRY(zero(ctx, g, c.db, b->N * b->d));
    CLOOB_TRY(gpu_contrast_backward(ctx, g, &c));
    CLOOB_TRY(scatter(ctx, p, b, c.db));
    return gpu_cuda(ctx,
                    k_unit_backward(g->stream, g->T, b->r[samples], b->low[samples], c.db + p->first * b->d,
                                    b->length[samples], g->dots, b->n, b->d),
                    "unit length");
}

/* Of the rows themselves. */
static cloob_status plain_terms(cloob_ctx *ctx, loss_plan *p, const gpu *g, const batch *b, const loss_outputs *out)
{
    for (int text = 0; text < 2; text++) {
        gpu_contrast c = term(p, b, text ? b->y : b->x, text ? b->all_x : b->all_y);
        float *dsamples = text ? out->dx : out->dy;
        CLOOB_TRY(gpu_contrast_forward(ctx, g, &c, &g->total[text ? GPU_TEXT : GPU_IMAGE]));
        if (!p->o.gradients) continue;
        c.da = text ? out->dy : out->dx;
        c.db = b->many ? b->sum_x : dsamples;
        if (b->many) CLOOB_TRY(zero(ctx, g, c.db, b->N * b->d));
        CLOOB_TRY(gpu_contrast_backward(ctx, g, &c));
        if (b->many) CLOOB_TRY(add_scattered(ctx, p, g, b, dsamples, c.db));
    }
    return CLOOB_OK;
}

static cloob_status begin_gradients(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b,
                                    const loss_outputs *out)
{
    CLOOB_TRY(zero(ctx, g, out->dx, b->n * b->d));
    CLOOB_TRY(zero(ctx, g, out->dy, b->n * b->d));
    CLOOB_TRY(zero(ctx, g, out->du, p->s.stored_u * b->d));
    return zero(ctx, g, out->dv, p->s.stored_v * b->d);
}

cloob_status gpu_batch_queue(cloob_ctx *ctx, loss_plan *p, gpu *g, const loss_inputs *in, const loss_outputs *out)
{
    batch b;
    CLOOB_TRY(gpu_carved(ctx, p, batch_carve(p, g, p->memory, out, &b)));
    CLOOB_TRY(gpu_begin_totals(ctx, g));
    CLOOB_TRY(gather_rows(ctx, p, &b, in));
    if (!p->hopfield) {
        if (p->o.gradients) CLOOB_TRY(begin_gradients(ctx, p, g, &b, out));
        CLOOB_TRY(plain_terms(ctx, p, g, &b, out));
        return gpu_send_totals(ctx, g);
    }
    CLOOB_TRY(retrieve(ctx, p, g, &b));
    for (int text = 0; text < 2; text++) CLOOB_TRY(hopfield_term(ctx, p, g, &b, text));
    if (p->o.gradients) {
        CLOOB_TRY(begin_gradients(ctx, p, g, &b, out));
        CLOOB_TRY(retrieve_backward(ctx, p, g, &b, out));
    }
    return gpu_send_totals(ctx, g);
}

void gpu_batch_result(const loss_plan *p, const double totals[], loss_result *r)
{
    double beta = p->o.beta, share = gpu_shares_scores(p) ? (beta > 0 ? 0.5 / beta : 0) : 1;
    r->image_term = totals[GPU_IMAGE] / (double)p->total;
    r->text_term = totals[GPU_TEXT] / (double)p->total;
    r->dsum_dinv_tau = totals[GPU_DINV_TAU];
    r->dsum_dbeta = p->o.inv_tau * share * totals[GPU_DBETA];
}
