/* Tables of groups: for a terminal, Markdown, LaTeX, CSV, JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/compare/groups.h"
#include "lab/grid.h"

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_groups(const groups_result *g, const group_row *m, json_out *w)
{
    json_begin(w, "groups", '{');
    for (int64_t k = 0; k < g->groups; k++) {
        const group_stats *v = &m->group[k];
        json_object(w, g->name[k], J_OF(v, n), J_NUMBER("mean", v->mean, 0), J_NUMBER("spread", v->deviation, 0),
                    J_NUMBER("low", v->low, 0), J_NUMBER("high", v->high, 0));
    }
    json_end(w);
}

static void json_pairs(const groups_result *g, const group_row *m, json_out *w)
{
    json_begin(w, "pairs", '[');
    for (int64_t i = 0; i < g->pairs; i++) {
        const pair_test *t = &m->pair[i];
        json_object(w, NULL, J_TEXT("a", g->name[t->a]), J_TEXT("b", g->name[t->b]),
                    J_NUMBER("difference", t->difference, 0), J_NUMBER("p", t->p, 0), J_NUMBER("p_holm", t->p_holm, 0),
                    J_NUMBER("cliffs_delta", t->delta, 0), J_OF(t, significant));
    }
    json_end(w);
}

static void put_json(const groups_result *g, sbuf *s)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_begin(&w, "groups", '{');
    for (int64_t k = 0; k < g->groups; k++) json_put_int(&w, g->name[k], g->runs[k]);
    json_end(&w);
    json_put_number(&w, "alpha", g->alpha);
    json_begin(&w, "metrics", '{');
    for (int64_t i = 0; i < g->metrics; i++) {
        json_begin(&w, g->metric[i].metric, '{');
        json_groups(g, &g->metric[i], &w);
        json_pairs(g, &g->metric[i], &w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    json_out_append(&w, s);
}

/* ---- CSV: a line per metric and pair ------------------------------------------------------------- */

static void add_stats(grid *t, const group_stats *v)
{
    grid_number(t, (double)v->n);
    grid_number(t, v->mean), grid_number(t, v->deviation), grid_number(t, v->low), grid_number(t, v->high);
}

static grid pair_table(const groups_result *g)
{
    grid table = { .columns = 17, .format = "%.9g" };
    grid_texts(&table, "metric", "a", "b", "n_a", "mean_a", "spread_a", "low_a", "high_a", "n_b", "mean_b", "spread_b",
               "low_b", "high_b", "difference", "p", "p_holm", "cliffs_delta");
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++)
        for (const pair_test *t = m->pair; t < m->pair + g->pairs; t++) {
            grid_texts(&table, m->metric, g->name[t->a], g->name[t->b]);
            add_stats(&table, &m->group[t->a]), add_stats(&table, &m->group[t->b]);
            grid_number(&table, t->difference), grid_number(&table, t->p);
            grid_number(&table, t->p_holm), grid_number(&table, t->delta);
        }
    return table;
}

/* ---- tables for people --------------------------------------------------------------------------- */

enum { TERMINAL = 80 }; /* columns; plain tables that are wider have a section per metric */

int mean_decimals(double deviation, double mean)
{
    double min = fabs(mean) / 1000, size = deviation > min ? deviation : min;
    if (!(size > 0)) return 0;
    int d = 1 - (int)floor(log10(size));
    return d < 0 ? 0 : d > 8 ? 8 : d;
}

/* Decimals of a cell: where the spread is 0, the most of the other cells of its row whose runs differ. */
static int cell_decimals(const groups_result *g, const group_row *m, const group_stats *v)
{
    int most = -1;
    for (int64_t k = 0; k < g->groups && v->n > 1 && !(v->deviation > 0); k++) {
        const group_stats *o = &m->group[k];
        int d = o->n > 1 && o->deviation > 0 ? mean_decimals(o->deviation, o->mean) : -1;
        if (d > most) most = d;
    }
    return most < 0 ? mean_decimals(v->deviation, v->mean) : most;
}

