/* The paper's analysis of the embeddings: spectra, uniformity, similarities. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "lab/report/page.h"
#include "lab/report/report.h"

enum { SHOWN_EPOCHS = 6, SHOWN_RUNS = 8 };

/* ---- spectra ------------------------------------------------------------------------------------- */

static void add_spectrum(const chart *c, chart_series *s, const tsv *t, const char *column)
{
    int64_t x = tsv_find(t, "index"), y = tsv_find(t, column);
    for (int64_t i = 0; x >= 0 && y >= 0 && i < t->rows; i++) /* few rows leave zeros, scattered around 1e-17 */
        if (tsv_at(t, i, y) > 1e-12) chart_point(c, s, tsv_at(t, i, x), tsv_at(t, i, y));
}

/* `shown` epochs of a run, the first and the last among them; the names begin with `prefix`. */
static void add_epochs(page *p, chart *c, const run_files *r, int64_t shown, const char *column, const char *prefix)
{
    if (shown > r->analyses) shown = r->analyses;
    for (int64_t i = 0; i < shown; i++) {
        const run_analysis *it = &r->analysis[shown > 1 ? i * (r->analyses - 1) / (shown - 1) : 0];
        char name[80];
        snprintf(name, sizeof name, "%.40sepoch %lld", prefix, (long long)it->epoch);
        add_spectrum(c, chart_add(p->memory, c, name, (int)c->count, it->eigenvalues.rows), &it->eigenvalues, column);
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
        const tsv *t = r->analyses ? &r->analysis[r->analyses - 1].eigenvalues : NULL;
        if (t) add_spectrum(&c, page_add(p, &c, i, t->rows), t, column);
    }
    page_chart(p, &c);
}

/* Several methods: the first run of each, at its first and last epoch. */
static void spectra_by_method(page *p, const char *title, const char *column)
{
    chart c = { .title = title, .x_label = "rank", .y_label = "eigenvalue", .log_y = true };
    int64_t methods = 0;
    for (const run_files *r = p->run; r < p->run + p->runs && methods < SHOWN_RUNS; r++) {
        char prefix[48];
        bool seen = !r->method || !r->analyses;
        for (const run_files *k = p->run; k < r && !seen; k++)
            seen = k->analyses && k->method && strcmp(k->method, r->method) == 0;
        if (seen) continue;
        snprintf(prefix, sizeof prefix, "%.40s, ", r->method);
        add_epochs(p, &c, r, 2, column, prefix);
        methods++;
    }
    if (methods > 1) page_chart(p, &c);
}

/* ---- similarities -------------------------------------------------------------------------------- */

static double sum_of(const tsv *t, int64_t column)
{
    double sum = 0;
    for (int64_t i = 0; i < t->rows; i++) sum += tsv_at(t, i, column);
    return sum;
}

/* Leaves out bins that are empty in all shown sets, except one on each side. */
static void shown_bins(const tsv *t, const char *const *column, int columns, int64_t *from, int64_t *to)
{
    *from = t->rows, *to = -1;
    for (int k = 0; k < columns; k++) {
        int64_t c = tsv_find(t, column[k]);
        for (int64_t i = 0; c >= 0 && i < t->rows; i++) {
            if (tsv_at(t, i, c) <= 0) continue;
            if (i < *from) *from = i;
            if (i > *to) *to = i;
        }
    }
    if (*from > 0) --*from;
    if (*to < t->rows - 1) ++*to;
}

/* c has no series yet. */
static void add_histogram(arena *a, chart *c, const tsv *t)
{
    static const char *const column[] = { "matched", "top10_unmatched", "top1000_unmatched" };
    static const int color[] = { 2, 1, 0 };
    int64_t low = tsv_find(t, "from"), high = tsv_find(t, "to"), first, last;
    c->x_label = "cosine similarity", c->y_label = "share of pairs per bin, %", c->fill = true;
    if (low < 0 || high < 0) return;
    shown_bins(t, column, 3, &first, &last);
    double matched = tsv_find(t, column[0]) < 0 ? 0 : sum_of(t, tsv_find(t, column[0]));
    for (int k = 0; k < 3; k++) {
        int64_t y = tsv_find(t, column[k]);
        double sum = y < 0 ? 0 : sum_of(t, y);
        char label[64] = "matched"; /* the number counted: N pairs have at most N - 1 unmatched texts */
        if (k) snprintf(label, sizeof label, "top-%.0f unmatched", round(sum / fmax(1, matched)));
        chart_series *s = sum > 0 ? chart_add(a, c, label, color[k], t->rows) : NULL;
        for (int64_t i = first; s && i <= last; i++)
            chart_point(c, s, (tsv_at(t, i, low) + tsv_at(t, i, high)) / 2, 100 * tsv_at(t, i, y) / sum);
    }
}

static void histogram(page *p, const run_files *r, const run_analysis *it)
{
    char title[200];
    chart c = { .title = title };
    if (p->runs > 1) snprintf(title, sizeof title, "Similarities, %.120s, epoch %lld", r->name, (long long)it->epoch);
    else snprintf(title, sizeof title, "Similarities after epoch %lld", (long long)it->epoch);
    add_histogram(p->memory, &c, &it->similarities);
    page_chart(p, &c);
}

/* Of one run the first and the last epoch; of several the last epoch of the first with its settings. */
static void histograms(page *p)
{
    int64_t shown = 0;
    if (p->runs == 1 && p->run[0].analyses > 1) histogram(p, &p->run[0], &p->run[0].analysis[0]);
    for (int64_t i = 0; i < p->runs && shown < SHOWN_RUNS; i++) {
        if (p->first_repeat[i] != i || !p->run[i].analyses) continue;
        histogram(p, &p->run[i], &p->run[i].analysis[p->run[i].analyses - 1]);
        shown++;
    }
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
    histograms(p);
    sbuf_puts(&p->html, "</div>\n");
}

/* ---- plots of one analysis -------------------------------------------------------------------------- */

static cloob_status write_plot(cloob_ctx *ctx, const chart *c, const char *folder, const char *name)
{
    sbuf svg = { 0 };
    if (!chart_points(c)) return CLOOB_OK;
    chart_svg(&svg, c, true);
    cloob_status status = file_write_in(ctx, folder, name, &svg);
    sbuf_release(&svg);
    return status;
}

cloob_status analysis_plots(cloob_ctx *ctx, const char *folder)
{
    arena memory = { 0 };
    run_analysis a = { 0 };
    chart spectrum = {
        .title = "Eigenvalues of the covariance", .x_label = "rank", .y_label = "eigenvalue", .log_y = true
    };
    chart similarities = { .title = "Similarity of matched and unmatched pairs" };
    cloob_status status = run_analysis_read(ctx, &memory, folder, &a);
    if (status == CLOOB_OK) {
        add_spectrum(&spectrum, chart_add(&memory, &spectrum, "images", 0, a.eigenvalues.rows), &a.eigenvalues, "x");
        add_spectrum(&spectrum, chart_add(&memory, &spectrum, "texts", 1, a.eigenvalues.rows), &a.eigenvalues, "y");
        add_histogram(&memory, &similarities, &a.similarities);
        status = write_plot(ctx, &spectrum, folder, "spectrum.svg");
    }
    if (status == CLOOB_OK) status = write_plot(ctx, &similarities, folder, "similarities.svg");
    arena_release(&memory);
    return status;
}
