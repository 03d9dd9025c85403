/* Retrieval when both sides are in the batch: one tile of scores serves both directions, and where a side
 * meets itself half of the tiles suffice. The shift by beta is enough because rows have unit length, and the
 * softmax denominator is never needed because what is retrieved is scaled to unit length (docs/explanation/objective.md
 * 3). */
#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"

typedef struct block { /* one tile: rows [i, i + m) of a against rows [j, j + n) of b */
    const pair *p;
    const tiles *t;
    int64_t i, j, m, n;
    const float *a, *b;
    bool both; /* off the diagonal, or two different sides: the transposed direction counts too */
} block;

static void exp_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) vec_exp(b->t->e + r * b->n, b->n, (float)b->p->beta, 1.0f);
}

static void wide_exp_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        vec_exp_wide(b->t->e + r * b->n, b->t->wide + r * b->n, b->n, b->p->beta, b->p->beta);
}

/* e = E of this tile */
static void block_scores(cloob_ctx *ctx, block *b)
{
    int64_t d = b->p->a.d;
    if (b->t->wide) {
        wide_scores(ctx, b->t, b->a, b->b, b->m, b->n, d);
        pool_for(ctx, b->m, 8, wide_exp_range, b);
        return;
    }
    cpu_sgemm(ctx, false, true, b->m, b->n, d, (float)b->p->beta, b->a, d, b->b, d, 0, b->t->e, b->n);
    pool_for(ctx, b->m, 8, exp_range, b);
}

/* ra_i += E b_j;  rb_j += E^T a_i */
static void block_forward(cloob_ctx *ctx, block *b)
{
    int64_t d = b->p->a.d;
    float *rb = b->p->same ? b->p->ra : b->p->rb;
    block_scores(ctx, b);
    if (b->t->wide) {
        wide_sums(ctx, b->t, false, b->p->ra + b->i * d, b->m, b->n, d);
        if (b->both) wide_sums(ctx, b->t, true, rb + b->j * d, b->m, b->n, d);
        return;
    }
    cpu_sgemm(ctx, false, false, b->m, d, b->n, 1, b->t->e, b->n, b->b, d, 1, b->p->ra + b->i * d, d);
    if (b->both) cpu_sgemm(ctx, true, false, b->n, d, b->m, 1, b->t->e, b->n, b->a, d, 1, rb + b->j * d, d);
}

static void dscore_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) vec_scale_by(b->t->t + r * b->n, b->t->e + r * b->n, b->n, (float)b->p->beta);
}

/* T = dra_i b_j^T + a_i drb_j^T,  dS = beta E o T
 * da_i += dS b_j + E drb_j;  db_j += dS^T a_i + E^T dra_i */
static void block_backward(cloob_ctx *ctx, block *b)
{
    int64_t d = b->p->a.d, m = b->m, n = b->n;
    const float *dra = b->p->dra + b->i * d, *drb = (b->p->same ? b->p->dra : b->p->drb) + b->j * d;
    float *e = b->t->e, *t = b->t->t, *da = b->p->da + b->i * d, *db = (b->p->same ? b->p->da : b->p->db) + b->j * d;
    block_scores(ctx, b);
    cpu_sgemm(ctx, false, true, m, n, d, 1, dra, d, b->b, d, 0, t, n);
    cpu_sgemm(ctx, false, true, m, n, d, 1, b->a, d, drb, d, 1, t, n);
    pool_for(ctx, m, 8, dscore_range, b);
    cpu_sgemm(ctx, false, false, m, d, n, 1, t, n, b->b, d, 1, da, d);
    cpu_sgemm(ctx, false, false, m, d, n, 1, e, n, drb, d, 1, da, d);
    if (!b->both) return;
    cpu_sgemm(ctx, true, false, n, d, m, 1, t, n, b->a, d, 1, db, d);
    cpu_sgemm(ctx, true, false, n, d, m, 1, e, n, dra, d, 1, db, d);
}

static void every_block(cloob_ctx *ctx, const pair *p, const tiles *t, void (*visit)(cloob_ctx *, block *))
{
    for (int64_t i = 0; i < p->a.n; i += TILE) {
        block b = { .p = p, .t = t, .i = i, .m = min64(TILE, p->a.n - i) };
        b.a = rows_f32(&p->a, i, b.m, t->a);
        for (b.j = p->same ? i : 0; b.j < p->b.n; b.j += TILE) {
            b.n = min64(TILE, p->b.n - b.j);
            b.b = p->same && b.j == i ? b.a : rows_f32(&p->b, b.j, b.n, t->b);
            b.both = !p->same || b.j != i;
            visit(ctx, &b);
        }
    }
}

void pair_forward(cloob_ctx *ctx, const pair *p, const tiles *t) { every_block(ctx, p, t, block_forward); }
void pair_backward(cloob_ctx *ctx, const pair *p, const tiles *t) { every_block(ctx, p, t, block_backward); }
