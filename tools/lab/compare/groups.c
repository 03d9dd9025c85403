/* Values by metric and group, then means, intervals, tests and winners. */
#include "core/arith.h"
#include "lab/compare/groups.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "core/text.h"
#include "lab/memory.h"

/* ---- gathering ----------------------------------------------------------------------------------- */

int64_t groups_at(groups *g, const char *name)
{
    for (int64_t i = 0; i < g->count; i++)
        if (strcmp(g->name[i], name) == 0) return i;
    int64_t room = g->room;
    g->name = must(arena_grow(g->memory, g->name, g->count, &room, 8, sizeof *g->name));
    g->runs = must(arena_grow(g->memory, g->runs, g->count, &g->room, 8, sizeof *g->runs));
    g->name[g->count] = must(arena_string(g->memory, name));
    return g->count++;
}

static group_metric *metric_at(groups *g, const char *name)
{
    for (int64_t i = 0; i < g->metrics; i++)
        if (strcmp(g->metric[i].name, name) == 0) return &g->metric[i];
    g->metric = must(arena_grow(g->memory, g->metric, g->metrics, &g->metric_room, 8, sizeof *g->metric));
    g->metric[g->metrics].name = must(arena_string(g->memory, name));
    return &g->metric[g->metrics++];
}

void group_values_add(arena *memory, group_values *v, double x)
{
    v->value = must(arena_grow(memory, v->value, v->n, &v->room, 8, sizeof *v->value));
    v->value[v->n++] = x;
}

static void add_value(groups *g, int64_t group, const char *name, double x)
{
    group_metric *m = metric_at(g, name);
    while (group >= m->groups) { /* groups are added as runs are read */
        int64_t room = m->groups;
        m->of = must(arena_grow(g->memory, m->of, m->groups, &room, 8, sizeof *m->of));
        m->groups = room;
    }
    group_values_add(g->memory, &m->of[group], x);
}

/* Counts, times and seeds are not metrics. */
static bool is_metric(const char *key) { return !text_has_word("epoch num_samples n bad seed steps seconds", key); }

static void add_object(groups *g, int64_t group, const json *object, const char *prefix)
{
    for (const json *j = object->child; j; j = j->next) {
        sbuf name = { 0 };
        sbuf_printf(&name, "%s%s%s", prefix, *prefix ? "/" : "", j->key);
        if (j->kind == JSON_OBJECT) add_object(g, group, j, must(name.data));
        else if (j->kind == JSON_NULL || (j->kind == JSON_NUMBER && !isfinite(j->number))) g->skipped++;
        else if (j->kind == JSON_NUMBER && (g->all || is_metric(j->key)))
            add_value(g, group, must(name.data), j->number);
        sbuf_release(&name);
    }
}

void groups_add(groups *g, const char *group, const json *object)
{
    int64_t at = groups_at(g, group);
    add_object(g, at, object, "");
    g->runs[at]++;
}

/* ---- the rank-sum test: ranks, the exact distribution of U, and its normal limit ------------------- */

enum { EXACT_SMALLER = 8, EXACT_LARGER = 2000 };

typedef struct ranked {
    double x;
    bool from_a;
} ranked;

static int by_size(const void *p, const void *q)
{
    double x = ((const ranked *)p)->x, y = ((const ranked *)q)->x;
    return (x > y) - (x < y);
}

/* Sum of a's ranks (equal values share the mean of their ranks), and sum of t^3 - t over groups of t equal
 * ones. */
static double rank_total(ranked *v, int64_t n, double *ties)
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

/* P(U >= u) for samples of m <= 8 and n values without ties: of all ways to choose m of the places 0..m+n-1,
 * those whose sum reaches u + m(m-1)/2. ways[k][s]: k places with sum s, counted place by place; only
 * additions, so doubles keep their digits. */