/* A mean in the form of all tables: "0.71 ± 0.02" for several runs, optionally with the interval. */
static const char *mean_text(const groups_result *g, const group_row *m, int64_t k, bool interval, char out[96])
{
    const group_stats *v = &m->group[k];
    int d = cell_decimals(g, m, v);
    if (!v->n) snprintf(out, 96, "–");
    else if (v->n == 1) snprintf(out, 96, "%.*f", d, v->mean);
    else if (!interval) snprintf(out, 96, "%.*f ± %.*f", d, v->mean, d, v->deviation);
    else snprintf(out, 96, "%.*f ± %.*f [%.*f, %.*f]", d, v->mean, d, v->deviation, d, v->low, d, v->high);
    return out;
}

static grid means_table(const groups_result *g)
{
    grid t = { .columns = g->groups + 1 };
    grid_text(&t, "metric");
    for (int64_t k = 0; k < g->groups; k++) grid_printf(&t, "%s (%lld)", g->name[k], (long long)g->runs[k]);
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++) {
        char text[96];
        grid_text(&t, m->metric);
        for (int64_t k = 0; k < g->groups; k++) grid_text(&t, mean_text(g, m, k, true, text));
    }
    return t;
}

/* The same with a line per metric and group. */
static grid long_means_table(const groups_result *g)
{
    grid t = { .columns = 3 };
    grid_texts(&t, "metric", "runs", "mean");
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++)
        for (int64_t k = 0; k < g->groups; k++) {
            char text[96];
            grid_text(&t, m->metric);
            grid_printf(&t, "%s (%lld)", g->name[k], (long long)g->runs[k]);
            grid_text(&t, mean_text(g, m, k, true, text));
        }
    return t;
}

static grid tests_table(const groups_result *g)
{
    grid table = { .columns = 6 };
    grid_texts(&table, "metric", "pair", "difference", "p", "p, Holm", "Cliff's delta");
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++)
        for (const pair_test *t = m->pair; t < m->pair + g->pairs; t++) {
            if (isnan(t->p)) continue;
            grid_text(&table, m->metric);
            grid_printf(&table, "%s - %s", g->name[t->a], g->name[t->b]);
            grid_printf(&table, "%.4g", t->difference), grid_printf(&table, "%.2g", t->p);
            grid_printf(&table, "%.2g%s", t->p_holm, t->significant ? "*" : "");
            grid_printf(&table, "%+.2f", t->delta);
        }
    return table;
}

static void put_table(grid t, grid_form form, sbuf *s)
{
    if (form == GRID_PLAIN && grid_width(&t) > TERMINAL) grid_put_sections(&t, s);
    else grid_put(&t, form, s);
    grid_release(&t);
}

static void put_means(const groups_result *g, grid_form form, sbuf *s)
{
    grid t = means_table(g);
    if (form == GRID_PLAIN && grid_width(&t) > TERMINAL) {
        grid_release(&t);
        t = long_means_table(g);
        grid_put_sections(&t, s);
    } else grid_put(&t, form, s);
    grid_release(&t);
}

static grid_form form_of(const char *format)
{
    static const char *const name[] = { "text", "markdown", "latex", "csv" };
    for (int i = 1; format && i < 4; i++)
        if (strcmp(format, name[i]) == 0) return (grid_form)i;
    return GRID_PLAIN;
}

char *groups_text(const groups_result *g, const char *format)
{
    sbuf s = { 0 };
    grid_form form = form_of(format);
    if (format && strcmp(format, "json") == 0) put_json(g, &s);
    else if (form == GRID_CSV) put_table(pair_table(g), form, &s);
    else {
        put_means(g, form, &s);
        sbuf_putc(&s, '\n');
        put_table(tests_table(g), form, &s);
        if (form != GRID_LATEX)
            sbuf_printf(&s,
                        "\nMean, standard deviation and 95 %% bootstrap interval of the mean; in parentheses\n"
                        "the number of runs. Tests: two-sided Wilcoxon rank-sum, corrected by Holm over\n"
                        "the pairs of groups of a metric; * below %g. Cliff's delta: 1 when all runs of\n"
                        "the first are higher, -1 when all are lower.\n",
                        g->alpha);
    }
    return sbuf_detach(&s);
}

/* ---- two files ----------------------------------------------------------------------------------- */

