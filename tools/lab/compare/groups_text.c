/* Tables of groups: for a terminal, Markdown, LaTeX, CSV, JSON. */
#include <math.h>
#include <string.h>

#include "core/text.h"
#include "lab/compare/groups.h"

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

static void csv_number(sbuf *s, double x)
{
    if (isfinite(x)) sbuf_printf(s, ",%.9g", x);
    else sbuf_putc(s, ',');
}

static void csv_stats(sbuf *s, const group_stats *v)
{
    sbuf_printf(s, ",%lld", (long long)v->n);
    csv_number(s, v->mean), csv_number(s, v->deviation), csv_number(s, v->low), csv_number(s, v->high);
}

static void put_csv(const groups_result *g, sbuf *s)
{
    sbuf_puts(s, "metric,a,b,n_a,mean_a,spread_a,low_a,high_a,n_b,mean_b,spread_b,low_b,high_b,difference,p,p_holm,"
                 "cliffs_delta\n");
    for (int64_t i = 0; i < g->metrics; i++)
        for (int64_t k = 0; k < g->pairs; k++) {
            const group_row *m = &g->metric[i];
            const pair_test *t = &m->pair[k];
            csv_put(s, m->metric), sbuf_putc(s, ',');
            csv_put(s, g->name[t->a]), sbuf_putc(s, ',');
            csv_put(s, g->name[t->b]);
            csv_stats(s, &m->group[t->a]), csv_stats(s, &m->group[t->b]);
            csv_number(s, t->difference), csv_number(s, t->p), csv_number(s, t->p_holm), csv_number(s, t->delta);
            sbuf_putc(s, '\n');
        }
}

/* ---- tables for people --------------------------------------------------------------------------- */

typedef struct style { /* of a table: the text around and between cells */
    const char *begin, *between, *end, *none;
    bool latex;
} style;

static void put_word(sbuf *s, const style *y, const char *text)
{
    for (; *text; text++) {
        if (y->latex && strchr("_%&#$", *text)) sbuf_putc(s, '\\');
        sbuf_putc(s, *text);
    }
}

static int row_decimals(const group_stats *v, int64_t n)
{
    int most = -1;
    for (int64_t k = 0; k < n; k++) {
        int d = v[k].n > 1 && v[k].deviation > 0 ? ablation_decimals(v[k].deviation, v[k].mean) : -1;
        if (d > most) most = d;
    }
    return most;
}

static void put_cell(sbuf *s, const style *y, const group_stats *v, int of_row)
{
    int d = ablation_decimals_in_row(v->deviation, v->mean, v->n > 1 ? of_row : -1);
    sbuf_puts(s, y->between);
    if (!v->n) sbuf_puts(s, y->none);
    else if (v->n == 1) sbuf_printf(s, "%.*f", d, v->mean);
    else
        sbuf_printf(s, y->latex ? "$%.*f \\pm %.*f$ [%.*f, %.*f]" : "%.*f ± %.*f [%.*f, %.*f]", d, v->mean, d,
                    v->deviation, d, v->low, d, v->high);
}

static void put_means(const groups_result *g, const style *y, sbuf *s)
{
    for (int64_t i = 0; i < g->metrics; i++) {
        sbuf_puts(s, y->begin);
        put_word(s, y, g->metric[i].metric);
        int of_row = row_decimals(g->metric[i].group, g->groups);
        for (int64_t k = 0; k < g->groups; k++) put_cell(s, y, &g->metric[i].group[k], of_row);
        sbuf_puts(s, y->end);
    }
}

static void put_tests(const groups_result *g, const style *y, sbuf *s)
{
    for (int64_t i = 0; i < g->metrics; i++)
        for (int64_t k = 0; k < g->pairs; k++) {
            const pair_test *t = &g->metric[i].pair[k];
            if (isnan(t->p)) continue;
            sbuf_puts(s, y->begin);
            put_word(s, y, g->metric[i].metric), sbuf_puts(s, y->between);
            put_word(s, y, g->name[t->a]), sbuf_puts(s, " - "), put_word(s, y, g->name[t->b]);
            sbuf_printf(s, "%s%.4g%s%.2g%s%.2g%s%s%+.2f", y->between, t->difference, y->between, t->p, y->between,
                        t->p_holm, t->significant ? "*" : "", y->between, t->delta);
            sbuf_puts(s, y->end);
        }
}

