/* Gathering values of runs and testing them. */
#include "lab/compare/ablation.h"

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

bool ablation_is_metric(const char *key)
{
    static const char *const no[] = { "epoch", "num_samples", "n", "bad", "seed", "steps", "seconds" };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcmp(key, no[i]) == 0) return false;
    return true;
}

static ablation_metric *find(arena *a, ablation *t, const char *name)
{
    for (int64_t i = 0; i < t->count; i++)
        if (strcmp(t->metric[i].name, name) == 0) return &t->metric[i];
    ablation_metric *all = arena_grow(a, t->metric, t->count, &t->room, 32, sizeof *all);
    if (!all) return NULL;
    t->metric = all;
    ablation_metric *m = &t->metric[t->count];
    *m = (ablation_metric){ .name = arena_string(a, name), .aim = ablation_aim_of(name), .best = -1 };
    for (int k = 0; k < t->methods; k++) {
        m->value[k] = arena_push(a, (size_t)(t->seeds + 1) * sizeof(double));
        if (!m->value[k]) return NULL;
    }
    if (!m->name) return NULL;
    t->count++;
    return m;
}

static cloob_status add_object(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object,
                               const char *prefix)
{
    for (const json *j = object->child; j; j = j->next) {
        sbuf name = { 0 };
        cloob_status status = CLOOB_OK;
        sbuf_printf(&name, "%s%s%s", prefix, *prefix ? "/" : "", j->key);
        if (name.failed) status = ctx_no_memory(ctx, 64, "a metric");
        else if (j->kind == JSON_OBJECT) status = add_object(ctx, a, t, method, j, name.data);
        else if (j->kind == JSON_NUMBER && isfinite(j->number) && ablation_is_metric(j->key)) {
            ablation_metric *m = find(a, t, name.data);
            if (!m) status = ctx_no_memory(ctx, sizeof *m, "a metric");
            else if (m->n[method] < t->seeds) m->value[method][m->n[method]++] = j->number;
        }
        sbuf_release(&name);
        CLOOB_TRY(status);
    }
    return CLOOB_OK;
}

cloob_status ablation_add(cloob_ctx *ctx, arena *a, ablation *t, int method, const json *object)
{
    return add_object(ctx, a, t, method, object, "");
}

/* ---- statistics ---------------------------------------------------------------------------------- */

static void describe(ablation_metric *m, int k)
{
    double sum = 0, square = 0, n = (double)m->n[k];
    for (int64_t i = 0; i < m->n[k]; i++) sum += m->value[k][i];
    m->mean[k] = m->n[k] ? sum / n : NAN;
    for (int64_t i = 0; i < m->n[k]; i++) square += (m->value[k][i] - m->mean[k]) * (m->value[k][i] - m->mean[k]);
    m->deviation[k] = m->n[k] > 1 ? sqrt(square / (n - 1)) : 0;
}

static cloob_status compare_pairs(cloob_ctx *ctx, const ablation *t, ablation_metric *m)
{
    for (int a = 0; a < t->methods; a++)
        for (int b = 0; b < t->methods; b++) {
            rank_sum r;
            m->p[a][b] = a == b ? 1 : NAN;
            if (a == b || !m->n[a] || !m->n[b]) continue;
            CLOOB_TRY(ranksum_test(ctx, &r, m->value[a], m->n[a], m->value[b], m->n[b], RANK_SUM_AUTO));
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
        if (m->n[k] && (m->best < 0 || sign * m->mean[k] > sign * m->mean[m->best])) m->best = k;
    for (int k = 0; m->best >= 0 && k < t->methods; k++)
        if (k != m->best) m->p_best = fmax(m->p_best, m->p[m->best][k]); /* fmax passes over NaN */
    m->significant = m->p_best < t->alpha;
}

cloob_status ablation_test(cloob_ctx *ctx, ablation *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        for (int k = 0; k < t->methods; k++) describe(&t->metric[i], k);
        CLOOB_TRY(compare_pairs(ctx, t, &t->metric[i]));
        find_best(t, &t->metric[i]);
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
        int d = m->n[k] && m->deviation[k] > 0 ? ablation_decimals(m->deviation[k], m->mean[k]) : -1;
        if (d > most) most = d;
    }
    return most;
}

/* As every table shows it: a page takes it from the JSON. */
static void put_rounded(sbuf *out, const ablation_metric *m, int k, int of_row)
{
    int d = ablation_decimals_in_row(m->deviation[k], m->mean[k], of_row);
    if (m->n[k]) sbuf_printf(out, "%.*f ± %.*f", d, m->mean[k], d, m->deviation[k]);
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
