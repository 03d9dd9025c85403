/* Several runs side by side: what differs, by how much, and whether it is significant. Runs that differ in their
 * seed alone are one group. Then the tables that an ablation or a sweep left next to the page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/compare/groups.h"
#include "lab/memory.h"
#include "lab/report/page.h"

enum { LABEL = 160, MAX_GROUPS = 6 };

/* ---- groups -------------------------------------------------------------------------------------- */

static bool varies(const page *p, const char *key)
{
    for (int64_t i = 1; i < p->runs; i++)
        if (strcmp(run_param_get(&p->run[i], key), run_param_get(&p->run[0], key)) != 0)
            return !page_is_incidental(key);
    return false;
}

/* "clip", "lr 0.001, clip": the settings of a run that others have otherwise; "" where there are none. */
static void label_of(const page *p, int64_t run, char out[LABEL])
{
    const run_files *r = &p->run[run], *first = &p->run[0];
    size_t n = 0;
    out[0] = '\0';
    for (int64_t k = 0; k < first->params && n < LABEL - 1; k++) {
        const char *key = first->param[k].key;
        if (!varies(p, key)) continue;
        bool method = strcmp(key, "method") == 0;
        n += (size_t)snprintf(out + n, LABEL - n, "%s%s%s%s", n ? ", " : "", method ? "" : key, method ? "" : " ",
                              run_param_get(r, key));
    }
}

static void gather(page *p, groups *g)
{
    for (int64_t i = 0; i < p->runs; i++) {
        char label[LABEL];
        if (!p->run[i].results) continue;
        label_of(p, i, label);
        groups_add(g, label[0] ? label : "all runs", p->run[i].result[p->run[i].results - 1]);
    }
}

/* ---- the table ----------------------------------------------------------------------------------- */

/* The difference from the first group, with the corrected p-value where there are runs enough for a test. */
static void add_difference(grid *t, const groups_result *g, const pair_test *test, int64_t group)
{
    char p[64] = "";
    if (!isfinite(test->difference)) {
        grid_text(t, "");
        return;
    }
    if (g->runs[0] > 1 && g->runs[group] > 1 && isfinite(test->p_holm))
        snprintf(p, sizeof p, " (p %.2g%s)", test->p_holm, test->significant ? ", significant" : "");
    grid_printf(t, "%s%s%s", test->difference > 0 ? "−" : "+", NUMBER(fabs(test->difference)), p);
    grid_bold(t, test->significant && *p);
}

static grid group_table(const groups_result *g)
{
    grid t = { .columns = 2 * g->groups };
    grid_text(&t, "last validation");
    for (int64_t k = 0; k < g->groups; k++) {
        grid_printf(&t, "%s, %lld run%s", g->name[k], (long long)g->runs[k], g->runs[k] == 1 ? "" : "s");
        if (k) grid_printf(&t, "minus %s", g->name[0]);
    }
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++) {
        grid_text(&t, m->metric);
        for (int64_t k = 0; k < g->groups; k++) {
            const group_stats *v = &m->group[k];
            int d = mean_decimals(v->deviation, v->mean); /* as every table of means rounds */
            if (v->n > 1) grid_printf(&t, "%.*f ± %.*f", d, v->mean, d, v->deviation);
            else grid_number(&t, v->mean);
            if (k) add_difference(&t, g, groups_pair(g, m, 0, k), k);
        }
    }
    return t;
}

static grid difference_table(const groups_result *g)
{
    grid t = { .columns = 10 };
    grid_texts(&t, "metric", "group", "runs", "mean", "deviation", "difference", "p", "p_holm", "cliffs_delta",
               "against");
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++)
        for (int64_t k = 0; k < g->groups; k++) {
            const pair_test none = { .difference = NAN, .p = NAN, .p_holm = NAN, .delta = NAN },
                            *test = k ? groups_pair(g, m, 0, k) : &none;
            grid_texts(&t, m->metric, g->name[k]);
            grid_number(&t, (double)m->group[k].n);
            grid_number(&t, m->group[k].mean), grid_number(&t, m->group[k].deviation);
            grid_number(&t, -test->difference), grid_number(&t, test->p), grid_number(&t, test->p_holm);
            grid_number(&t, -test->delta);
            grid_text(&t, k ? g->name[0] : "");
        }
    return t;
}

static void put_groups(page *p, const groups_result *g)
{
    grid shown = group_table(g), all = difference_table(g);
    bool tested = false;
    for (int64_t k = 1; k < g->groups; k++) tested |= g->runs[0] > 1 && g->runs[k] > 1;
    page_heading(p, "compare", "Side by side",
                 tested
                     ? "Mean and standard deviation over runs that differ in their seed alone, and the difference "
                       "from the first column. p is that of the rank-sum test, corrected over all pairs (Holm); below "
                       "0.05 a difference is significant."
                 : g->groups == 1
                     ? "Mean and standard deviation over runs that differ in their seed alone."
                     : "The difference from the first column. One run per side does not show how much of it is "
                       "chance: train several seeds of each.");
    export_grid(&p->files, "differences", &all);
    grid_release(&all);
    page_grid(p, &shown);
}

