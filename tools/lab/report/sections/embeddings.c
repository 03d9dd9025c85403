/* The paper's analysis of the embeddings: spectra, uniformity, similarities. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/compare/groups.h"
#include "lab/memory.h"
#include "lab/report/page.h"

enum { SHOWN_EPOCHS = 6, SHOWN_RUNS = 8 };

/* ---- spectra ------------------------------------------------------------------------------------- */

/* NULL: the analysis has no such column. */
static chart_series *add_spectrum(page *p, chart *c, const run_analysis *it, const char *column, const char *name,
                                  int color)
{
    const table *t = &it->eigenvalues;
    int64_t x = table_find(t, "index"), y = table_find(t, column);
    chart_series *s = x < 0 || y < 0 ? NULL : chart_add(p->memory, c, name, color, t->rows);
    for (int64_t i = 0; s && i < t->rows; i++) /* few rows leave zeros, which rounding scatters around 1e-17 */
        if (table_at(t, i, y) > 1e-12) chart_point(c, s, table_at(t, i, x), table_at(t, i, y));
    return s;
}

/* `shown` epochs of a run, the first and the last among them; the names begin with `prefix`. */
static void add_epochs(page *p, chart *c, const run_files *r, int64_t shown, const char *column, const char *prefix)
{
    if (shown > r->analyses) shown = r->analyses;
    for (int64_t i = 0; i < shown; i++) {
        const run_analysis *it = &r->analysis[shown > 1 ? i * (r->analyses - 1) / (shown - 1) : 0];
        char name[80];
        snprintf(name, sizeof name, "%.40sepoch %lld", prefix, (long long)it->epoch);
        add_spectrum(p, c, it, column, name, (int)c->count);
    }
}

/* One run: some of its epochs. Several: the last epoch of each. */
static void spectrum_chart(page *p, const char *title, const char *column)
{
    chart c = { .title = title, .x_label = "rank", .y_label = "eigenvalue", .log_y = true };
    if (p->runs == 1) add_epochs(p, &c, &p->run[0], SHOWN_EPOCHS, column, "");
    else c.note = "Each run at its last epoch.";
    for (int64_t i = 0; p->runs > 1 && i < p->runs; i++) {
        const run_files *r = &p->run[i];
        chart_series *s =
            r->analyses ? add_spectrum(p, &c, &r->analysis[r->analyses - 1], column, r->name, page_color(p, i)) : NULL;
        if (s) page_join(p, i, s);
    }
    page_chart(p, &c);
}

/* Several methods: the first run of each, at its first and last epoch and, where there is room, epochs between. */
static void spectra_by_method(page *p, const char *title, const char *column)
{
    enum { METHODS = 4, LINES = 8 };
    int64_t run[METHODS], methods = 0;
    chart c = { .title = title, .x_label = "rank", .y_label = "eigenvalue", .log_y = true };
    c.note = "The first run of each method.";
    for (int64_t i = 0; i < p->runs && methods < METHODS; i++) {
        bool repeated = p->run[i].analyses < 2;
        for (int64_t k = 0; k < methods; k++) repeated |= strcmp(p->run[run[k]].method, p->run[i].method) == 0;
        if (!repeated) run[methods++] = i;
    }
    if (methods < 2) return;
    for (int64_t m = 0; m < methods; m++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "%.36s, ", p->run[run[m]].method);
        add_epochs(p, &c, &p->run[run[m]], LINES / methods, column, prefix);
    }
    page_chart(p, &c);
}

/* ---- similarities -------------------------------------------------------------------------------- */

static double sum_of(const table *t, int64_t column)
{
    double sum = 0;
    for (int64_t i = 0; i < t->rows; i++) sum += table_at(t, i, column);
    return sum;
}

/* Bins outside what any of the shown sets reaches are left out, one on each side kept. */
static void shown_bins(const table *t, const char *const *column, int columns, int64_t *from, int64_t *to)
{
    *from = t->rows, *to = -1;
    for (int k = 0; k < columns; k++) {
        int64_t c = table_find(t, column[k]);
        for (int64_t i = 0; c >= 0 && i < t->rows; i++) {
            if (table_at(t, i, c) <= 0) continue;
            if (i < *from) *from = i;
            if (i > *to) *to = i;
        }
    }
    if (*from > 0) --*from;
    if (*to < t->rows - 1) ++*to;
}

static void histogram(page *p, const run_files *r, const run_analysis *it)
{
    static const char *const column[] = { "matched", "top10_unmatched", "top1000_unmatched" };
    static const int color[] = { 2, 1, 0 };
    const table *t = &it->similarities;
    int64_t low = table_find(t, "from"), high = table_find(t, "to"), first, last;
    char title[200];
    if (low < 0 || high < 0) return;
    if (p->runs > 1) snprintf(title, sizeof title, "Similarities, %.120s, epoch %lld", r->name, (long long)it->epoch);
    else snprintf(title, sizeof title, "Similarities after epoch %lld", (long long)it->epoch);
    chart c = { .title = title, .x_label = "cosine similarity", .y_label = "share of pairs per bin, %", .fill = true };
    shown_bins(t, column, 3, &first, &last);
    double matched = table_find(t, column[0]) < 0 ? 0 : sum_of(t, table_find(t, column[0]));
    for (int k = 0; k < 3; k++) {
        int64_t y = table_find(t, column[k]);
        double sum = y < 0 ? 0 : sum_of(t, y);
        char label[64] = "matched"; /* a set of N pairs has N - 1 unmatched texts at most: what was counted */
        if (k) snprintf(label, sizeof label, "top-%.0f unmatched", round(sum / fmax(1, matched)));
        chart_series *s = sum > 0 ? chart_add(p->memory, &c, label, color[k], t->rows) : NULL;
        for (int64_t i = first; s && i <= last; i++)
            chart_point(&c, s, (table_at(t, i, low) + table_at(t, i, high)) / 2, 100 * table_at(t, i, y) / sum);
    }
    page_chart(p, &c);
}

