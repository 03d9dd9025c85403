/* Methods without retrieval, stored sets, several GPUs, sharp scales: as cpu_batch.c, on the device. */
#include <string.h>

#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"
#include "tensor/tensor.h"

enum { UX, UY, VX, VY };

typedef struct general {
    int64_t n, N, d;
    mat x, y, all_x, all_y, u, v;
    void *r[4], *low[4]; /* (n, d) of T; bf16: unit rows are r + low */
    float *length[4], *shift[4];
    float *sums;          /* (n, d): what a retrieval sums up */
    void *samples;        /* (N, d) of T, several ranks only */
    float *dsamples;      /* (N, d) */
    float *sum_x, *sum_y; /* (N, d), several ranks only */
    void *gathered[2];
    double *lse[2], *weight[2];
} general;

static size_t general_carve(const loss_plan *p, gpu *gp, void *memory, general *g)
{
    size_t n = (size_t)p->s.rows, d = (size_t)p->s.dim, all = (size_t)p->total * d;
    bool many = p->size > 1;
    carver c = { memory, 0 };
    memset(g, 0, sizeof *g);
    g->n = p->s.rows;
    g->N = p->total;
    g->d = p->s.dim;
    for (int i = 0; many && i < 2; i++) g->gathered[i] = gpu_carve(&c, all * gp->size);
    for (int i = 0; p->hopfield && i < 4; i++) {
        g->r[i] = gpu_carve(&c, n * d * gp->size);
        g->low[i] = gp->T == CLOOB_BF16 ? gpu_carve(&c, n * d * gp->size) : NULL;
        g->length[i] = gpu_carve(&c, n * sizeof(float));
        g->shift[i] = gpu_carve(&c, n * sizeof(float));
    }
    if (many && p->hopfield) g->samples = gpu_carve(&c, all * gp->size);
    if (many && p->o.gradients) {
        g->sum_x = gpu_carve(&c, all * sizeof(float));
        g->sum_y = gpu_carve(&c, all * sizeof(float));
    }
    if (p->hopfield) g->dsamples = many && p->o.gradients ? g->sum_x : gpu_carve(&c, all * sizeof(float));
    g->sums = g->dsamples; /* free when retrieval runs; n <= N */
    for (int i = 0; i < 2; i++) {
        g->lse[i] = gpu_carve(&c, n * sizeof(double));
        g->weight[i] = gpu_carve(&c, n * sizeof(double));
    }
    gpu_carve_common(&c, p, gp);
    return c.used;
}

size_t gpu_general_bytes(const loss_plan *p, gpu *gp)
{
    general g;
    return general_carve(p, gp, NULL, &g);
}

static cloob_status gather_rows(cloob_ctx *ctx, loss_plan *p, general *g, const loss_inputs *in)
{
    const void *x = in->x, *y = in->y;
    g->x = (mat){ x, g->n };
    g->y = (mat){ y, g->n };
    if (p->size > 1) {
        CLOOB_TRY(comm_all_gather(ctx, p->c, x, g->gathered[0], p->elements, p->s.dtype));
        CLOOB_TRY(comm_all_gather(ctx, p->c, y, g->gathered[1], p->elements, p->s.dtype));
        x = g->gathered[0];
        y = g->gathered[1];
    }
    g->all_x = (mat){ x, g->N };
    g->all_y = (mat){ y, g->N };
    g->u = p->s.stored_u > 0 ? (mat){ in->u, p->s.stored_u } : g->all_x;
    g->v = p->s.stored_v > 0 ? (mat){ in->v, p->s.stored_v } : g->all_y;
    return CLOOB_OK;
}

static cloob_status gather_samples(cloob_ctx *ctx, loss_plan *p, const gpu *gp, general *g, void *own, mat *all)
{
    *all = (mat){ own, g->N };
    if (p->size == 1) return CLOOB_OK;
    all->data = g->samples;
    return comm_all_gather(ctx, p->c, own, g->samples, p->elements, gp->T);
}

/* all's part of this rank becomes the sum over the ranks. */
static cloob_status scatter(cloob_ctx *ctx, loss_plan *p, const general *g, float *all)
{
    if (p->size == 1) return CLOOB_OK;
    return comm_reduce_scatter(ctx, p->c, all, all + p->first * g->d, p->elements, CLOOB_F32);
}

