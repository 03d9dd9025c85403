/* The paper's bars: how effective eigenvalues change with training, and Ajne's statistic at two epochs, a group for
 * every method, the mean over seeds with one standard deviation. */
#include <math.h>
#include <stdio.h>

#include "lab/report/page.h"

enum { MAX_GROUPS = 12 };

typedef struct spread { /* of the runs of one group */
    int64_t n;
    double mean, deviation;
} spread;

/* A number of a run's first (or last) validation that has it. */
static bool number_of(const run_files *r, const char *key, bool last, double *value, double *epoch)
{
    for (int64_t i = 0; i < r->results; i++) {
        const json *object = r->result[last ? r->results - 1 - i : i];
        const json *v = json_get(object, key), *e = json_get(object, "epoch");
        if (!v || v->kind != JSON_NUMBER) continue;
        *value = v->number;
        *epoch = e && e->kind == JSON_NUMBER ? e->number : (double)(last ? r->results - i : i + 1);
        return true;
    }
    return false;
}

/* What a bar shows of one run: the number at one end, or its relative change from the first to the last, in %. */
typedef enum shown { FIRST, LAST, CHANGE } shown;

static bool value_of(const run_files *r, const char *key, shown what, double *value)
{
    double first, last, from, to;
    if (!number_of(r, key, false, &first, &from) || !number_of(r, key, true, &last, &to)) return false;
    if (what == CHANGE && (from == to || first == 0)) return false;
    *value = what == FIRST ? first : what == LAST ? last : 100 * (last - first) / first;
    return isfinite(*value);
}

static spread spread_of(const page *p, int64_t group, const char *key, shown what)
{
    spread s = { 0 };
    double value, squares = 0;
    for (int64_t i = 0; i < p->runs; i++)
        if (page_first_repeat(p, i) == group && value_of(&p->run[i], key, what, &value)) s.mean += value, s.n++;
    if (!s.n) return s;
    s.mean /= (double)s.n;
    for (int64_t i = 0; i < p->runs; i++)
        if (page_first_repeat(p, i) == group && value_of(&p->run[i], key, what, &value))
            squares += (value - s.mean) * (value - s.mean);
    s.deviation = s.n > 1 ? sqrt(squares / (double)(s.n - 1)) : 0;
    return s;
}

static void add_bars(page *p, chart *c, const char *name, int color, const int64_t *group, const char *key, shown what)
{
    chart_series *s = page_series(p, c, name, color, c->categories);
    for (int64_t g = 0; s && g < c->categories; g++) {
        spread at = spread_of(p, group[g], key, what);
        if (at.n)
            chart_band_point(p->memory, c, s, c->categories, (double)g, at.mean, at.mean - at.deviation,
                             at.mean + at.deviation);
        if (at.n && (!s->low || !s->high)) p->failed = true;
    }
}

/* The groups of runs, by the first run of each. */
static int64_t find_groups(const page *p, int64_t *group, const char **name)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->runs && n < MAX_GROUPS; i++)
        if (page_first_repeat(p, i) == i) group[n] = i, name[n++] = page_group_name(p, i);
    return n;
}

static void ajne_bars(page *p, const int64_t *group, const char *const *name, int64_t groups, const char *key,
                      const char *title)
{
    double value, from = 0, to = 0;
    char first[40], last[40];
    chart c = { .title = title,
                .x_label = "",
                .y_label = "Ajne's statistic",
                .bars = true,
                .category = name,
                .categories = groups };
    for (int64_t i = 0; i < p->runs && from == to; i++)
        if (number_of(&p->run[i], key, false, &value, &from)) number_of(&p->run[i], key, true, &value, &to);
    if (from == to) return;
    snprintf(first, sizeof first, "epoch %.0f", from);
    snprintf(last, sizeof last, "epoch %.0f", to);
    add_bars(p, &c, first, 7, group, key, FIRST);
    add_bars(p, &c, last, 0, group, key, LAST);
    page_chart(p, &c);
}

void page_bars(page *p)
{
    int64_t group[MAX_GROUPS];
    const char **name = arena_push(p->memory, MAX_GROUPS * sizeof *name);
    if (!name) {
        p->failed = true;
        return;
    }
    int64_t groups = find_groups(p, group, name);
    chart c = { .title = "Effective eigenvalues, relative change",
                .x_label = "",
                .y_label = "change from the first epoch to the last, %",
                .bars = true,
                .category = name,
                .categories = groups };
    add_bars(p, &c, "images", 0, group, "image_effective_eigenvalues", CHANGE);
    add_bars(p, &c, "texts", 1, group, "text_effective_eigenvalues", CHANGE);
    page_chart(p, &c);
    ajne_bars(p, group, name, groups, "image_ajne", "Uniformity at two epochs, images");
    ajne_bars(p, group, name, groups, "text_ajne", "Uniformity at two epochs, texts");
}