static void histograms(page *p)
{
    const run_files *r = &p->run[0];
    if (p->runs == 1) {
        if (r->analyses > 1) histogram(p, r, &r->analysis[0]);
        if (r->analyses) histogram(p, r, &r->analysis[r->analyses - 1]);
        return;
    }
    int64_t shown = 0;
    for (int64_t i = 0; i < p->runs && shown < SHOWN_RUNS; i++) {
        bool repeated = page_first_repeat(p, i) != i; /* with many runs, the first of each method represents it */
        for (int64_t k = 0; p->runs > SHOWN_RUNS && k < i; k++)
            repeated |= strcmp(p->run[k].method, p->run[i].method) == 0;
        if (repeated || !p->run[i].analyses) continue;
        histogram(p, &p->run[i], &p->run[i].analysis[p->run[i].analyses - 1]);
        shown++;
    }
}

/* ---- the paper's bars ------------------------------------------------------------------------------ */

/* How effective eigenvalues change with training, and Ajne's statistic at two epochs: a group for every method, the
 * mean over seeds with one standard deviation. */

enum { MAX_GROUPS = 12 };

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

static group_stats spread_of(const page *p, int64_t group, const char *key, shown what)
{
    group_values all = { 0 };
    double value;
    for (int64_t i = 0; i < p->runs; i++)
        if (page_first_repeat(p, i) == group && value_of(&p->run[i], key, what, &value))
            group_values_add(p->memory, &all, value);
    return group_describe(&all);
}

static void add_bars(page *p, chart *c, const char *name, int color, const int64_t *group, const char *key, shown what)
{
    chart_series *s = chart_add(p->memory, c, name, color, c->categories);
    for (int64_t g = 0; g < c->categories; g++) {
        group_stats at = spread_of(p, group[g], key, what);
        if (at.n)
            chart_band_point(p->memory, c, s, c->categories, (double)g, at.mean, at.mean - at.deviation,
                             at.mean + at.deviation);
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

static void ajne_bars(page *p, const int64_t *group, const char *const *name, int64_t count, const char *key,
                      const char *title)
{
    double value, from = 0, to = 0;
    char first[40], last[40];
    chart c = { .title = title,
                .x_label = "",
                .y_label = "Ajne's statistic",
                .bars = true,
                .category = name,
                .categories = count };
    for (int64_t i = 0; i < p->runs && from == to; i++)
        if (number_of(&p->run[i], key, false, &value, &from)) number_of(&p->run[i], key, true, &value, &to);
    if (from == to) return;
    snprintf(first, sizeof first, "epoch %.0f", from);
    snprintf(last, sizeof last, "epoch %.0f", to);
    add_bars(p, &c, first, 7, group, key, FIRST);
    add_bars(p, &c, last, 0, group, key, LAST);
    page_chart(p, &c);
}

static void put_bars(page *p)
{
    int64_t group[MAX_GROUPS];
    const char **name = must(arena_push(p->memory, MAX_GROUPS * sizeof *name));
    int64_t count = find_groups(p, group, name);
    chart c = { .title = "Effective eigenvalues, relative change",
                .x_label = "",
                .y_label = "change from the first epoch to the last, %",
                .bars = true,
                .category = name,
                .categories = count };
    add_bars(p, &c, "images", 0, group, "image_effective_eigenvalues", CHANGE);
    add_bars(p, &c, "texts", 1, group, "text_effective_eigenvalues", CHANGE);
    page_chart(p, &c);
    ajne_bars(p, group, name, count, "image_ajne", "Uniformity at two epochs, images");
    ajne_bars(p, group, name, count, "text_ajne", "Uniformity at two epochs, texts");
}

/* ---- the section --------------------------------------------------------------------------------- */

void page_embeddings(page *p)
{
    static const char *const ajne[] = { "image_ajne", "text_ajne" };
    static const char *const count[] = { "image_effective_eigenvalues", "text_effective_eigenvalues" };
    static const char *const label[] = { "images", "texts" };
    double value;
    bool any = false;
    for (int64_t i = 0; i < p->runs; i++) any |= p->run[i].analyses > 0 || run_last_result(&p->run[i], ajne[0], &value);
    if (!any) return;
    page_heading(p, "embeddings", "Embeddings",
                 "Effective eigenvalues: how many of the largest eigenvalues of the covariance make up 99 % of "
                 "the variance. Ajne's statistic is "
                 "small when embeddings cover the sphere evenly. Unmatched: each image's nearest foreign texts.");
    sbuf_puts(&p->html, "<div class=\"charts\">\n");
    spectrum_chart(p, "Spectrum, images", "x");
    spectrum_chart(p, "Spectrum, texts", "y");
    spectra_by_method(p, "Spectra by method and epoch, images", "x");
    spectra_by_method(p, "Spectra by method and epoch, texts", "y");
    page_result_charts(p, "Effective eigenvalues", "number", count, label, 2);
    page_result_charts(p, "Uniformity", "Ajne's statistic", ajne, label, 2);
    put_bars(p);
    histograms(p);
    sbuf_puts(&p->html, "</div>\n");
}