static double upper_tail(int64_t m, int64_t n, double u)
{
    int64_t min = m * (m - 1) / 2, max = min + m * n, width = max + 1;
    double *ways = must(calloc((size_t)((m + 1) * width), sizeof *ways)), all = 0, reach = 0;
    ways[0] = 1;
    for (int64_t place = 0; place < m + n; place++)
        for (int64_t k = m; k > 0; k--)
            for (int64_t s = max; s >= place; s--) ways[k * width + s] += ways[(k - 1) * width + s - place];
    for (int64_t s = min; s <= max; s++) {
        all += ways[m * width + s];
        if ((double)(s - min) >= u - 1e-9) reach += ways[m * width + s];
    }
    free(ways);
    return reach / all;
}

static void exact(rank_sum *r, int64_t na, int64_t nb)
{
    int64_t m = na < nb ? na : nb, n = na < nb ? nb : na;
    r->greater = upper_tail(m, n, r->U);
    r->less = upper_tail(m, n, (double)na * (double)nb - r->U); /* U of b; its distribution is the same */
    r->two_sided = fmin(1, 2 * fmin(r->greater, r->less));
}

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
    r->two_sided = fmin(1, 2 * normal_tail(fmax(r->U, na * nb - r->U), mean, deviation));
}

rank_sum ranksum_test(const double *a, int64_t na, const double *b, int64_t nb, bool always_normal)
{
    rank_sum r;
    double ties;
    ranked *v = must(malloc((size_t)(na + nb) * sizeof *v));
    assert(na > 0 && nb > 0);
    for (int64_t i = 0; i < na + nb; i++) v[i] = (ranked){ i < na ? a[i] : b[i - na], i < na };
    r.U = rank_total(v, na + nb, &ties) - 0.5 * (double)na * (double)(na + 1);
    free(v);
    bool small = (na < nb ? na : nb) <= EXACT_SMALLER && (na < nb ? nb : na) <= EXACT_LARGER;
    r.exact = small && ties == 0 && !always_normal;
    if (r.exact) exact(&r, na, nb);
    else normal(&r, (double)na, (double)nb, ties);
    return r;
}

/* ---- corrections and intervals --------------------------------------------------------------------- */

void holm_correct(double *p, int64_t n)
{
    int64_t tests = 0;
    double last = 0;
    for (int64_t i = 0; i < n; i++) tests += !isnan(p[i]);
    for (int64_t rank = 0; rank < tests; rank++) { /* the smallest uncorrected one; corrected ones are marked by +2 */
        int64_t smallest = -1;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(p[i]) && p[i] < 2 && (smallest < 0 || p[i] < p[smallest])) smallest = i;
        double corrected = fmin(1, (double)(tests - rank) * p[smallest]);
        last = fmax(last, corrected);
        p[smallest] = last + 2;
    }
    for (int64_t i = 0; i < n; i++)
        if (!isnan(p[i])) p[i] -= 2;
}

double cliffs_delta(const double *a, int64_t na, const double *b, int64_t nb)
{
    int64_t more = 0;
    for (int64_t i = 0; i < na; i++)
        for (int64_t k = 0; k < nb; k++) more += (a[i] > b[k]) - (a[i] < b[k]);
    return na && nb ? (double)more / (double)(na * nb) : NAN;
}

/* Between the sorted values, as NumPy's percentile does. */
static double quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)floor(at), high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

void bootstrap_mean(const double *x, int64_t n, int64_t resamples, uint64_t seed, double level, double *low,
                    double *high)
{
    double *mean = must(malloc((size_t)resamples * sizeof *mean));
    uint64_t key = rng_key(seed, "bootstrap");
    for (int64_t r = 0; r < resamples; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[rng_below(key, (uint64_t)(r * n + i), (uint64_t)n)];
        mean[r] = sum / (double)n;
    }
    qsort(mean, (size_t)resamples, sizeof *mean, order_double);
    *low = quantile(mean, resamples, (1 - level) / 2);
    *high = quantile(mean, resamples, (1 + level) / 2);
    free(mean);
}

/* ---- the result ---------------------------------------------------------------------------------- */

/* Losses of different objectives are different quantities; only InfoNCE is taken of all methods. Mean
 * similarities describe. */
group_aim group_aim_of(const char *name)
{
    if (strcmp(name, "val_loss") == 0 || strcmp(name, "train_loss") == 0) return AIM_NONE;
    if (strstr(name, "similarity")) return AIM_NONE;
    if (strstr(name, "loss") || strstr(name, "rank") || strstr(name, "ajne")) return AIM_LOW;
    return AIM_HIGH;
}

