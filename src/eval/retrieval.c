/* Ranks of all pairs or of some of them, and their summary. */
#include "core/arith.h"
#include "eval/retrieval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "eval/rows.h"

/* Candidates ranked before a query's partner are counted tile by tile.
 *
 * Query k is row k of a; its partner is candidate k * step, row k * step of b, or the one that `partner` names.
 * Similarities are formed in float; what is within RANK_NEAR of the partner's is recomputed in double, always in the
 * same order of additions, so that equal rows have equal similarities wherever they are formed. Where more than an
 * eighth of a tile's candidates is that near (a collapse), the near ones count as equal. */
typedef struct rank_pass {
    const unit_rows *a, *b;
    int64_t step;
    bool both;              /* also ranks every candidate's row; step is 1 and a and b have the same number of rows */
    double *matched;        /* (rows of a) similarity of query and partner */
    int64_t *above[2];      /* (rows of a), zeros on entry: candidates before the partner; [1] where both */
    unsigned char *tied[2]; /* 1 where another candidate is exactly as similar */
    const int64_t *partner; /* (rows of a) rows of b; -1: no query. NULL: k * step */
} rank_pass;

/* Float similarities of unit rows are off by 1e-7 or so (rounding errors of D products, which mostly cancel). */
#define RANK_NEAR 2e-6f

enum { LANES = 32 }; /* independent sums in double of one dot product */

typedef struct ranks {
    const rank_pass *p;
    float *pair;     /* per thread: two rows */
    int32_t *column; /* per thread: two counts per column of a tile */
} ranks;

/* Which candidate is query k's. */
static int64_t rank_partner(const rank_pass *p, int64_t k) { return p->partner ? p->partner[k] : k * p->step; }

/* ---- close calls --------------------------------------------------------------------------------- */

/* Products of floats are exact in double, so only the order of additions matters: lane by lane, then in
 * halves. */
static double rank_dot(const float *a, const float *b, int64_t n)
{
    double lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)a[i + k] * b[i + k];
    for (int k = 0; i + k < n; k++) lane[k] += (double)a[i + k] * b[i + k];
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* Of row i of a and row j of b. */
static double similarity(const ranks *r, int64_t i, int64_t j, int thread)
{
    int64_t D = r->p->a->src.D;
    float *a = r->pair + 2 * D * thread;
    unit_rows_read(r->p->a, i, 1, a);
    unit_rows_read(r->p->b, j, 1, a + D);
    return rank_dot(a, a + D, D);
}

/* Recomputes in double the similarities near the partner's in one row (side 0) or column (side 1) of a tile: n
 * elements at a stride, candidates from `first` on. */
static void settle_near(const ranks *r, const tile *t, int side, int64_t query, const float *s, int64_t stride,
                        int64_t first, int64_t n, int64_t near)
{
    int64_t partner = rank_partner(r->p, query), before = 0;
    double own = r->p->matched[query];
    bool crowded = near > n / 8 + 1, tied = false;
    for (int64_t k = 0; k < n; k++) {
        int64_t other = first + k;
        if (other == partner || fabsf(s[k * stride] - (float)own) > RANK_NEAR) continue;
        double exact = own;
        if (!crowded)
            exact = side == 0 ? similarity(r, query, other, t->thread) : similarity(r, other, query, t->thread);
        tied = tied || exact == own;
        before += exact > own || (exact == own && other < partner);
    }
    if (tied) __atomic_store_n(&r->p->tied[side][query], 1, __ATOMIC_RELAXED);
    if (before) __atomic_fetch_add(&r->p->above[side][query], before, __ATOMIC_RELAXED);
}

/* ---- counting ------------------------------------------------------------------------------------ */

static bool holds(int64_t begin, int64_t n, int64_t i) { return i >= begin && i < begin + n; }

static void count_row(const ranks *r, const tile *t, int64_t i)
{
    const float *s = t->s + (i - t->i0) * t->nj;
    float own = (float)r->p->matched[i], high = own + RANK_NEAR, low = own - RANK_NEAR;
    int32_t above = 0, reach = 0;
    for (int64_t j = 0; j < t->nj; j++) above += s[j] > high, reach += s[j] >= low;
    int64_t near = reach - above - holds(t->j0, t->nj, rank_partner(r->p, i)); /* the partner itself is always near */
    if (above) __atomic_fetch_add(&r->p->above[0][i], above, __ATOMIC_RELAXED);
    if (near > 0) settle_near(r, t, 0, i, s, 1, t->j0, t->nj, near);
}

