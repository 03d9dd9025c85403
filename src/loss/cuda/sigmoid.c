/* SigLIP's sigmoid loss on the GPU: as cpu_sigmoid.c, tiles by the library's GEMM and a pass over them. */
#include <string.h>

#include "core/arith.h"
#include "loss/cuda/gpu.h"
#include "loss/cuda/kernels.h"

typedef struct sigmoid_memory {
    void *gathered; /* (N, d) of T, several ranks only */
    float *sum_y;   /* (N, d), several ranks only */
    double *sum;    /* (n) sums of dk; loss and dk.s of the rows are in gpu.value and gpu.dots */
} sigmoid_memory;

static size_t carve_all(const loss_plan *p, gpu *g, void *memory, sigmoid_memory *s)
{
    size_t all = (size_t)(p->total * p->s.dim);
    carver c = { memory, 0 };
    memset(s, 0, sizeof *s);
    if (p->size > 1) s->gathered = gpu_carve(&c, all * g->size);
    if (p->size > 1 && p->o.gradients) s->sum_y = gpu_carve(&c, all * sizeof(float));
    s->sum = gpu_carve(&c, (size_t)p->s.rows * sizeof(double));
    gpu_carve_common(&c, p, g);
    return c.used;
}

size_t gpu_sigmoid_bytes(const loss_plan *p, gpu *g)
{
    sigmoid_memory s;
    return carve_all(p, g, NULL, &s);
}

static cloob_status tile_pairs(cloob_ctx *ctx, const loss_plan *p, const gpu *g, const sigmoid_memory *s, mat x, mat y,
                               int64_t i, int64_t j, float *dx, float *dy)
{
    int64_t m = min64(g->tile, x.n - i), n = min64(g->tile, y.n - j), d = g->d;
    const void *a = mat_at(g, x.data, i), *b = mat_at(g, y.data, j);
    CLOOB_TRY(gpu_gemm(ctx, g, false, true, m, n, d, p->o.inv_tau, a, d, b, d, 0, g->s, n));
    GPU_TRY("sigmoid loss", k_sigmoid(g->stream, g->T, g->e, g->s, g->value + i, g->dots + i, s->sum + i, m, n,
                                      p->first + i - j, (float)p->o.bias, 1 / (double)p->total));
    if (!p->o.gradients) return CLOOB_OK;
    CLOOB_TRY(gpu_gemm(ctx, g, false, false, m, d, n, p->o.inv_tau, g->e, n, b, d, j > 0, dx + i * d, d));
    return gpu_gemm(ctx, g, true, false, n, d, m, p->o.inv_tau, g->e, n, a, d, 1, dy + j * d, d);
}

static cloob_status finish_sums(cloob_ctx *ctx, const gpu *g, const sigmoid_memory *s, int64_t n)
{
    /* fused kernels exist for the other methods only: value, dots and sum hold every row's */
    const double *from[] = { g->value, g->dots, s->sum };
    static const int to[] = { GPU_IMAGE, GPU_DINV_TAU, GPU_DBETA };
    for (int k = 0; k < 3; k++) GPU_TRY("sums", k_sum(g->stream, &g->total[to[k]], from[k], n));
    return CLOOB_OK;
}

cloob_status gpu_sigmoid_queue(cloob_ctx *ctx, loss_plan *p, gpu *g, const loss_inputs *in, const loss_outputs *out)
{
    sigmoid_memory s;
    bool many = p->size > 1;
    size_t rows = (size_t)p->s.rows * sizeof(double);
    CLOOB_TRY(gpu_carved(ctx, p, carve_all(p, g, p->memory, &s)));
    CLOOB_TRY(gpu_begin_totals(ctx, g));
    if (many) CLOOB_TRY(comm_all_gather(ctx, p->c, in->y, s.gathered, p->elements, p->s.dtype));
    mat x = { in->x, p->s.rows }, y = { many ? s.gathered : in->y, p->total };
    float *dy = many ? s.sum_y : out->dy;
    CLOOB_TRY(gpu_zero(ctx, g, g->value, rows));
    CLOOB_TRY(gpu_zero(ctx, g, g->dots, rows));
    CLOOB_TRY(gpu_zero(ctx, g, s.sum, rows));
    if (p->o.gradients) CLOOB_TRY(gpu_zero(ctx, g, dy, (size_t)(p->total * g->d) * sizeof *dy));
    if (out->du) CLOOB_TRY(gpu_zero(ctx, g, out->du, (size_t)(p->s.stored_u * g->d) * sizeof(float)));
    if (out->dv) CLOOB_TRY(gpu_zero(ctx, g, out->dv, (size_t)(p->s.stored_v * g->d) * sizeof(float)));
    for (int64_t i = 0; i < x.n; i += g->tile)
        for (int64_t j = 0; j < y.n; j += g->tile) CLOOB_TRY(tile_pairs(ctx, p, g, &s, x, y, i, j, out->dx, dy));
    CLOOB_TRY(finish_sums(ctx, g, &s, x.n));
    if (many && p->o.gradients) {
        CLOOB_TRY(comm_reduce_scatter(ctx, p->c, dy, dy + p->first * g->d, p->elements, CLOOB_F32));
        GPU_TRY("sums over ranks", cudaMemcpyAsync(out->dy, dy + p->first * g->d, (size_t)(x.n * g->d) * sizeof *dy,
                                                   cudaMemcpyDeviceToDevice, g->stream));
    }
    return gpu_send_totals(ctx, g);
}

void gpu_sigmoid_result(const loss_plan *p, const double totals[], loss_result *r)
{
    r->image_term = r->text_term = totals[GPU_IMAGE] / (double)p->total / 2;
    r->dsum_dinv_tau = totals[GPU_DINV_TAU] / p->o.inv_tau; /* of dk inv_tau s */
    r->dsum_dbias = totals[GPU_DBETA];
}
