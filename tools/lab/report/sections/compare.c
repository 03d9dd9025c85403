/* Several runs side by side: what differs, by how much, and whether it is significant. Runs that differ in their
 * seed alone are one group. */
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

static const pair_test *pair_of(const groups_result *g, const group_row *m, int64_t group)
{
    for (int64_t i = 0; i < g->pairs; i++)
        if (m->pair[i].a == 0 && m->pair[i].b == group) return &m->pair[i];
    return NULL;
}

static void put_head(page *p, const groups_result *g)
{
    sbuf_puts(&p->html, "<tr><th scope=\"col\">last validation</th>");
    for (int64_t k = 0; k < g->groups; k++) {
        sbuf_puts(&p->html, "<th scope=\"col\">");
        html_text(&p->html, g->name[k]);
        sbuf_printf(&p->html, "<br><span class=\"dim\">%lld run%s</span></th>", (long long)g->runs[k],
                    g->runs[k] == 1 ? "" : "s");
        if (!k) continue;
        sbuf_puts(&p->html, "<th scope=\"col\" class=\"text\">minus ");
        html_text(&p->html, g->name[0]);
        sbuf_puts(&p->html, "</th>");
    }
    sbuf_puts(&p->html, "</tr>\n");
}

/* The difference from the first group, with the corrected p-value where there are runs enough for a test. */
static void put_difference(page *p, const groups_result *g, const pair_test *t, int64_t group)
{
    sbuf_puts(&p->html, "<td class=\"text\">");
    if (t && isfinite(t->difference)) {
        sbuf_puts(&p->html, t->difference > 0 ? "−" : "+");
        html_number(&p->html, fabs(t->difference));
        if (g->runs[0] > 1 && g->runs[group] > 1 && isfinite(t->p_holm))
            sbuf_printf(&p->html, " <span class=\"badge%s\">p&nbsp;%.2g%s</span>", t->significant ? " ok" : "",
                        t->p_holm, t->significant ? ", significant" : "");
    }
    sbuf_puts(&p->html, "</td>");
}

static void put_row(page *p, const groups_result *g, const group_row *m)
{
    sbuf_puts(&p->html, "<tr><th scope=\"row\">");
    html_text(&p->html, m->metric);
    sbuf_puts(&p->html, "</th>");
    for (int64_t k = 0; k < g->groups; k++) {
        const group_stats *v = &m->group[k];
        int d = ablation_decimals(v->deviation, v->mean); /* as every table of means rounds */
        sbuf_puts(&p->html, "<td>");
        if (v->n > 1) sbuf_printf(&p->html, "%.*f <span class=\"dim\">± %.*f</span>", d, v->mean, d, v->deviation);
        else html_number(&p->html, v->mean);
        sbuf_puts(&p->html, "</td>");
        if (k) put_difference(p, g, pair_of(g, m, k), k);
    }
    sbuf_puts(&p->html, "</tr>\n");
}

static void export_groups(page *p, const groups_result *g)
{
    static const char *const head[] = { "metric",     "group", "runs",   "mean",         "deviation",
                                        "difference", "p",     "p_holm", "cliffs_delta", "against" };
    export_table t;
    export_table_begin(&t, "differences");
    export_table_row(&t, head, 10);
    for (int64_t i = 0; i < g->metrics; i++)
        for (int64_t k = 0; k < g->groups; k++) {
            const group_row *m = &g->metric[i];
            const pair_test *test = k ? pair_of(g, m, k) : NULL;
            double value[] = { m->group[k].mean,     m->group[k].deviation,     test ? -test->difference : NAN,
                               test ? test->p : NAN, test ? test->p_holm : NAN, test ? -test->delta : NAN };
            char cell[7][32];
            snprintf(cell[0], sizeof cell[0], "%lld", (long long)m->group[k].n);
            for (int c = 0; c < 6; c++)
                snprintf(cell[c + 1], sizeof cell[0], isfinite(value[c]) ? "%.6g" : "", value[c]);
            export_table_row(&t,
                             (const char *[]){ m->metric, g->name[k], cell[0], cell[1], cell[2], cell[3], cell[4],
                                               cell[5], cell[6], k ? g->name[0] : "" },
                             10);
        }
    export_table_end(&p->files, &t);
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

static void put_ablation_cell(page *p, const json *cell, bool bold)
{
    const char *text = json_string(json_get(cell, "text"));
    sbuf_puts(&p->html, bold ? "<td><strong>" : "<td>");
    html_text(&p->html, text ? text : "");
    sbuf_puts(&p->html, bold ? "</strong></td>" : "</td>");
}

static void put_ablation_row(page *p, const json *metric)
{
    const json *significant = json_get(metric, "significant"), *methods = json_get(metric, "methods");
    const char *best = json_string(json_get(metric, "best")), *better = json_string(json_get(metric, "better"));
    bool winner = significant && significant->kind == JSON_BOOL && significant->boolean;
    sbuf_puts(&p->html, "<tr><td>");
    html_text(&p->html, metric->key);
    if (better && strcmp(better, "none") != 0) sbuf_puts(&p->html, strcmp(better, "low") == 0 ? " &darr;" : " &uarr;");
    sbuf_puts(&p->html, "</td>");
    for (const json *m = methods ? methods->child : NULL; m; m = m->next)
        put_ablation_cell(p, m, winner && best && strcmp(best, m->key) == 0);
    sbuf_puts(&p->html, "<td>");
    html_number(&p->html, json_get_number(metric, "p"));
    sbuf_puts(&p->html, "</td></tr>\n");
}

void page_ablation(page *p)
{
    const json *metrics = json_get(p->ablation, "metrics"), *first = metrics ? metrics->child : NULL;
    const json *methods = first ? json_get(first, "methods") : NULL;
    if (!methods || metrics->kind != JSON_OBJECT || methods->kind != JSON_OBJECT) return;
    page_heading(p, "ablation", "Ablation",
                 "Mean &plusmn; standard deviation over the seeds. Bold: better than each of the other methods by the "
                 "two-sided Wilcoxon rank-sum test; p is the largest of those p-values. Without an arrow methods are "
                 "not comparable by the number.");
    sbuf_puts(&p->html, "<div class=\"wide\" tabindex=\"0\"><table><tr><th></th>");
    for (const json *m = methods->child; m; m = m->next)
        sbuf_puts(&p->html, "<th>"), html_text(&p->html, m->key), sbuf_puts(&p->html, "</th>");
    sbuf_puts(&p->html, "<th>p</th></tr>\n");
    for (const json *m = first; m; m = m->next) put_ablation_row(p, m);
    sbuf_puts(&p->html, "</table></div>\n");
}