static cloob_status add_scattered(cloob_ctx *ctx, loss_plan *p, const gpu *gp, const general *g, float *own, float *all)
{
    CLOOB_TRY(scatter(ctx, p, g, all));
    return gpu_cuda(ctx, k_add_rows(gp->stream, gp->T, own, all + p->first * g->d, 1, g->x.data, gp->dots, g->n, g->d),
                    "sums over ranks");
}

static cloob_status zero(cloob_ctx *ctx, const gpu *gp, float *m, int64_t elements)
{
    return m ? gpu_zero(ctx, gp, m, (size_t)elements * sizeof *m) : CLOOB_OK;
}

static gpu_search search_of(const loss_plan *p, const general *g, int which)
{
    return (gpu_search){ .states = which == UX || which == VX ? g->x : g->y,
                         .stored = which == UX || which == UY ? g->u : g->v,
                         .beta = p->o.beta,
                         .r = g->sums,
                         .dr = g->r[which],
                         .shift = g->shift[which] };
}

static cloob_status retrieve(cloob_ctx *ctx, const loss_plan *p, const gpu *gp, const general *g)
{
    for (int i = 0; i < 4; i++) {
        gpu_search s = search_of(p, g, i);
        CLOOB_TRY(gpu_search_forward(ctx, gp, &s));
        GPU_TRY("unit length",
                k_unit_forward(gp->stream, gp->T, g->r[i], g->low[i], g->length[i], g->sums, g->n, g->d, &gp->bad[i]));
    }
    return CLOOB_OK;
}

static cloob_status sum_stored(cloob_ctx *ctx, loss_plan *p, const gpu *gp, float *stored, int64_t rows)
{
    if (!stored) return CLOOB_OK;
    return comm_all_reduce(ctx, p->c, stored, rows * gp->d, CLOOB_F32);
}

static cloob_status retrieve_backward(cloob_ctx *ctx, loss_plan *p, const gpu *gp, const general *g,
                                      const loss_outputs *out)
{
    if (p->size > 1) {
        CLOOB_TRY(zero(ctx, gp, g->sum_x, g->N * g->d));
        CLOOB_TRY(zero(ctx, gp, g->sum_y, g->N * g->d));
    }
    for (int i = 0; i < 4; i++) {
        gpu_search s = search_of(p, g, i);
        s.dstates = i % 2 ? out->dy : out->dx;
        s.dstored = loss_dstored(p, out, i >= VX, i >= VX ? g->sum_y : g->sum_x);
        CLOOB_TRY(gpu_search_backward(ctx, gp, &s));
    }
    if (p->size == 1) return CLOOB_OK;
    if (p->s.stored_u == 0) CLOOB_TRY(add_scattered(ctx, p, gp, g, out->dx, g->sum_x));
    else CLOOB_TRY(sum_stored(ctx, p, gp, out->du, p->s.stored_u));
    if (p->s.stored_v == 0) return add_scattered(ctx, p, gp, g, out->dy, g->sum_y);
    return sum_stored(ctx, p, gp, out->dv, p->s.stored_v);
}

static gpu_contrast term(const loss_plan *p, const general *g, int text, mat anchors, mat samples)
{
    return (gpu_contrast){ .a = anchors,
                           .b = samples,
                           .first = p->first,
                           .inv_tau = p->o.inv_tau,
                           .leave_one_out = p->leave_one_out,
                           .lse = g->lse[text],
                           .weight = g->weight[text] };
}