static void put_heading(const groups_result *g, const style *y, const char *first, sbuf *s)
{
    sbuf_puts(s, y->begin);
    sbuf_puts(s, first);
    for (int64_t k = 0; k < g->groups; k++) {
        sbuf_puts(s, y->between);
        put_word(s, y, g->name[k]);
        sbuf_printf(s, " (%lld)", (long long)g->runs[k]);
    }
    sbuf_puts(s, y->end);
}

static const char note[] = "Mean, standard deviation and 95 %% bootstrap interval of the mean; in brackets the\n"
                           "number of runs. Tests: two-sided Wilcoxon rank-sum, corrected by Holm over the\n"
                           "pairs of groups of a metric; * below %g. Cliff's delta: 1 when all runs of the\n"
                           "first are higher, -1 when all are lower.\n";

static void put_markdown(const groups_result *g, sbuf *s)
{
    static const style y = { "| ", " | ", " |\n", "–", false };
    put_heading(g, &y, "metric", s);
    for (int64_t k = 0; k <= g->groups; k++) sbuf_puts(s, k ? "---|" : "|---|");
    sbuf_putc(s, '\n');
    put_means(g, &y, s);
    sbuf_puts(s, "\n| metric | pair | difference | p | p, Holm | Cliff's delta |\n|---|---|---|---|---|---|\n");
    put_tests(g, &y, s);
    sbuf_putc(s, '\n');
    sbuf_printf(s, note, g->alpha);
}

static void put_latex(const groups_result *g, sbuf *s)
{
    static const style y = { "", " & ", " \\\\\n", "--", true };
    sbuf_puts(s, "\\begin{tabular}{l");
    for (int64_t k = 0; k < g->groups; k++) sbuf_putc(s, 'r');
    sbuf_puts(s, "}\n\\hline\n");
    put_heading(g, &y, "metric", s);
    sbuf_puts(s, "\\hline\n");
    put_means(g, &y, s);
    sbuf_puts(s, "\\hline\n\\end{tabular}\n\n\\begin{tabular}{llrrrr}\n\\hline\n"
                 "metric & pair & difference & $p$ & $p$, Holm & Cliff's $\\delta$ \\\\\n\\hline\n");
    put_tests(g, &y, s);
    sbuf_puts(s, "\\hline\n\\end{tabular}\n");
}

enum { MAX_COLUMNS = 64 };