static void count_columns(const ranks *r, const tile *t)
{
    int32_t *restrict above = r->column + 2 * TILE_COLUMNS * t->thread, *restrict reach = above + TILE_COLUMNS;
    float high[TILE_COLUMNS], low[TILE_COLUMNS];
    memset(above, 0, 2 * TILE_COLUMNS * sizeof *above);
    for (int64_t j = 0; j < t->nj; j++) {
        float own = (float)r->p->matched[t->j0 + j];
        high[j] = own + RANK_NEAR, low[j] = own - RANK_NEAR;
    }
    for (int64_t i = 0; i < t->ni; i++) {
        const float *s = t->s + i * t->nj;
        for (int64_t j = 0; j < t->nj; j++) above[j] += s[j] > high[j], reach[j] += s[j] >= low[j];
    }
    for (int64_t j = 0; j < t->nj; j++) {
        int64_t query = t->j0 + j, near = reach[j] - above[j] - holds(t->i0, t->ni, query);
        if (above[j]) __atomic_fetch_add(&r->p->above[1][query], above[j], __ATOMIC_RELAXED);
        if (near > 0) settle_near(r, t, 1, query, t->s + j, t->nj, t->i0, t->ni, near);
    }
}

static void visit(void *arg, const tile *t)
{
    const ranks *r = arg;
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++) count_row(r, t, i);
    if (r->p->both) count_columns(r, t);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void match_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const ranks *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t partner = rank_partner(r->p, i);
        r->p->matched[i] = partner < 0 ? HUGE_VAL : similarity(r, i, partner, thread); /* no similarity is above that */
    }
}

static cloob_status ranks_init(cloob_ctx *ctx, ranks *r, const rank_pass *p)
{
    size_t threads = (size_t)ctx->threads, D = (size_t)p->a->src.D;
    *r =
        (ranks){ p, malloc(threads * D * 2 * sizeof *r->pair), malloc(threads * TILE_COLUMNS * 2 * sizeof *r->column) };
    if (r->pair && r->column) return CLOOB_OK;
    free(r->pair), free(r->column);
    return ctx_no_memory(ctx, threads * (D + TILE_COLUMNS) * 8, "ranks");
}

/* The largest of row i's similarities to the rows of b that it owns, for rank_pass: partner (rows of a) gets
 * the first of the most similar rows j with owner[j] == i, -1 where there is none. */
static cloob_status ranks_best(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, const int64_t *owner,
                               int64_t *partner)
{
    ranks r;
    rank_pass p = { .a = a, .b = b };
    double *best = malloc((size_t)a->src.N * sizeof *best);
    if (!best) return ctx_no_memory(ctx, (size_t)a->src.N * sizeof *best, "ranks");
    cloob_status status = ranks_init(ctx, &r, &p);
    for (int64_t i = 0; i < a->src.N; i++) partner[i] = -1;
    for (int64_t j = 0; j < b->src.N && status == CLOOB_OK; j++) {
        int64_t i = owner[j];
        double s = similarity(&r, i, j, 0);
        if (partner[i] < 0 || s > best[i]) partner[i] = j, best[i] = s;
    }
    if (status == CLOOB_OK) free(r.pair), free(r.column);
    free(best);
    return status;
}

static cloob_status run_pass(cloob_ctx *ctx, const rank_pass *p)
{
    ranks r;
    CLOOB_TRY(ranks_init(ctx, &r, p));
    pool_for(ctx, p->a->src.N, 256, match_range, &r);
    cloob_status status = tiles_run(ctx, p->a, p->b, TILES_ALL, &(tile_visitor){ visit, NULL, &r });
    free(r.pair), free(r.column);
    return status;
}

/* ---- ranks and their summary ----------------------------------------------------------------- */

void retrieval_summary(cloob_retrieval_side *out, int64_t *rank, int64_t N)
{
    int64_t at1 = 0, at5 = 0, at10 = 0;
    double sum = 0, inverse = 0;
    for (int64_t i = 0; i < N; i++) {
        at1 += rank[i] <= 1, at5 += rank[i] <= 5, at10 += rank[i] <= 10;
        sum += (double)rank[i];
        inverse += 1 / (double)rank[i];
    }
    qsort(rank, (size_t)N, sizeof *rank, order_int64);
    out->recall1 = (double)at1 / (double)N;
    out->recall5 = (double)at5 / (double)N;
    out->recall10 = (double)at10 / (double)N;
    out->mean_rank = sum / (double)N;
    out->mrr = inverse / (double)N;
    out->median_rank = floor(0.5 * (double)(rank[(N - 1) / 2] + rank[N / 2]));
}

/* ---- passes -------------------------------------------------------------------------------------- */

/* One block of memory behind a pass over n queries. */
static cloob_status pass_init(cloob_ctx *ctx, rank_pass *p, void **block, int64_t n)
{
    size_t each = sizeof(double) + 2 * sizeof(int64_t) + 2;
    *block = calloc((size_t)n, each);
    if (!*block) return ctx_no_memory(ctx, (size_t)n * each, "ranks");
    p->matched = *block;
    for (int k = 0; k < 2; k++) {
        p->above[k] = (int64_t *)(p->matched + n) + k * n;
        p->tied[k] = (unsigned char *)(p->matched + 3 * n) + k * n;
    }
    return CLOOB_OK;
}

