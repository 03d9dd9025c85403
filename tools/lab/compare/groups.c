/* Values by metric and group, then means, intervals and tests. */
#include "lab/compare/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

/* ---- gathering ----------------------------------------------------------------------------------- */

int64_t groups_at(groups *g, const char *name)
{
    for (int64_t i = 0; i < g->count; i++)
        if (strcmp(g->name[i], name) == 0) return i;
    int64_t room = g->room;
    const char **names = arena_grow(g->memory, g->name, g->count, &room, 8, sizeof *names);
    int64_t *runs = arena_grow(g->memory, g->runs, g->count, &g->room, 8, sizeof *runs);
    if (!names || !runs || !(names[g->count] = arena_string(g->memory, name))) return -1;
    g->name = names, g->runs = runs;
    return g->count++;
}

static group_metric *metric_at(groups *g, const char *name)
{
    for (int64_t i = 0; i < g->metrics; i++)
        if (strcmp(g->metric[i].name, name) == 0) return &g->metric[i];
    group_metric *more = arena_grow(g->memory, g->metric, g->metrics, &g->metric_room, 8, sizeof *more);
    if (!more || !(more[g->metrics].name = arena_string(g->memory, name))) return NULL;
    g->metric = more;
    return &g->metric[g->metrics++];
}

static bool add_value(groups *g, int64_t group, const char *name, double x)
{
    group_metric *m = metric_at(g, name);
    while (m && group >= m->groups) { /* groups come up as runs are read */
        int64_t room = m->groups;
        group_values *of = arena_grow(g->memory, m->of, m->groups, &room, 8, sizeof *of);
        if (!of) return false;
        m->of = of, m->groups = room;
    }
    if (!m) return false;
    group_values *v = &m->of[group];
    double *value = arena_grow(g->memory, v->value, v->n, &v->room, 8, sizeof *value);
    if (!value) return false;
    v->value = value;
    v->value[v->n++] = x;
    return true;
}

/* Counts, times and seeds are none. */
static bool is_metric(const char *key)
{
    static const char *const no[] = { "epoch", "num_samples", "n", "bad", "seed", "steps", "seconds" };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcmp(key, no[i]) == 0) return false;
    return true;
}

static bool add_object(groups *g, int64_t group, const json *object, const char *prefix)
{
    bool ok = true;
    for (const json *j = object->child; j && ok; j = j->next) {
        sbuf name = { 0 };
        sbuf_printf(&name, "%s%s%s", prefix, *prefix ? "/" : "", j->key);
        if (name.failed) ok = false;
        else if (j->kind == JSON_OBJECT) ok = add_object(g, group, j, name.data);
        else if (j->kind == JSON_NULL || (j->kind == JSON_NUMBER && !isfinite(j->number))) g->skipped++;
        else if (j->kind == JSON_NUMBER && (g->all || is_metric(j->key)))
            ok = add_value(g, group, name.data, j->number);
        sbuf_release(&name);
    }
    return ok;
}

cloob_status groups_add(cloob_ctx *ctx, groups *g, const char *group, const json *object)
{
    int64_t at = groups_at(g, group);
    if (at < 0 || !add_object(g, at, object, "")) return ctx_no_memory(ctx, 4096, "metrics");
    g->runs[at]++;
    return CLOOB_OK;
}

group_values group_values_of(const group_metric *m, int64_t group)
{
    return group < m->groups ? m->of[group] : (group_values){ 0 };
}

/* ---- statistics ---------------------------------------------------------------------------------- */