/* The characters of n bytes of UTF-8. */
static int characters(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Cells that end with a tab, or with the line, by column: their widths, or with `out` the table with them. */
static void each_cell(const char *text, int width[MAX_COLUMNS], sbuf *out)
{
    for (int column = 0; *text; column++) {
        size_t n = strcspn(text, "\t\n");
        int k = column < MAX_COLUMNS ? column : MAX_COLUMNS - 1, wide = characters(text, n);
        if (wide > width[k]) width[k] = wide;
        if (out) sbuf_printf(out, "%.*s", (int)n, text);
        if (text[n] == '\n') column = -1;
        if (out && text[n] == '\t') sbuf_printf(out, "%*s", width[k] - wide + 2, "");
        if (out && text[n] == '\n') sbuf_putc(out, '\n');
        text += n + (text[n] != '\0');
    }
}

static void put_aligned(sbuf *table, sbuf *s)
{
    int width[MAX_COLUMNS] = { 0 };
    if (table->failed || !table->data) s->failed = true;
    else each_cell(table->data, width, NULL), each_cell(table->data, width, s);
    sbuf_release(table);
}

static void put_plain(const groups_result *g, sbuf *s)
{
    static const style y = { "", "\t", "\n", "-", false };
    sbuf means = { 0 }, tests = { 0 };
    put_heading(g, &y, "metric", &means);
    put_means(g, &y, &means);
    put_aligned(&means, s);
    sbuf_puts(&tests, "\nmetric\tpair\tdifference\tp\tp, Holm\tCliff's delta\n");
    put_tests(g, &y, &tests);
    put_aligned(&tests, s);
    sbuf_putc(s, '\n');
    sbuf_printf(s, note, g->alpha);
}

/* ---- the table of main results ------------------------------------------------------------------- */

/* The group with the best mean; -1: the metric has no better end, or one group alone has values. */
static int64_t best_of(const groups_result *g, const group_row *m)
{
    ablation_aim aim = ablation_aim_of(m->metric);
    int64_t best = -1, with_values = 0;
    for (int64_t k = 0; k < g->groups; k++) {
        if (!m->group[k].n) continue;
        with_values++;
        double now = m->group[k].mean, top = best < 0 ? NAN : m->group[best].mean;
        if (best < 0 || (aim == AIM_LOW ? now < top : now > top)) best = k;
    }
    return aim == AIM_NONE || with_values < 2 ? -1 : best;
}

/* Better than each of the others, by the corrected tests. */
static bool is_alone(const groups_result *g, const group_row *m, int64_t best)
{
    for (int64_t i = 0; i < g->pairs; i++) {
        const pair_test *t = &m->pair[i];
        if ((t->a == best || t->b == best) && !isnan(t->p) && !t->significant) return false;
    }
    return true;
}

static void put_main_cell(const groups_result *g, const group_row *m, int64_t k, const style *y, const char *bold[2],
                          sbuf *s)
{
    const group_stats *v = &m->group[k];
    int64_t best = best_of(g, m);
    int d = ablation_decimals_in_row(v->deviation, v->mean, v->n > 1 ? row_decimals(m->group, g->groups) : -1);
    sbuf_puts(s, y->between);
    if (!v->n) sbuf_puts(s, y->none);
    else {
        sbuf_printf(s, "%s%.*f%s", k == best ? bold[0] : "", d, v->mean, k == best ? bold[1] : "");
        if (v->n > 1) sbuf_printf(s, y->latex ? " $\\pm$ %.*f" : " ± %.*f", d, v->deviation);
        if (k == best && is_alone(g, m, best)) sbuf_puts(s, y->latex ? "$^*$" : "*");
    }
}

static void put_main_rows(const groups_result *g, const style *y, const char *bold[2], const char *rule, sbuf *s)
{
    sbuf_puts(s, y->begin);
    for (int64_t i = 0; i < g->metrics; i++) sbuf_puts(s, y->between), put_word(s, y, g->metric[i].metric);
    sbuf_puts(s, y->end);
    sbuf_puts(s, rule);
    for (int64_t k = 0; k < g->groups; k++) {
        sbuf_puts(s, y->begin);
        put_word(s, y, g->name[k]);
        sbuf_printf(s, " (%lld)", (long long)g->runs[k]);
        for (int64_t i = 0; i < g->metrics; i++) put_main_cell(g, &g->metric[i], k, y, bold, s);
        sbuf_puts(s, y->end);
    }
}

static void put_main_markdown(const groups_result *g, sbuf *s)
{
    static const style y = { "| ", " | ", " |\n", "–", false };
    const char *bold[2] = { "**", "**" };
    sbuf rule = { 0 };
    for (int64_t i = 0; i <= g->metrics; i++) sbuf_puts(&rule, i ? "---|" : "|---|");
    sbuf_putc(&rule, '\n');
    put_main_rows(g, &y, bold, rule.data ? rule.data : "", s);
    sbuf_release(&rule);
}

static void put_main_latex(const groups_result *g, sbuf *s)
{
    static const style y = { "", " & ", " \\\\\n", "--", true };
    const char *bold[2] = { "\\textbf{", "}" };
    sbuf_puts(s, "\\begin{tabular}{l");
    for (int64_t i = 0; i < g->metrics; i++) sbuf_putc(s, 'r');
    sbuf_puts(s, "}\n\\hline\n");
    put_main_rows(g, &y, bold, "\\hline\n", s);
    sbuf_puts(s, "\\hline\n\\end{tabular}\n");
}

char *groups_main_table(const groups_result *g, const char *format)
{
    static const style plain = { "", "\t", "\n", "-", false };
    const char *none[2] = { "", "" };
    sbuf s = { 0 }, table = { 0 };
    if (format && (strcmp(format, "json") == 0 || strcmp(format, "csv") == 0)) return groups_text(g, format);
    if (format && strcmp(format, "latex") == 0) put_main_latex(g, &s);
    else if (format && strcmp(format, "markdown") == 0) put_main_markdown(g, &s);
    else {
        put_main_rows(g, &plain, none, "", &table);
        put_aligned(&table, &s);
    }
    sbuf_printf(&s,
                "\nMean and standard deviation; in brackets the number of runs. *: better than each other row by the\n"
                "two-sided rank-sum test, corrected by Holm, below %g.\n",
                g->alpha);
    return sbuf_detach(&s);
}

char *groups_text(const groups_result *g, const char *format)
{
    sbuf s = { 0 };
    if (!format) format = "text";
    if (strcmp(format, "json") == 0) put_json(g, &s);
    else if (strcmp(format, "csv") == 0) put_csv(g, &s);
    else if (strcmp(format, "latex") == 0) put_latex(g, &s);
    else if (strcmp(format, "markdown") == 0) put_markdown(g, &s);
    else put_plain(g, &s);
    return sbuf_detach(&s);
}
