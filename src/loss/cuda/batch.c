/* CLOOB with the batch stored, one GPU. The four retrievals are stored in T; dx and dy hold the f32 sums of each step
 * before the gradients:
 *
 *     forward    dx: sums of Ux;  dy: of Vy;  then dx: of Vx, dy: of Uy
 *     contrast   dx: gradient of the samples of each term in turn
 *     backward   dx, dy: themselves */
#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"

/* As in cpu.h: exp(-2 beta) and its square stay far from underflow. */
static const double LARGEST_BETA = 20;

enum { UX, UY, VX, VY };

typedef struct batch {
    int64_t n, d;
    mat x, y;
    void *r[4], *low[4]; /* bf16: unit rows are r + low */
    float *length[4];
    double *lse[2], *weight[2];
    float *dx, *dy;
} batch;

bool gpu_batch_applies(const loss_plan *p)
{
    return p->hopfield && p->size == 1 && p->s.stored_u == 0 && p->s.stored_v == 0 && p->o.beta <= LARGEST_BETA;
}

static size_t batch_carve(const loss_plan *p, gpu *g, void *memory, const loss_outputs *out, batch *b)
{
    size_t n = (size_t)p->s.rows, nd = n * (size_t)p->s.dim;
    carver c = { memory, 0 };
    b->n = p->s.rows;
    b->d = p->s.dim;
    for (int i = 0; i < 4; i++) b->r[i] = gpu_carve(&c, nd * g->size);
    for (int i = 0; i < 4; i++) b->low[i] = g->T == CLOOB_BF16 ? gpu_carve(&c, nd * g->size) : NULL;
    for (int i = 0; i < 4; i++) b->length[i] = gpu_carve(&c, n * sizeof(float));
    for (int i = 0; i < 2; i++) b->lse[i] = gpu_carve(&c, n * sizeof(double));
    for (int i = 0; i < 2; i++) b->weight[i] = gpu_carve(&c, n * sizeof(double));
    b->dx = p->o.gradients ? out->dx : gpu_carve(&c, nd * sizeof(float));
    b->dy = p->o.gradients ? out->dy : gpu_carve(&c, nd * sizeof(float));
    gpu_carve_common(&c, p, g);
    return c.used;
}

size_t gpu_batch_bytes(const loss_plan *p, gpu *g)
{
    batch b;
    const loss_outputs none = { NULL, NULL, NULL, NULL };
    return batch_carve(p, g, NULL, &none, &b);
}

static cloob_status clear(cloob_ctx *ctx, const gpu *g, const batch *b, float *m)
{
    return gpu_zero(ctx, g, m, (size_t)(b->n * b->d) * sizeof *m);
}

static cloob_status unit(cloob_ctx *ctx, const gpu *g, const batch *b, int which, const float *sums)
{
    return gpu_cuda(ctx,
                    k_unit_forward(g->stream, g->T, b->r[which], b->low[which], b->length[which], sums, b->n, b->d,
                                   &g->bad[which]),
                    "unit length");
}

static cloob_status retrieve(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b)
{
    gpu_pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .ra = b->dx };
    gpu_pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .ra = b->dy };
    gpu_pair xy = { .a = b->x, .b = b->y, .beta = p->o.beta, .ra = b->dx, .rb = b->dy };
    CLOOB_TRY(clear(ctx, g, b, b->dx));
    CLOOB_TRY(clear(ctx, g, b, b->dy));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &xx));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &yy));
    CLOOB_TRY(unit(ctx, g, b, UX, b->dx));
    CLOOB_TRY(unit(ctx, g, b, VY, b->dy));
    CLOOB_TRY(clear(ctx, g, b, b->dx));
    CLOOB_TRY(clear(ctx, g, b, b->dy));
    CLOOB_TRY(gpu_pair_forward(ctx, g, &xy));
    CLOOB_TRY(unit(ctx, g, b, VX, b->dx));
    return unit(ctx, g, b, UY, b->dy);
}

static gpu_contrast term(const loss_plan *p, const batch *b, int text)
{
    int anchors = text ? VY : UX, samples = text ? VX : UY;
    return (gpu_contrast){ .a = { b->r[anchors], b->n },
                           .b = { b->r[samples], b->n },
                           .inv_tau = p->o.inv_tau,
                           .leave_one_out = p->leave_one_out,
                           .lse = b->lse[text],
                           .weight = b->weight[text],
                           .unit_length = b->length[anchors],
                           .low = b->low[anchors] };
}