void page_compare(page *p)
{
    groups g = { .memory = p->memory };
    groups_result found = { 0 };
    compare_options o;
    if (p->runs < 2 || p->ablation) return; /* an ablation has its own table */
    compare_options_init(&o);
    gather(p, &g);
    if (g.count < 1 || g.count > MAX_GROUPS) return;
    if (groups_finish(p->ctx, &g, &o, &found) == CLOOB_OK && found.metrics) put_groups(p, &found);
}

/* ---- the table of an ablation, from ablation.json next to the page ----------------------------------- */

static void add_ablation_row(grid *g, const json *metric)
{
    bool winner = false;
    const char *best = json_text(metric, "best"), *better = json_text(metric, "better");
    json_bool(json_get(metric, "significant"), &winner);
    grid_printf(g, "%s%s", metric->key,
                !better || strcmp(better, "none") == 0 ? ""
                : strcmp(better, "low") == 0           ? " ↓"
                                                       : " ↑");
    for (const json *m = json_first(json_get(metric, "methods")); m; m = m->next) {
        grid_text(g, json_text(m, "text"));
        grid_bold(g, winner && best && strcmp(best, m->key) == 0);
    }
    grid_number(g, json_get_number(metric, "p"));
}

void page_ablation(page *p)
{
    const json *metrics = json_get(p->ablation, "metrics"), *first = metrics ? metrics->child : NULL;
    const json *methods = first ? json_get(first, "methods") : NULL;
    if (!methods || metrics->kind != JSON_OBJECT || methods->kind != JSON_OBJECT) return;
    page_heading(p, "ablation", "Ablation",
                 "Mean ± standard deviation over the seeds. Bold: better than each of the other methods by the "
                 "two-sided Wilcoxon rank-sum test; p is the largest of those p-values. Without an arrow methods are "
                 "not comparable by the number.");
    grid g = { .columns = methods->count + 2 };
    grid_text(&g, "");
    for (const json *m = methods->child; m; m = m->next) grid_text(&g, m->key);
    grid_text(&g, "p");
    for (const json *m = first; m; m = m->next) add_ablation_row(&g, m);
    page_grid(p, &g);
}

/* ---- what a sweep's search found: the response to each setting, and how much each matters ----------- */

/* The values of an axis as categories. */
static const char **names_of(page *p, const json *values, int64_t n)
{
    const char **name = must(arena_push(p->memory, (size_t)(n + 1) * sizeof *name));
    int64_t i = 0;
    for (const json *v = values->child; v; v = v->next) {
        name[i] = json_string(json_get(v, "value"));
        if (!name[i++]) return NULL;
    }
    return name;
}

/* One line per group: the mean over the settings with this value, the band from the worst to the best of them. */
static void add_group(page *p, chart *c, const json *values, const char *group, int color)
{
    chart_series *s = chart_add(p->memory, c, *group ? group : "all", color, c->categories);
    int64_t i = 0;
    for (const json *v = values->child; v; v = v->next, i++) {
        const json *g = json_get(json_get(v, "groups"), group);
        double mean = json_get_number(g, "mean");
        if (!isfinite(mean)) continue;
        chart_band_point(p->memory, c, s, c->categories, (double)i, mean, json_get_number(g, "lowest"),
                         json_get_number(g, "highest"));
    }
}

static void response(page *p, const json *axis, const char *select)
{
    char title[200];
    const char *name = json_string(json_get(axis, "name"));
    const json *values = json_get(axis, "values");
    int64_t n = json_count(values);
    const char **category = name && n > 1 ? names_of(p, values, n) : NULL;
    const json *by = category ? json_get(values->child, "groups") : NULL;
    if (!by) return;
    snprintf(title, sizeof title, "Response to %.100s", name);
    chart c = { .title = title,
                .x_label = name,
                .y_label = select,
                .note = "Mean over the settings with this value, which differ in all others; the band goes from the "
                        "worst of them to the best.",
                .category = category,
                .categories = n };
    int color = 0;
    for (const json *g = by->child; g; g = g->next) add_group(p, &c, values, g->key, color++);
    page_chart(p, &c);
}

static void importances(page *p, const json *axes)
{
    int64_t n = json_count(axes), i = 0;
    const char **name = must(arena_push(p->memory, (size_t)(n + 1) * sizeof *name));
    chart c = { .title = "Importance of the settings",
                .x_label = "",
                .y_label = "share of the variance, %",
                .note = "The share of the scores' variance that lies between the values of one setting.",
                .bars = true,
                .category = name,
                .categories = n };
    chart_series *s = chart_add(p->memory, &c, "all", 0, n);
    for (const json *a = axes->child; a; a = a->next, i++) {
        name[i] = json_string(json_get(a, "name"));
        if (!name[i]) return;
        chart_point(&c, s, (double)i, 100 * json_get_number(a, "importance"));
    }
    page_chart(p, &c);
}

void page_search(page *p)
{
    const json *axes = json_get(p->search, "axes");
    const char *select = json_string(json_get(p->search, "select"));
    if (!axes || axes->kind != JSON_ARRAY || !axes->child || !select) return;
    page_heading(
        p, "search", "Settings tried",
        "Every setting was trained and compared on validation data; the best of each group was trained again.");
    sbuf_puts(&p->html, "<div class=\"charts\">\n");
    for (const json *a = axes->child; a; a = a->next) response(p, a, select);
    importances(p, axes);
    sbuf_puts(&p->html, "</div>\n");
}