static void finish(const rank_pass *p, int which, cloob_retrieval_side *side)
{
    int64_t n = p->a->src.N;
    side->tied = 0;
    for (int64_t i = 0; i < n; i++) p->above[which][i]++, side->tied += p->tied[which][i];
    retrieval_summary(side, p->above[which], n);
}

static cloob_status all_queries(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text)
{
    void *block;
    rank_pass p = { .a = image, .b = text, .step = 1, .both = true };
    CLOOB_TRY(pass_init(ctx, &p, &block, image->src.N));
    cloob_status status = run_pass(ctx, &p);
    if (status == CLOOB_OK) finish(&p, 0, &out->image_to_text), finish(&p, 1, &out->text_to_image);
    free(block);
    return status;
}

/* Every step-th row of `from`, n of them, is ranked against all rows of `among`. */
static cloob_status some_queries(cloob_ctx *ctx, cloob_retrieval_side *out, const unit_rows *from,
                                 const unit_rows *among, int64_t step, int64_t n)
{
    void *block = NULL;
    rows some = rows_every(&from->src, step, 0);
    unit_rows asking;
    some.N = n;
    CLOOB_TRY(unit_rows_init(ctx, &asking, &some));
    rank_pass p = { .a = &asking, .b = among, .step = step };
    cloob_status status = pass_init(ctx, &p, &block, n);
    if (status == CLOOB_OK) status = run_pass(ctx, &p);
    if (status == CLOOB_OK) finish(&p, 0, out);
    free(block);
    unit_rows_release(&asking);
    return status;
}

cloob_status retrieval_run(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                           int64_t queries)
{
    int64_t N = image->src.N, step = queries > 0 && queries < N ? N / queries : 1;
    CLOOB_TRY(unit_rows_match(ctx, image, text));
    out->pairs = out->images = out->texts = N;
    out->queries = queries > 0 && queries < N ? queries : N;
    out->scaled = image->scaled + text->scaled;
    if (out->queries == N) return all_queries(ctx, out, image, text);
    CLOOB_TRY(some_queries(ctx, &out->image_to_text, image, text, step, queries));
    return some_queries(ctx, &out->text_to_image, text, image, step, queries);
}

/* ---- several captions per image ------------------------------------------------------------------ */

static cloob_status check_owners(cloob_ctx *ctx, const unit_rows *image, const unit_rows *text, const int64_t *owner)
{
    if (image->src.D != text->src.D)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has %lld columns, %s %lld", image->src.name, (long long)image->src.D,
                        text->src.name, (long long)text->src.D);
    for (int64_t j = 0; j < text->src.N; j++)
        if (owner[j] < 0 || owner[j] >= image->src.N)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "text %lld refers to image %lld; images are 0 to %lld", (long long)j,
                            (long long)owner[j], (long long)image->src.N - 1);
    return CLOOB_OK;
}

/* Ranks of the queries that have a partner. */
static cloob_status owned_side(cloob_ctx *ctx, cloob_retrieval_side *out, const unit_rows *from, const unit_rows *among,
                               const int64_t *partner, int64_t *queries)
{
    void *block;
    rank_pass p = { .a = from, .b = among, .partner = partner };
    int64_t n = 0;
    CLOOB_TRY(pass_init(ctx, &p, &block, from->src.N));
    cloob_status status = run_pass(ctx, &p);
    out->tied = 0;
    for (int64_t i = 0; i < from->src.N && status == CLOOB_OK; i++)
        if (partner[i] >= 0) p.above[0][n++] = p.above[0][i] + 1, out->tied += p.tied[0][i];
    if (status == CLOOB_OK) retrieval_summary(out, p.above[0], n);
    *queries = n;
    free(block);
    return status;
}

cloob_status retrieval_run_owned(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *image, const unit_rows *text,
                                 const int64_t *owner)
{
    int64_t *best, texts;
    CLOOB_TRY(check_owners(ctx, image, text, owner));
    *out = (cloob_retrieval){ .images = image->src.N, .texts = text->src.N, .scaled = image->scaled + text->scaled };
    best = malloc((size_t)image->src.N * sizeof *best);
    if (!best) return ctx_no_memory(ctx, (size_t)image->src.N * sizeof *best, "ranks");
    cloob_status status = ranks_best(ctx, image, text, owner, best);
    if (status == CLOOB_OK) status = owned_side(ctx, &out->image_to_text, image, text, best, &out->queries);
    if (status == CLOOB_OK) status = owned_side(ctx, &out->text_to_image, text, image, owner, &texts);
    out->pairs = text->src.N;
    free(best);
    return status;
}
