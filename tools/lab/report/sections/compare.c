/* Several runs side by side: what differs, by how much, and whether it is significant. Runs that differ in their
 * seed alone are one group. Then the tables that an ablation or a sweep left next to the page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/compare/groups.h"
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

static cloob_status gather(page *p, groups *g)
{
    for (int64_t i = 0; i < p->runs; i++) {
        char label[LABEL];
        if (!p->run[i].results) continue;
        label_of(p, i, label);
        const char *name = label[0] ? arena_string(p->memory, label) : "all runs";
        if (!name) return ctx_no_memory(p->ctx, LABEL, "groups of runs");
        CLOOB_TRY(groups_add(p->ctx, g, name, p->run[i].result[p->run[i].results - 1]));
    }
    return CLOOB_OK;
}

/* ---- the table ----------------------------------------------------------------------------------- */

static void put_head(page *p, const groups_result *g)
{
    sbuf_puts(&p->html, "<tr><th scope=\"col\">last validation</th>");
    for (int64_t k = 0; k < g->groups; k++) {
        html_put(&p->html, "<th scope=\"col\">%s<br><span class=\"dim\">%lld run%s</span></th>", g->name[k],
                 (long long)g->runs[k], g->runs[k] == 1 ? "" : "s");
        if (k) html_put(&p->html, "<th scope=\"col\" class=\"text\">minus %s</th>", g->name[0]);
    }
    sbuf_puts(&p->html, "</tr>\n");
}

/* The difference from the first group, with the corrected p-value where there are runs enough for a test. */
static void put_difference(page *p, const groups_result *g, const pair_test *t, int64_t group)
{
    sbuf_puts(&p->html, "<td class=\"text\">");
    if (t && isfinite(t->difference)) {
        html_put(&p->html, "%s%s", t->difference > 0 ? "−" : "+", NUMBER(fabs(t->difference)));
        if (g->runs[0] > 1 && g->runs[group] > 1 && isfinite(t->p_holm))
            html_put(&p->html, " <span class=\"badge%s\">p&nbsp;%.2g%s</span>", t->significant ? " ok" : "", t->p_holm,
                     t->significant ? ", significant" : "");
    }
    sbuf_puts(&p->html, "</td>");
}

static void put_row(page *p, const groups_result *g, const group_row *m)
{
    html_put(&p->html, "<tr><th scope=\"row\">%s</th>", m->metric);
    for (int64_t k = 0; k < g->groups; k++) {
        const group_stats *v = &m->group[k];
        int d = mean_decimals(v->deviation, v->mean); /* as every table of means rounds */
        if (v->n > 1)
            html_put(&p->html, "<td>%.*f <span class=\"dim\">± %.*f</span></td>", d, v->mean, d, v->deviation);
        else html_put(&p->html, "<td>%s</td>", NUMBER(v->mean));
        if (k) put_difference(p, g, groups_pair(g, m, 0, k), k);
    }
    sbuf_puts(&p->html, "</tr>\n");
}

static void export_groups(page *p, const groups_result *g)
{
    grid t = { .columns = 10 };
    grid_texts(&t, "metric", "group", "runs", "mean", "deviation", "difference", "p", "p_holm", "cliffs_delta",
               "against");
    for (int64_t i = 0; i < g->metrics; i++)
        for (int64_t k = 0; k < g->groups; k++) {
            const group_row *m = &g->metric[i];
            const pair_test none = { .difference = NAN, .p = NAN, .p_holm = NAN, .delta = NAN },
                            *test = k ? groups_pair(g, m, 0, k) : NULL;
            if (!test) test = &none;
            grid_texts(&t, m->metric, g->name[k]);
            grid_number(&t, (double)m->group[k].n);
            grid_number(&t, m->group[k].mean), grid_number(&t, m->group[k].deviation);
            grid_number(&t, -test->difference), grid_number(&t, test->p), grid_number(&t, test->p_holm);
            grid_number(&t, -test->delta);
            grid_text(&t, k ? g->name[0] : "");
        }
    export_grid(&p->files, "differences", &t);
    grid_release(&t);
}

static void put_groups(page *p, const groups_result *g)
{
    bool tested = false;
    for (int64_t k = 1; k < g->groups; k++) tested |= g->runs[0] > 1 && g->runs[k] > 1;
    page_heading(p, "compare", "Side by side",
                 tested
                     ? "Mean and standard deviation over runs that differ in their seed alone, and the difference "
                       "from the first column. p is that of the rank-sum test, corrected over all pairs (Holm); below "
                       "0.05 a difference is more than luck."
                 : g->groups == 1
                     ? "Mean and standard deviation over runs that differ in their seed alone."
                     : "The difference from the first column. With one run a side nobody knows how much of "
                       "it is luck: train several seeds of each to find out.");
    sbuf_puts(&p->html,
              "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"runs side by side\"><table>\n");
    put_head(p, g);
    for (int64_t i = 0; i < g->metrics; i++) put_row(p, g, &g->metric[i]);
    sbuf_puts(&p->html, "</table></div>\n");
    export_groups(p, g);
}

void page_compare(page *p)
{
    groups g = { .memory = p->memory };
    groups_result found = { 0 };
    compare_options o;
    if (p->runs < 2 || p->ablation) return; /* an ablation has its own table */
    compare_options_init(&o);
    cloob_status status = gather(p, &g);
    if (status == CLOOB_OK && g.count > 0 && g.count <= MAX_GROUPS) status = groups_finish(p->ctx, &g, &o, &found);
    if (status != CLOOB_OK) p->failed = true;
    else if (found.metrics) put_groups(p, &found);
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
    const char **name = arena_push(p->memory, (size_t)(n + 1) * sizeof *name);
    int64_t i = 0;
    if (!name) p->failed = true;
    for (const json *v = values->child; name && v; v = v->next) {
        name[i] = json_string(json_get(v, "value"));
        if (!name[i++]) return NULL;
    }
    return name;
}

/* One line per group: the mean over the settings with this value, the band from the worst to the best of them. */
static void add_group(page *p, chart *c, const json *values, const char *group, int color)
{
    chart_series *s = page_series(p, c, *group ? group : "all", color, c->categories);
    int64_t i = 0;
    for (const json *v = values->child; s && v; v = v->next, i++) {
        const json *g = json_get(json_get(v, "groups"), group);
        double mean = json_get_number(g, "mean");
        if (!isfinite(mean)) continue;
        chart_band_point(p->memory, c, s, c->categories, (double)i, mean, json_get_number(g, "lowest"),
                         json_get_number(g, "highest"));
        if (!s->low || !s->high) p->failed = true;
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
    const char **name = arena_push(p->memory, (size_t)(n + 1) * sizeof *name);
    if (!name) {
        p->failed = true;
        return;
    }
    chart c = { .title = "Importance of the settings",
                .x_label = "",
                .y_label = "share of the variance, %",
                .note = "The share of the scores' variance that lies between the values of one setting.",
                .bars = true,
                .category = name,
                .categories = n };
    chart_series *s = page_series(p, &c, "all", 0, n);
    for (const json *a = axes->child; s && a; a = a->next, i++) {
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