char *groups_two_json(const groups_result *g)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_INT("runs_a", g->runs[0]), J_INT("runs_b", g->runs[1]), J_NUMBER("alpha", g->alpha, 0),
                 J_OF(g, skipped));
    json_begin(&w, "metrics", '{');
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++) {
        const pair_test *t = &m->pair[0];
        json_begin(&w, m->metric, '{');
        for (int k = 0; k < 2; k++) {
            const group_stats *v = &m->group[k];
            json_begin(&w, g->name[k], '{');
            json_put_int(&w, "n", v->n);
            if (v->n) json_members(&w, J_NUMBER("mean", v->mean, 0), J_NUMBER("spread", v->deviation, 0));
            json_end(&w);
        }
        if (!isnan(t->p))
            json_members(&w, J_NUMBER("U", t->test.U, 0), J_NUMBER("p", t->p, 0), J_NUMBER("p_less", t->test.less, 0),
                         J_NUMBER("p_greater", t->test.greater, 0),
                         J_TEXT("method", t->test.exact ? "exact" : "normal"), J_OF(t, significant));
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    return json_out_line(&w);
}

/* ---- an ablation --------------------------------------------------------------------------------- */

static const char *title_of(const char *method)
{
    static const char *const title[][2] = { { "clip", "InfoNCE (CLIP)" },
                                            { "infoloob", "InfoLOOB" },
                                            { "infonce-hopfield", "InfoNCE + Hopfield" },
                                            { "cloob", "InfoLOOB + Hopfield (CLOOB)" } };
    for (size_t i = 0; i < sizeof title / sizeof *title; i++)
        if (strcmp(title[i][0], method) == 0) return title[i][1];
    return method;
}

void ablation_markdown(const groups_result *g, int64_t seeds, sbuf *out)
{
    static const char *const arrow[] = { " ↑", " ↓", "" };
    grid t = { .columns = g->groups + 2 };
    grid_text(&t, "");
    for (int64_t k = 0; k < g->groups; k++) grid_text(&t, title_of(g->name[k]));
    grid_text(&t, "p");
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++) {
        grid_printf(&t, "%s%s", m->metric, arrow[m->aim]);
        for (int64_t k = 0; k < g->groups; k++) {
            char text[96];
            grid_text(&t, mean_text(g, m, k, false, text));
            grid_bold(&t, m->won && m->best == k);
        }
        grid_printf(&t, isfinite(m->p_best) ? "%.2g" : "", m->p_best);
    }
    put_table(t, GRID_MARKDOWN, out);
    sbuf_printf(
        out,
        "\nMean ± standard deviation over %lld seed%s. Arrows say which way is better; without one the "
        "methods are not comparable by the number. Bold: better than each of the other methods by the two-sided "
        "Wilcoxon rank-sum test (p < %g); p is the largest of those p-values.\n",
        (long long)seeds, seeds == 1 ? "" : "s", g->alpha);
}

static void put_method(const groups_result *g, const group_row *m, int64_t k, json_out *w)
{
    const group_stats *v = &m->group[k];
    char text[96];
    json_begin(w, g->name[k], '{');
    json_members(w, J_TEXT("text", mean_text(g, m, k, false, text)), J_NUMBER("mean", v->mean, 0),
                 J_NUMBER("deviation", v->deviation, 0));
    json_begin(w, "values", '[');
    for (int64_t i = 0; i < v->n; i++) json_put_number(w, NULL, v->value[i]);
    json_end(w);
    json_begin(w, "p", '{');
    for (int64_t other = 0; other < g->groups; other++)
        if (other != k) json_put_number(w, g->name[other], groups_pair(g, m, k, other)->p);
    json_end(w);
    json_end(w);
}

void ablation_json(const groups_result *g, int64_t seeds, sbuf *out)
{
    static const char *const aim[] = { "high", "low", "none" };
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_INT("seeds", seeds), J_NUMBER("alpha", g->alpha, 0));
    json_begin(&w, "metrics", '{');
    for (const group_row *m = g->metric; m < g->metric + g->metrics; m++) {
        json_begin(&w, m->metric, '{');
        json_members(&w, J_TEXT("better", aim[m->aim]), J_TEXT("best", m->best >= 0 ? g->name[m->best] : NULL),
                     J_NUMBER("p", m->p_best, 0), J_BOOL("significant", m->won));
        json_begin(&w, "methods", '{');
        for (int64_t k = 0; k < g->groups; k++) put_method(g, m, k, &w);
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    json_out_append(&w, out);
}
