/* SigLIP's sigmoid loss: every pair of an image and a text is independent, in tiles. Each rank has its own images as
 * rows and sees the texts of all ranks, whose gradient is summed and scattered:
 *
 *     k_ij = inv_tau x_i.y_j + bias
 *     loss = mean_i [ softplus(-k_ii) + sum_{j != i} softplus(k_ij) ]
 *     dk_ii = -sigmoid(-k_ii) / N,   dk_ij = sigmoid(k_ij) / N */
#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct sigmoid_memory {
    void *gathered; /* (N, d) of the inputs' type, several ranks only */
    float *sum_y;   /* (N, d): gradient of all texts, several ranks only */
    tiles t;
} sigmoid_memory;

/* A tile: images [i, i + m) against texts [j, j + n). */
typedef struct strip {
    const loss_plan *p;
    const tiles *t;
    int64_t i, j, m, n;
    double value[TILE], along[TILE], sum[TILE]; /* per row: loss, dk.s, dk */
} strip;

static size_t carve_all(const loss_plan *p, void *memory, sigmoid_memory *s)
{
    size_t all = (size_t)(p->total * p->s.dim) * sizeof(float);
    carver c = { memory, 0 };
    memset(s, 0, sizeof *s);
    if (p->size > 1) s->gathered = carve(&c, p->s.dtype == CLOOB_F32 ? all : all / 2);
    if (p->size > 1 && p->o.gradients) s->sum_y = carve(&c, all);
    s->t = tiles_carve(&c, p);
    return c.used;
}

size_t sigmoid_bytes(const loss_plan *p)
{
    sigmoid_memory s;
    return carve_all(p, NULL, &s);
}

/* log1p(e) summed as the logarithm of a product: TILE factors of at most 2 stay far from overflow. e: exp(-|k|), in
 * place of which dk comes; k: the scores with the bias. */
static void negatives(strip *s, int64_t r, const float *k, float *e, double share)
{
    double product = 1, above = 0;
    for (int64_t c = 0; c < s->n; c++) {
        double x = (double)k[c], small = (double)e[c], dk = (x > 0 ? 1 : small) / (1 + small) * share;
        product *= 1 + small;
        above += x > 0 ? x : 0;
        s->sum[r] += dk;
        s->along[r] += dk * x;
        e[c] = (float)dk;
    }
    s->value[r] += above + log(product);
}

/* The positive was counted as a negative: softplus(-k) = softplus(k) - k, and its dk is less by 1 / N. */
static void positive(strip *s, int64_t r, const float *k, float *e, int64_t c, double share)
{
    double x = (double)k[c];
    s->value[r] -= x;
    s->sum[r] -= share;
    s->along[r] -= share * x;
    e[c] = (float)(-share / (1 + exp(x)));
}

static void pairs_range(void *arg, int64_t begin, int64_t end, int thread)
{
    strip *s = arg;
    double share = 1 / (double)s->p->total;
    float bias = (float)s->p->o.bias;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *e = s->t->e + r * s->n, k[TILE];
        int64_t own = s->p->first + s->i + r - s->j;
        for (int64_t c = 0; c < s->n; c++) k[c] = e[c] + bias, e[c] = -fabsf(k[c]);
        vec_exp(e, s->n, 0, 1);
        negatives(s, r, k, e, share);
        if (own >= 0 && own < s->n) positive(s, r, k, e, own, share);
    }
}

/* The tile's scores and what follows from them. dy: gradient of all texts. */
static void tile_pairs(cloob_ctx *ctx, strip *s, const float *a, const float *b, float *dx, float *dy)
{
    int64_t d = s->p->s.dim;
    float inv_tau = (float)s->p->o.inv_tau, *e = s->t->e;
    cpu_sgemm(ctx, false, true, s->m, s->n, d, inv_tau, a, d, b, d, 0, e, s->n);
    pool_for(ctx, s->m, 8, pairs_range, s);
    if (!s->p->o.gradients) return;
    cpu_sgemm(ctx, false, false, s->m, d, s->n, inv_tau, e, s->n, b, d, s->j > 0, dx + s->i * d, d);
    cpu_sgemm(ctx, true, false, s->n, d, s->m, inv_tau, e, s->n, a, d, 1, dy + s->j * d, d);
}

static void all_tiles(cloob_ctx *ctx, strip *s, const rows *x, const rows *y, float *dx, float *dy, double sums[3])
{
    for (s->i = 0; s->i < x->n; s->i += TILE) {
        s->m = min64(TILE, x->n - s->i);
        memset(s->value, 0, sizeof s->value), memset(s->along, 0, sizeof s->along), memset(s->sum, 0, sizeof s->sum);
        const float *a = rows_f32(x, s->i, s->m, s->t->a);
        for (s->j = 0; s->j < y->n; s->j += TILE) {
            s->n = min64(TILE, y->n - s->j);
            tile_pairs(ctx, s, a, rows_f32(y, s->j, s->n, s->t->b), dx, dy);
        }
        for (int64_t r = 0; r < s->m; r++) sums[0] += s->value[r], sums[1] += s->along[r], sums[2] += s->sum[r];
    }
}

cloob_status sigmoid_run(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, const loss_outputs *out, loss_result *r)
{
    sigmoid_memory m;
    int64_t d = p->s.dim;
    bool many = p->size > 1;
    carve_all(p, p->memory, &m);
    float *dy = many ? m.sum_y : out->dy;
    if (many) CLOOB_TRY(comm_all_gather(ctx, p->c, in->y, m.gathered, p->elements, p->s.dtype));
    rows x = { in->x, p->s.dtype, p->s.rows, d }, y = { many ? m.gathered : in->y, p->s.dtype, p->total, d };
    if (p->o.gradients) memset(dy, 0, (size_t)(p->total * d) * sizeof *dy);
    if (out->du) memset(out->du, 0, (size_t)(p->s.stored_u * d) * sizeof *out->du); /* no stored rows */
    if (out->dv) memset(out->dv, 0, (size_t)(p->s.stored_v * d) * sizeof *out->dv);
    strip s = { .p = p, .t = &m.t };
    double sums[3] = { 0, 0, 0 };
    all_tiles(ctx, &s, &x, &y, out->dx, dy, sums);
    CLOOB_TRY(comm_host_sum_f64(ctx, p->c, sums, 3));
    r->image_term = r->text_term = sums[0] / (double)p->total / 2;
    r->dsum_dinv_tau = (sums[1] - p->o.bias * sums[2]) / p->o.inv_tau; /* sums[1] has dk (inv_tau s + bias) */
    r->dsum_dbias = sums[2];
    if (!many || !p->o.gradients) return CLOOB_OK;
    CLOOB_TRY(comm_reduce_scatter(ctx, p->c, dy, dy + p->first * d, p->elements, CLOOB_F32));
    memcpy(out->dy, dy + p->first * d, (size_t)(p->s.rows * d) * sizeof *dy);
    return CLOOB_OK;
}