static cloob_status term_backward(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b, int text)
{
    gpu_contrast c = term(p, b, text);
    int samples = text ? VX : UY;
    c.db = b->dx;
    CLOOB_TRY(clear(ctx, g, b, b->dx));
    CLOOB_TRY(gpu_contrast_backward(ctx, g, &c));
    return gpu_cuda(ctx,
                    k_unit_backward(g->stream, g->T, b->r[samples], b->low[samples], b->dx, b->length[samples], g->dots,
                                    b->n, b->d),
                    "unit length");
}

static cloob_status retrieve_backward(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b)
{
    gpu_pair xx = { .a = b->x, .b = b->x, .same = true, .beta = p->o.beta, .dra = b->r[UX], .da = b->dx };
    gpu_pair yy = { .a = b->y, .b = b->y, .same = true, .beta = p->o.beta, .dra = b->r[VY], .da = b->dy };
    gpu_pair xy = {
        .a = b->x, .b = b->y, .beta = p->o.beta, .dra = b->r[VX], .drb = b->r[UY], .da = b->dx, .db = b->dy
    };
    CLOOB_TRY(clear(ctx, g, b, b->dx));
    CLOOB_TRY(clear(ctx, g, b, b->dy));
    CLOOB_TRY(gpu_pair_backward(ctx, g, &xx));
    CLOOB_TRY(gpu_pair_backward(ctx, g, &yy));
    return gpu_pair_backward(ctx, g, &xy);
}

/* sum x.dx + y.dy = 2 beta d loss / d beta (docs/explanation/objective.md 5) */
static cloob_status add_dbeta(cloob_ctx *ctx, const gpu *g, const batch *b)
{
    GPU_TRY("sums", k_dot_rows(g->stream, g->T, b->x.data, b->dx, g->dots, b->n, b->d));
    GPU_TRY("sums", k_sum(g->stream, &g->total[GPU_DBETA], g->dots, b->n));
    GPU_TRY("sums", k_dot_rows(g->stream, g->T, b->y.data, b->dy, g->dots, b->n, b->d));
    return gpu_cuda(ctx, k_sum(g->stream, &g->total[GPU_DBETA], g->dots, b->n), "sums");
}

static cloob_status backward(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const batch *b)
{
    CLOOB_TRY(term_backward(ctx, p, g, b, 0));
    CLOOB_TRY(term_backward(ctx, p, g, b, 1));
    CLOOB_TRY(retrieve_backward(ctx, p, g, b));
    return add_dbeta(ctx, g, b);
}

cloob_status gpu_batch_queue(cloob_ctx *ctx, loss_plan *p, gpu *g, const loss_inputs *in, const loss_outputs *out)
{
    batch b;
    CLOOB_TRY(gpu_carved(ctx, p, batch_carve(p, g, p->memory, out, &b)));
    b.x = (mat){ in->x, b.n };
    b.y = (mat){ in->y, b.n };
    CLOOB_TRY(gpu_begin_totals(ctx, g));
    CLOOB_TRY(retrieve(ctx, p, g, &b));
    gpu_contrast image = term(p, &b, 0), text = term(p, &b, 1);
    CLOOB_TRY(gpu_contrast_forward(ctx, g, &image, &g->total[GPU_IMAGE]));
    CLOOB_TRY(gpu_contrast_forward(ctx, g, &text, &g->total[GPU_TEXT]));
    if (p->o.gradients) CLOOB_TRY(backward(ctx, p, g, &b));
    return gpu_send_totals(ctx, g);
}

void gpu_batch_result(const loss_plan *p, const double totals[], loss_result *r)
{
    double beta = p->o.beta;
    r->image_term = totals[GPU_IMAGE] / (double)p->total;
    r->text_term = totals[GPU_TEXT] / (double)p->total;
    r->dsum_dinv_tau = totals[GPU_DINV_TAU];
    r->dsum_dbeta = beta > 0 ? p->o.inv_tau * totals[GPU_DBETA] / (2 * beta) : 0;
}
