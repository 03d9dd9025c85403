/* Gathering values of runs and testing them. */

#include <math.h>
#include <string.h>

#include "lab/compare/groups.h"

/* Losses of different objectives are different quantities; only InfoNCE is taken of all methods. Mean
 * similarities describe. */
ablation_aim ablation_aim_of(const char *name)
{
    if (strcmp(name, "val_loss") == 0 || strcmp(name, "train_loss") == 0) return AIM_NONE;
    if (strstr(name, "similarity")) return AIM_NONE;
    if (strstr(name, "loss") || strstr(name, "rank") || strstr(name, "ajne")) return AIM_LOW;
    return AIM_HIGH;
}

cloob_status ablation_add(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object)
{
    t->g.memory = a;
    for (int k = (int)t->g.count; k < t->methods; k++) /* in the order of the methods */
        if (groups_at(&t->g, t->method[k]) < 0) return ctx_no_memory(ctx, 64, "a metric");
    return groups_add(ctx, &t->g, t->method[method], object);
}

/* ---- statistics ---------------------------------------------------------------------------------- */

static cloob_status compare_pairs(cloob_ctx *ctx, const ablation *t, ablation_metric *m)
{
    for (int a = 0; a < t->methods; a++)
        for (int b = 0; b < t->methods; b++) {
            rank_sum r;
            m->p[a][b] = a == b ? 1 : NAN;
            const group_values *x = &m->of[a], *y = &m->of[b];
            if (a == b || !x->n || !y->n) continue;
            CLOOB_TRY(ranksum_test(ctx, &r, x->value, x->n, y->value, y->n, RANK_SUM_AUTO));
            m->p[a][b] = r.two_sided;
        }
    return CLOOB_OK;
}

static void find_best(const ablation *t, ablation_metric *m)
{
    double sign = m->aim == AIM_LOW ? -1 : 1;
    m->best = -1;
    m->p_best = NAN;
    m->significant = false;
    if (m->aim == AIM_NONE) return;
    for (int k = 0; k < t->methods; k++)
        if (m->of[k].n && (m->best < 0 || sign * m->mean[k] > sign * m->mean[m->best])) m->best = k;
    for (int k = 0; m->best >= 0 && k < t->methods; k++)
        if (k != m->best) m->p_best = fmax(m->p_best, m->p[m->best][k]); /* fmax passes over NaN */
    m->significant = m->p_best < t->alpha;
}

cloob_status ablation_test(cloob_ctx *ctx, ablation *t)
{
    t->count = t->g.metrics;
    t->metric = t->count ? arena_push(t->g.memory, (size_t)t->count * sizeof *t->metric) : NULL;
    if (t->count && !t->metric) return ctx_no_memory(ctx, (size_t)t->count * sizeof *t->metric, "a table");
    for (int64_t i = 0; i < t->count; i++) {
        const group_metric *from = &t->g.metric[i];
        ablation_metric *m = &t->metric[i];
        *m = (ablation_metric){ .name = from->name, .aim = ablation_aim_of(from->name) };
        for (int k = 0; k < t->methods; k++) {
            m->of[k] = group_values_of(from, k);
            group_mean mean = group_mean_of(&m->of[k]);
            m->mean[k] = mean.mean, m->deviation[k] = mean.deviation;
        }
        CLOOB_TRY(compare_pairs(ctx, t, m));
        find_best(t, m);
    }
    return CLOOB_OK;
}

/* ---- tables as Markdown and JSON ----------------------------------------------------------------- */

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

int ablation_decimals_in_row(double deviation, double mean, int of_row)
{
    return deviation > 0 || of_row < 0 ? ablation_decimals(deviation, mean) : of_row;
}

/* Of the methods whose seeds differ, the most; -1: there is none. */
static int row_decimals(const ablation_metric *m, int methods)
{
    int most = -1;
    for (int k = 0; k < methods; k++) {
        int d = m->of[k].n && m->deviation[k] > 0 ? ablation_decimals(m->deviation[k], m->mean[k]) : -1;
        if (d > most) most = d;
    }
    return most;
}

/* As every table shows it: a page takes it from the JSON. */
static void put_rounded(sbuf *out, const ablation_metric *m, int k, int of_row)
{
    int d = ablation_decimals_in_row(m->deviation[k], m->mean[k], of_row);
    if (m->of[k].n) sbuf_printf(out, "%.*f ± %.*f", d, m->mean[k], d, m->deviation[k]);
    else sbuf_puts(out, "–");
}

static void put_cell(sbuf *out, const ablation_metric *m, int k, int of_row)
{
    const char *bold = m->significant && m->best == k ? "**" : "";
    sbuf_printf(out, " %s", bold);
    put_rounded(out, m, k, of_row);
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
        int of_row = row_decimals(m, t->methods);
        for (int k = 0; k < t->methods; k++) put_cell(out, m, k, of_row);
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
    json_members(w, J_TEXT("text", text.data), J_NUMBER("mean", m->mean[k], 0),
                 J_NUMBER("deviation", m->deviation[k], 0));
    json_begin(w, "values", '[');
    for (int64_t i = 0; i < m->of[k].n; i++) json_put_number(w, NULL, m->of[k].value[i]);
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
    json_members(w, J_TEXT("better", aim[m->aim]), J_TEXT("best", m->best >= 0 ? t->method[m->best] : NULL),
                 J_NUMBER("p", m->p_best, 0), J_OF(m, significant));
    json_begin(w, "methods", '{');
    for (int k = 0; k < t->methods; k++) put_method(t, m, k, w);
    json_end(w);
    json_end(w);
}

void ablation_json(const ablation *t, sbuf *out)
{
    json_out w = { .spaced = true };
    json_begin(&w, NULL, '{');
    json_members(&w, J_OF(t, seeds), J_NUMBER("alpha", t->alpha, 0));
    json_begin(&w, "metrics", '{');
    for (int64_t i = 0; i < t->count; i++) put_metric(t, &t->metric[i], &w);
    json_end(&w);
    json_end(&w);
    json_out_append(&w, out);
}