static cloob_status hopfield_term(cloob_ctx *ctx, loss_plan *p, const gpu *gp, general *g, int text)
{
    int a = text ? VY : UX, b = text ? VX : UY;
    mat samples;
    CLOOB_TRY(gather_samples(ctx, p, gp, g, g->r[b], &samples));
    gpu_contrast c = term(p, g, text, (mat){ g->r[a], g->n }, samples);
    CLOOB_TRY(gpu_contrast_forward(ctx, gp, &c, &gp->total[text ? GPU_TEXT : GPU_IMAGE]));
    if (!p->o.gradients) return CLOOB_OK;
    c.unit_length = g->length[a];
    c.low = g->low[a];
    c.db = g->dsamples;
    CLOOB_TRY(zero(ctx, gp, c.db, g->N * g->d));
    CLOOB_TRY(gpu_contrast_backward(ctx, gp, &c));
    CLOOB_TRY(scatter(ctx, p, g, c.db));
    return gpu_cuda(ctx,
                    k_unit_backward(gp->stream, gp->T, g->r[b], g->low[b], c.db + p->first * g->d, g->length[b],
                                    gp->dots, g->n, g->d),
                    "unit length");
}

static cloob_status plain_terms(cloob_ctx *ctx, loss_plan *p, const gpu *gp, general *g, const loss_outputs *out)
{
    bool many = p->size > 1;
    gpu_contrast image = term(p, g, 0, g->x, g->all_y), text = term(p, g, 1, g->y, g->all_x);
    CLOOB_TRY(gpu_contrast_forward(ctx, gp, &image, &gp->total[GPU_IMAGE]));
    CLOOB_TRY(gpu_contrast_forward(ctx, gp, &text, &gp->total[GPU_TEXT]));
    if (!p->o.gradients) return CLOOB_OK;
    image.da = text.db = out->dx;
    image.db = text.da = out->dy;
    if (many) {
        image.db = g->sum_y;
        text.db = g->sum_x;
        CLOOB_TRY(zero(ctx, gp, g->sum_x, g->N * g->d));
        CLOOB_TRY(zero(ctx, gp, g->sum_y, g->N * g->d));
    }
    CLOOB_TRY(gpu_contrast_backward(ctx, gp, &image));
    CLOOB_TRY(gpu_contrast_backward(ctx, gp, &text));
    if (!many) return CLOOB_OK;
    CLOOB_TRY(add_scattered(ctx, p, gp, g, out->dx, g->sum_x));
    return add_scattered(ctx, p, gp, g, out->dy, g->sum_y);
}

static cloob_status begin_gradients(cloob_ctx *ctx, const loss_plan *p, const gpu *gp, const general *g,
                                    const loss_outputs *out)
{
    CLOOB_TRY(zero(ctx, gp, out->dx, g->n * g->d));
    CLOOB_TRY(zero(ctx, gp, out->dy, g->n * g->d));
    CLOOB_TRY(zero(ctx, gp, out->du, p->s.stored_u * g->d));
    return zero(ctx, gp, out->dv, p->s.stored_v * g->d);
}

static cloob_status terms(cloob_ctx *ctx, loss_plan *p, const gpu *gp, general *g, const loss_outputs *out)
{
    if (!p->hopfield) return plain_terms(ctx, p, gp, g, out);
    CLOOB_TRY(retrieve(ctx, p, gp, g));
    CLOOB_TRY(hopfield_term(ctx, p, gp, g, 0));
    CLOOB_TRY(hopfield_term(ctx, p, gp, g, 1));
    return p->o.gradients ? retrieve_backward(ctx, p, gp, g, out) : CLOOB_OK;
}

cloob_status gpu_general_queue(cloob_ctx *ctx, loss_plan *p, gpu *gp, const loss_inputs *in, const loss_outputs *out)
{
    general g;
    CLOOB_TRY(gpu_carved(ctx, p, general_carve(p, gp, p->memory, &g)));
    CLOOB_TRY(gpu_begin_totals(ctx, gp));
    CLOOB_TRY(gather_rows(ctx, p, &g, in));
    if (p->o.gradients) CLOOB_TRY(begin_gradients(ctx, p, gp, &g, out));
    CLOOB_TRY(terms(ctx, p, gp, &g, out));
    return gpu_send_totals(ctx, gp);
}

void gpu_general_result(const loss_plan *p, const double totals[], loss_result *r)
{
    r->image_term = totals[GPU_IMAGE] / (double)p->total;
    r->text_term = totals[GPU_TEXT] / (double)p->total;
    r->dsum_dinv_tau = totals[GPU_DINV_TAU];
    r->dsum_dbeta = p->o.inv_tau * totals[GPU_DBETA];
}