void holm_correct(double *p, int64_t n)
{
    int64_t tests = 0;
    double last = 0;
    for (int64_t i = 0; i < n; i++) tests += !isnan(p[i]);
    for (int64_t rank = 0; rank < tests; rank++) { /* the smallest that is left; corrected ones are marked by +2 */
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the sorted values, as NumPy's percentile does. */
static double quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)floor(at), high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

cloob_status bootstrap_mean(cloob_ctx *ctx, const double *x, int64_t n, int64_t resamples, uint64_t seed, double level,
                            double *low, double *high)
{
    double *mean = malloc((size_t)resamples * sizeof *mean);
    if (!mean) return ctx_no_memory(ctx, (size_t)resamples * sizeof *mean, "resamples");
    uint64_t key = rng_key(seed, "bootstrap");
    for (int64_t r = 0; r < resamples; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[rng_below(key, (uint64_t)(r * n + i), (uint64_t)n)];
        mean[r] = sum / (double)n;
    }
    qsort(mean, (size_t)resamples, sizeof *mean, ascending);
    *low = quantile(mean, resamples, (1 - level) / 2);
    *high = quantile(mean, resamples, (1 + level) / 2);
    free(mean);
    return CLOOB_OK;
}

/* ---- the result ---------------------------------------------------------------------------------- */

group_mean group_mean_of(const group_values *v)
{
    group_mean g = { .n = v->n, .mean = v->n ? 0 : NAN };
    double square = 0;
    for (int64_t i = 0; i < v->n; i++) g.mean += v->value[i] / (double)v->n;
    for (int64_t i = 0; i < v->n; i++) square += (v->value[i] - g.mean) * (v->value[i] - g.mean);
    g.deviation = v->n > 1 ? sqrt(square / (double)(v->n - 1)) : 0;
    return g;
}

static cloob_status describe(cloob_ctx *ctx, const group_values *v, const compare_options *o, group_stats *out)
{
    group_mean g = group_mean_of(v);
    *out = (group_stats){ .n = v->n, .mean = g.mean, .deviation = g.deviation, .low = NAN, .high = NAN };
    if (v->n < 2) return CLOOB_OK;
    return bootstrap_mean(ctx, v->value, v->n, o->resamples, o->seed, 0.95, &out->low, &out->high);
}

static cloob_status test_pairs(cloob_ctx *ctx, const group_values *v, const compare_options *o, group_row *m,
                               double *holm, int64_t groups_count)
{
    int64_t n = 0;
    for (int64_t a = 0; a < groups_count; a++)
        for (int64_t b = a + 1; b < groups_count; b++, n++) {
            pair_test *t = &m->pair[n];
            rank_sum r;
            *t = (pair_test){ a, b, .p = NAN, .delta = NAN, .difference = NAN };
            if (v[a].n && v[b].n) {
                CLOOB_TRY(ranksum_test(ctx, &r, v[a].value, v[a].n, v[b].value, v[b].n, RANK_SUM_AUTO));
                t->p = r.two_sided;
                t->delta = cliffs_delta(v[a].value, v[a].n, v[b].value, v[b].n);
                t->difference = m->group[a].mean - m->group[b].mean;
            }
            holm[n] = t->p;
        }
    holm_correct(holm, n);
    for (int64_t i = 0; i < n; i++) {
        m->pair[i].p_holm = holm[i];
        m->pair[i].significant = holm[i] < o->alpha;
    }
    return CLOOB_OK;
}

cloob_status groups_finish(cloob_ctx *ctx, const groups *g, const compare_options *o, groups_result *out)
{
    int64_t n = g->count, pairs = n * (n - 1) / 2;
    size_t metrics = (size_t)g->metrics + 1;
    *out = (groups_result){
        .groups = n, .pairs = pairs, .metrics = g->metrics, .alpha = o->alpha, .name = g->name, .runs = g->runs
    };
    out->metric = arena_push(g->memory, metrics * sizeof *out->metric);
    double *holm = arena_push(g->memory, ((size_t)pairs + 1) * sizeof *holm);
    if (!out->metric || !holm) return ctx_no_memory(ctx, metrics * sizeof *out->metric, "a comparison");
    for (int64_t i = 0; i < g->metrics; i++) {
        group_row *m = &out->metric[i];
        *m = (group_row){ .metric = g->metric[i].name,
                          .group = arena_push(g->memory, (size_t)n * sizeof *m->group),
                          .pair = arena_push(g->memory, ((size_t)pairs + 1) * sizeof *m->pair) };
        group_values *v = arena_push(g->memory, (size_t)n * sizeof *v);
        if (!m->group || !m->pair || !v) return ctx_no_memory(ctx, (size_t)n * sizeof *v, "a comparison");
        for (int64_t k = 0; k < n; k++) {
            v[k] = group_values_of(&g->metric[i], k);
            CLOOB_TRY(describe(ctx, &v[k], o, &m->group[k]));
        }
        CLOOB_TRY(test_pairs(ctx, v, o, m, holm, n));
    }
    return CLOOB_OK;
}
