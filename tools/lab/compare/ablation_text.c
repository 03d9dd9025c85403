/* The tables as Markdown, in the form of the paper's, and as JSON. */
#include <math.h>
#include <string.h>

#include "lab/compare/ablation.h"

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

int ablation_decimals_beside(double deviation, double mean, int beside)
{
    return deviation > 0 || beside < 0 ? ablation_decimals(deviation, mean) : beside;
}

/* Of the methods whose seeds differ, the most; -1: there is none. */
static int row_decimals(const ablation_metric *m, int methods)
{
    int most = -1;
    for (int k = 0; k < methods; k++) {
        int d = m->n[k] && m->deviation[k] > 0 ? ablation_decimals(m->deviation[k], m->mean[k]) : -1;
        if (d > most) most = d;
    }
    return most;
}

/* As every table shows it: a page takes it from the JSON. */
static void put_rounded(sbuf *out, const ablation_metric *m, int k, int beside)
{
    int d = ablation_decimals_beside(m->deviation[k], m->mean[k], beside);
    if (m->n[k]) sbuf_printf(out, "%.*f ± %.*f", d, m->mean[k], d, m->deviation[k]);
    else sbuf_puts(out, "–");
}

static void put_cell(sbuf *out, const ablation_metric *m, int k, int beside)
{
    const char *bold = m->significant && m->best == k ? "**" : "";
    sbuf_printf(out, " %s", bold);
    put_rounded(out, m, k, beside);
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
        int beside = row_decimals(m, t->methods);
        for (int k = 0; k < t->methods; k++) put_cell(out, m, k, beside);
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

static void put_method(const ablation *t, const ablation_metric *m, int k, json_out *w)
{
    sbuf text = { 0 };
    put_rounded(&text, m, k, row_decimals(m, t->methods));
    json_begin(w, t->method[k], '{');
    json_put_text(w, "text", text.data);
    json_put_number(w, "mean", m->mean[k]);
    json_put_number(w, "deviation", m->deviation[k]);
    json_begin(w, "values", '[');
    for (int64_t i = 0; i < m->n[k]; i++) json_put_number(w, NULL, m->value[k][i]);
    json_end(w);
    json_begin(w, "p", '{');
    for (int other = 0; other < t->methods; other++)
        if (other != k) json_put_number(w, t->method[other], m->p[k][other]);
    json_end(w);
    json_end(w);
    w->failed |= text.failed;
    sbuf_release(&text);
}

static void put_metric(const ablation *t, const ablation_metric *m, json_out *w)
{
    static const char *const aim[] = { "high", "low", "none" };
    json_begin(w, m->name, '{');
    json_put_text(w, "better", aim[m->aim]);
    json_put_text(w, "best", m->best >= 0 ? t->method[m->best] : NULL);
    json_put_number(w, "p", m->p_best);
    json_put_bool(w, "significant", m->significant);
    json_begin(w, "methods", '{');
    for (int k = 0; k < t->methods; k++) put_method(t, m, k, w);
    json_end(w);
    json_end(w);
}

void ablation_json(const ablation *t, sbuf *out)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_put_int(&w, "seeds", t->seeds);
    json_put_number(&w, "alpha", t->alpha);
    json_begin(&w, "metrics", '{');
    for (int64_t i = 0; i < t->count; i++) put_metric(t, &t->metric[i], &w);
    json_end(&w);
    json_end(&w);
    json_out_append(&w, out);
}
