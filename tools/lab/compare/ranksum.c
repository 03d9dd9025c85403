/* Ranks, the exact distribution of U, and its normal limit. */
#include "lab/compare/groups.h"

#include <math.h>
#include <stdlib.h>

enum { EXACT_SMALLER = 8, EXACT_LARGER = 2000 };

typedef struct value {
    double x;
    bool from_a;
} value;

static int by_size(const void *p, const void *q)
{
    double x = ((const value *)p)->x, y = ((const value *)q)->x;
    return (x > y) - (x < y);
}

/* Sum of a's ranks (equal values share the mean of their ranks), and sum of t^3 - t over groups of t equal
 * ones. */
static double rank_total(value *v, int64_t n, double *ties)
{
    double total = 0;
    *ties = 0;
    qsort(v, (size_t)n, sizeof *v, by_size);
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && v[j].x == v[i].x; j++) {}
        double t = (double)(j - i), rank = 0.5 * (double)(i + 1 + j);
        *ties += t * t * t - t;
        for (int64_t k = i; k < j; k++) total += v[k].from_a ? rank : 0;
    }
    return total;
}

/* ---- exact --------------------------------------------------------------------------------------- */

/* P(U >= u) for samples of m <= 8 and n values without ties: of all ways to choose m of the places 0..m+n-1,
 * those whose sum reaches u + m(m-1)/2. ways[k][s]: k places with sum s, counted place by place; only
 * additions, so doubles keep their digits. */
static cloob_status upper_tail(cloob_ctx *ctx, double *p, int64_t m, int64_t n, double u)
{
    int64_t min = m * (m - 1) / 2, max = min + m * n, width = max + 1;
    double *ways = calloc((size_t)((m + 1) * width), sizeof *ways), all = 0, reach = 0;
    if (!ways) return ctx_no_memory(ctx, (size_t)((m + 1) * width) * sizeof *ways, "the rank-sum distribution");
    ways[0] = 1;
    for (int64_t place = 0; place < m + n; place++)
        for (int64_t k = m; k > 0; k--)
            for (int64_t s = max; s >= place; s--) ways[k * width + s] += ways[(k - 1) * width + s - place];
    for (int64_t s = min; s <= max; s++) {
        all += ways[m * width + s];
        if ((double)(s - min) >= u - 1e-9) reach += ways[m * width + s];
    }
    free(ways);
    *p = reach / all;
    return CLOOB_OK;
}

static cloob_status exact(cloob_ctx *ctx, rank_sum *r, int64_t na, int64_t nb)
{
    int64_t m = na < nb ? na : nb, n = na < nb ? nb : na;
    double other = (double)na * (double)nb - r->U, both; /* U of b; its distribution is the same */
    CLOOB_TRY(upper_tail(ctx, &r->greater, m, n, r->U));
    CLOOB_TRY(upper_tail(ctx, &r->less, m, n, other));
    both = 2 * fmin(r->greater, r->less);
    r->two_sided = both > 1 ? 1 : both;
    return CLOOB_OK;
}

/* ---- normal -------------------------------------------------------------------------------------- */

/* P(U >= u) in the limit, half a step of continuity correction. */
static double normal_tail(double u, double mean, double deviation)
{
    if (deviation == 0) return 1; /* all values equal */
    return 0.5 * erfc((u - mean - 0.5) / deviation / sqrt(2));
}

static void normal(rank_sum *r, double na, double nb, double ties)
{
    double n = na + nb, mean = 0.5 * na * nb;
    double deviation = sqrt(fmax(0, na * nb / 12 * (n + 1 - ties / (n * (n - 1)))));
    r->greater = normal_tail(r->U, mean, deviation);
    r->less = normal_tail(na * nb - r->U, mean, deviation);
    double both = 2 * normal_tail(fmax(r->U, na * nb - r->U), mean, deviation);
    r->two_sided = both > 1 ? 1 : both;
}

/* ---- the test ------------------------------------------------------------------------------------ */

static cloob_status gather(cloob_ctx *ctx, value *v, const double *x, int64_t n, bool from_a)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "rank-sum test: value %lld is not a finite number", (long long)i);
        v[i] = (value){ x[i], from_a };
    }
    return CLOOB_OK;
}

static cloob_status test(cloob_ctx *ctx, rank_sum *out, value *v, const double *a, int64_t na, const double *b,
                         int64_t nb, rank_sum_method method)
{
    double ties;
    CLOOB_TRY(gather(ctx, v, a, na, true));
    CLOOB_TRY(gather(ctx, v + na, b, nb, false));
    out->U = rank_total(v, na + nb, &ties) - 0.5 * (double)na * (double)(na + 1);
    bool small = (na < nb ? na : nb) <= EXACT_SMALLER && (na < nb ? nb : na) <= EXACT_LARGER;
    if (method == RANK_SUM_EXACT && ties > 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "rank-sum test: there is no exact p-value with equal values");
    if (method == RANK_SUM_EXACT && !small)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "rank-sum test: exact only up to %d and %d values", EXACT_SMALLER,
                        EXACT_LARGER);
    out->exact = method == RANK_SUM_EXACT || (method == RANK_SUM_AUTO && small && ties == 0);
    if (out->exact) return exact(ctx, out, na, nb);
    normal(out, (double)na, (double)nb, ties);
    return CLOOB_OK;
}

cloob_status ranksum_test(cloob_ctx *ctx, rank_sum *out, const double *a, int64_t na, const double *b, int64_t nb,
                          rank_sum_method method)
{
    if (na < 1 || nb < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "rank-sum test: a sample is empty");
    value *v = malloc((size_t)(na + nb) * sizeof *v);
    if (!v) return ctx_no_memory(ctx, (size_t)(na + nb) * sizeof *v, "ranks");
    cloob_status status = test(ctx, out, v, a, na, b, nb, method);
    free(v);
    return status;
}
