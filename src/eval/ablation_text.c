/* The tables as Markdown, in the form of the paper's, and as JSON. */
#include <math.h>
#include <string.h>

#include "eval/ablation.h"

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

int ablation_decimals(double deviation, double mean)
{
    double min = fabs(mean) / 1000, size = deviation > min ? deviation : min;
    if (!(size > 0)) return 0;
    int d = 1 - (int)floor(log10(size));
    return d < 0 ? 0 : d > 8 ? 8 : d;
}

/* As every table shows it: a page takes it from the JSON. */
static void put_rounded(sbuf *out, const ablation_metric *m, int k)
{
    int d = ablation_decimals(m->deviation[k], m->mean[k]);
    if (m->n[k]) sbuf_printf(out, "%.*f ± %.*f", d, m->mean[k], d, m->deviation[k]);
    else sbuf_puts(out, "–");
}

static void put_cell(sbuf *out, const ablation_metric *m, int k)
{
    const char *bold = m->significant && m->best == k ? "**" : "";
    sbuf_printf(out, " %s", bold);
    put_rounded(out, m, k);
    sbuf_printf(out, "%s |", bold);
}

void ablation_markdown(const ablation *t, sbuf *out)
{
    static const char *const arrow[] = { " ↑", " ↓", "" };
    sbuf_puts(out, "| |");
    for (int k = 0; k < t->methods; k++) sbuf_printf(out, " %s |", title_of(t->method[k]));
    sbuf_puts(out, " p |\n|---|");
    for (int k = 0; k < t->methods; k++) sbuf_puts(out, "---|");
    sbuf_puts(out, "---|\n");
    for (int64_t i = 0; i < t->count; i++) {
        const ablation_metric *m = &t->metric[i];
        sbuf_printf(out, "| %s%s |", m->name, arrow[m->aim]);
        for (int k = 0; k < t->methods; k++) put_cell(out, m, k);
        if (isfinite(m->p_best)) sbuf_printf(out, " %.2g |\n", m->p_best);
        else sbuf_puts(out, " |\n");
    }
    sbuf_printf(out,
                "\nMean ± standard deviation over %lld seed%s. Arrows say which way is better; without one the "
                "methods "
                "are not comparable by the number. Bold: better than each of the other methods by the two-sided "
                "Wilcoxon rank-sum test (p < %g); p is the largest of those p-values.\n",
                (long long)t->seeds, t->seeds == 1 ? "" : "s", t->alpha);
}

static void put_method(const ablation *t, const ablation_metric *m, int k, sbuf *out)
{
    json_put_string(out, t->method[k]);
    sbuf_puts(out, ": {\"text\": \"");
    put_rounded(out, m, k);
    sbuf_puts(out, "\", \"mean\": ");
    json_put_number(out, m->mean[k]);
    sbuf_puts(out, ", \"deviation\": ");
    json_put_number(out, m->deviation[k]);
    sbuf_puts(out, ", \"values\": [");
    for (int64_t i = 0; i < m->n[k]; i++) {
        if (i) sbuf_puts(out, ", ");
        json_put_number(out, m->value[k][i]);
    }
    sbuf_puts(out, "], \"p\": {");
    for (int other = 0, first = 1; other < t->methods; other++) {
        if (other == k) continue;
        if (!first) sbuf_puts(out, ", ");
        json_put_string(out, t->method[other]);
        sbuf_puts(out, ": ");
        json_put_number(out, m->p[k][other]);
        first = 0;
    }
    sbuf_puts(out, "}}");
}

void ablation_json(const ablation *t, sbuf *out)
{
    static const char *const aim[] = { "high", "low", "none" };
    sbuf_printf(out, "{\"seeds\": %lld, \"alpha\": %g, \"metrics\": {", (long long)t->seeds, t->alpha);
    for (int64_t i = 0; i < t->count; i++) {
        const ablation_metric *m = &t->metric[i];
        sbuf_puts(out, i ? ",\n " : "\n ");
        json_put_string(out, m->name);
        sbuf_printf(out, ": {\"better\": \"%s\", \"best\": ", aim[m->aim]);
        if (m->best >= 0) json_put_string(out, t->method[m->best]);
        else sbuf_puts(out, "null");
        sbuf_puts(out, ", \"p\": ");
        json_put_number(out, m->p_best);
        sbuf_printf(out, ", \"significant\": %s, \"methods\": {", m->significant ? "true" : "false");
        for (int k = 0; k < t->methods; k++) {
            if (k) sbuf_puts(out, ", ");
            put_method(t, m, k, out);
        }
        sbuf_puts(out, "}}");
    }
    sbuf_puts(out, "}}\n");
}