group_stats group_describe(const group_values *v)
{
    group_stats g = { .n = v->n, .value = v->value, .mean = v->n ? 0 : NAN, .low = NAN, .high = NAN };
    double square = 0;
    for (int64_t i = 0; i < v->n; i++) g.mean += v->value[i] / (double)v->n;
    for (int64_t i = 0; i < v->n; i++) square += (v->value[i] - g.mean) * (v->value[i] - g.mean);
    if (v->n > 1) g.deviation = sqrt(square / (double)(v->n - 1));
    return g;
}

static void test_pairs(const compare_options *o, group_row *m, double *holm, int64_t groups_count)
{
    int64_t n = 0;
    for (int64_t a = 0; a < groups_count; a++)
        for (int64_t b = a + 1; b < groups_count; b++, n++) {
            const group_stats *x = &m->group[a], *y = &m->group[b];
            pair_test *t = &m->pair[n];
            *t = (pair_test){ a, b, .p = NAN, .delta = NAN, .difference = NAN };
            if (x->n && y->n) {
                t->test = ranksum_test(x->value, x->n, y->value, y->n, false);
                t->p = t->test.two_sided;
                t->delta = cliffs_delta(x->value, x->n, y->value, y->n);
                t->difference = x->mean - y->mean;
            }
            holm[n] = t->p;
        }
    holm_correct(holm, n);
    for (int64_t i = 0; i < n; i++) {
        m->pair[i].p_holm = holm[i];
        m->pair[i].significant = holm[i] < o->alpha;
    }
}

const pair_test *groups_pair(const groups_result *g, const group_row *m, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < g->pairs; i++)
        if ((m->pair[i].a == a && m->pair[i].b == b) || (m->pair[i].a == b && m->pair[i].b == a)) return &m->pair[i];
    return NULL;
}

static void find_best(const groups_result *g, group_row *m)
{
    double sign = m->aim == AIM_LOW ? -1 : 1;
    m->best = -1, m->p_best = NAN;
    for (int64_t k = 0; k < g->groups && m->aim != AIM_NONE; k++)
        if (m->group[k].n && (m->best < 0 || sign * m->group[k].mean > sign * m->group[m->best].mean)) m->best = k;
    for (int64_t k = 0; m->best >= 0 && k < g->groups; k++)
        if (k != m->best) m->p_best = fmax(m->p_best, groups_pair(g, m, m->best, k)->p); /* fmax ignores NaN */
    m->won = m->p_best < g->alpha;
}

void groups_finish(const groups *g, const compare_options *o, groups_result *out)
{
    int64_t n = g->count, pairs = n * (n - 1) / 2;
    size_t metrics = (size_t)g->metrics + 1;
    *out = (groups_result){ .groups = n,
                            .pairs = pairs,
                            .metrics = g->metrics,
                            .skipped = g->skipped,
                            .alpha = o->alpha,
                            .name = g->name,
                            .runs = g->runs };
    out->metric = must(arena_push(g->memory, metrics * sizeof *out->metric));
    double *holm = must(arena_push(g->memory, ((size_t)pairs + 1) * sizeof *holm));
    for (int64_t i = 0; i < g->metrics; i++) {
        const group_metric *from = &g->metric[i];
        group_row *m = &out->metric[i];
        *m = (group_row){ .metric = from->name,
                          .aim = group_aim_of(from->name),
                          .group = must(arena_push(g->memory, (size_t)n * sizeof *m->group)),
                          .pair = must(arena_push(g->memory, ((size_t)pairs + 1) * sizeof *m->pair)) };
        for (int64_t k = 0; k < n; k++) {
            group_stats *v = &m->group[k];
            *v = group_describe(k < from->groups ? &from->of[k] : &(group_values){ 0 });
            if (v->n < 2 || !o->resamples) continue;
            bootstrap_mean(v->value, v->n, o->resamples, o->seed, 0.95, &v->low, &v->high);
        }
        test_pairs(o, m, holm, n);
        find_best(out, m);
    }
}
