/* Ranks by counting, both directions from the same tile. */
#include "eval/retrieval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "eval/tiles.h"

/* Float similarities of unit rows are off by 1e-7 or so (rounding errors of D products, which mostly cancel);
 * below this distance the order is settled in double. */
static const float NEAR = 2e-6f;

typedef struct ranks {
    const unit_rows *image, *text;
    double *matched;        /* (N) similarity of pair i, in double */
    int64_t *above[2];      /* (N) candidates before the partner: [0] image asks, [1] text asks */
    unsigned char *tied[2]; /* (N) */
    float *pair;            /* per thread: two rows */
    int32_t *column;        /* per thread: two counts per column of a tile */
} ranks;

/* ---- close calls --------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

static double similarity(const ranks *r, int64_t i, int64_t j, int thread)
{
    int64_t D = r->image->src.D;
    float *a = r->pair + 2 * D * thread;
    unit_rows_read(r->image, i, 1, a);
    unit_rows_read(r->text, j, 1, a + D);
    return dot(a, a + D, D);
}

/* Candidate `other` against the partner of `query`, whose similarity is `own`. */
static void settle(const ranks *r, int side, int64_t query, int64_t other, double s)
{
    double own = r->matched[query];
    if (s == own) __atomic_store_n(&r->tied[side][query], 1, __ATOMIC_RELAXED);
    if (s > own || (s == own && other < query))
        __atomic_fetch_add(&r->above[side][query], 1, __ATOMIC_RELAXED);
}

/* Settles what lies near the partner's similarity in one row (or column) of a tile: n elements at a stride,
 * candidates from `first` on. */
static void settle_near(const ranks *r, const tile *t, int side, int64_t query, const float *s,
                        int64_t stride, int64_t first, int64_t n, int64_t near)
{
    float own = (float)r->matched[query];
    bool crowded = near > n / 8 + 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t other = first + k;
        if (other == query || fabsf(s[k * stride] - own) > NEAR) continue;
        double exact = r->matched[query];
        if (!crowded)
            exact =
                side == 0 ? similarity(r, query, other, t->thread) : similarity(r, other, query, t->thread);
        settle(r, side, query, other, exact);
    }
}

/* ---- counting ------------------------------------------------------------------------------------ */

static bool holds(int64_t begin, int64_t n, int64_t i) { return i >= begin && i < begin + n; }

static void count_row(const ranks *r, const tile *t, int64_t i)
{
    const float *s = t->s + (i - t->i0) * t->nj;
    float own = (float)r->matched[i], high = own + NEAR, low = own - NEAR;
    int32_t above = 0, reach = 0;
    for (int64_t j = 0; j < t->nj; j++) above += s[j] > high, reach += s[j] >= low;
    int64_t near = reach - above - holds(t->j0, t->nj, i); /* the partner itself is always near */
    if (above) __atomic_fetch_add(&r->above[0][i], above, __ATOMIC_RELAXED);
    if (near > 0) settle_near(r, t, 0, i, s, 1, t->j0, t->nj, near);
}

static void count_columns(const ranks *r, const tile *t)
{
    int32_t *restrict above = r->column + 2 * TILE_COLUMNS * t->thread, *restrict reach =
                                                                            above + TILE_COLUMNS;
    float high[TILE_COLUMNS], low[TILE_COLUMNS];
    memset(above, 0, 2 * TILE_COLUMNS * sizeof *above);
    for (int64_t j = 0; j < t->nj; j++) {
        float own = (float)r->matched[t->j0 + j];
        high[j] = own + NEAR, low[j] = own - NEAR;
    }
    for (int64_t i = 0; i < t->ni; i++) {
        const float *s = t->s + i * t->nj;
        for (int64_t j = 0; j < t->nj; j++) above[j] += s[j] > high[j], reach[j] += s[j] >= low[j];
    }
    for (int64_t j = 0; j < t->nj; j++) {
        int64_t query = t->j0 + j, near = reach[j] - above[j] - holds(t->i0, t->ni, query);
        if (above[j]) __atomic_fetch_add(&r->above[1][query], above[j], __ATOMIC_RELAXED);
        if (near > 0) settle_near(r, t, 1, query, t->s + j, t->nj, t->i0, t->ni, near);
    }
}

static void visit(void *arg, const tile *t)
{
    const ranks *r = arg;
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++) count_row(r, t, i);
    count_columns(r, t);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void match_range(void *arg, int64_t begin, int64_t end, int thread)
{
    ranks *r = arg;
    for (int64_t i = begin; i < end; i++) r->matched[i] = similarity(r, i, i, thread);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void retrieval_summary(cloob_retrieval_side *out, int64_t *rank, int64_t N)
{
    int64_t at1 = 0, at5 = 0, at10 = 0;
    double sum = 0;
    for (int64_t i = 0; i < N; i++) {
        at1 += rank[i] <= 1, at5 += rank[i] <= 5, at10 += rank[i] <= 10;
        sum += (double)rank[i];
    }
    qsort(rank, (size_t)N, sizeof *rank, ascending);
    out->recall1 = (double)at1 / (double)N;
    out->recall5 = (double)at5 / (double)N;
    out->recall10 = (double)at10 / (double)N;
    out->mean_rank = sum / (double)N;
    out->median_rank = floor(0.5 * (double)(rank[(N - 1) / 2] + rank[N / 2]));
}

static void finish(ranks *r, cloob_retrieval *out, int64_t N)
{
    cloob_retrieval_side *side[2] = { &out->image_to_text, &out->text_to_image };
    out->pairs = N;
    out->scaled = r->image->scaled + r->text->scaled;
    for (int k = 0; k < 2; k++) {
        side[k]->tied = 0;
        for (int64_t i = 0; i < N; i++) r->above[k][i]++, side[k]->tied += r->tied[k][i];
        retrieval_summary(side[k], r->above[k], N);
    }
}

cloob_status retrieval_run(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image,
                           const unit_rows *text)
{
    int64_t N = image->src.N, D = image->src.D;
    CLOOB_TRY(unit_rows_match(ctx, image, text));
    size_t each = sizeof(double) + 2 * sizeof(int64_t) + 2, threads = (size_t)ctx->threads;
    char *block = calloc((size_t)N, each);
    ranks r = { .image = image, .text = text, .matched = (double *)block };
    r.pair = malloc(threads * (size_t)D * 2 * sizeof *r.pair);
    r.column = malloc(threads * TILE_COLUMNS * 2 * sizeof *r.column);
    cloob_status status = ctx_no_memory(ctx, (size_t)N * each, "ranks");
    if (block && r.pair && r.column) {
        for (int k = 0; k < 2; k++) {
            r.above[k] = (int64_t *)(r.matched + N) + k * N;
            r.tied[k] = (unsigned char *)block + (size_t)N * 24 + k * N;
        }
        pool_for(ctx, N, 256, match_range, &r);
        status = tiles_run(ctx, image, text, TILES_ALL, &(tile_visitor){ visit, NULL, &r });
        if (status == CLOOB_OK) finish(&r, out, N);
    }
    free(block), free(r.pair), free(r.column);
    return status;
}
