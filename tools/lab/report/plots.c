/* The paper's two figures of embeddings: the spectrum of the covariance, and how similar matched and
 * unmatched pairs are. */
#include "lab/report/report.h"

#include <stdio.h>

#include "core/file.h"
#include "lab/report/chart.h"

typedef struct plot {
    cloob_ctx *ctx;
    arena memory;
    chart c;
    bool failed;
} plot;

static chart_series *add(plot *p, const char *name, int color, int64_t n)
{
    chart_series *s = chart_add(&p->memory, &p->c, name, color, n);
    if (!s) p->failed = true;
    return s;
}

static cloob_status write_image(cloob_ctx *ctx, const char *folder, const char *name, const char *ending,
                                const sbuf *image)
{
    char file[64];
    snprintf(file, sizeof file, "%s.%s", name, ending);
    return file_write_in(ctx, folder, file, image);
}

static cloob_status finish(plot *p, const char *folder, const char *name)
{
    sbuf svg = { 0 }, pdf = { 0 };
    cloob_status status;
    bool drawn = !p->failed && chart_draw(&svg, &p->c, CHART_ALONE) && chart_draw_pdf(&pdf, &p->c);
    if (p->failed || svg.failed || pdf.failed) status = ctx_no_memory(p->ctx, 4096, name);
    else if (drawn) status = write_image(p->ctx, folder, name, "svg", &svg);
    else status = ctx_fail(p->ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
    if (status == CLOOB_OK) status = write_image(p->ctx, folder, name, "pdf", &pdf);
    sbuf_release(&svg), sbuf_release(&pdf);
    arena_release(&p->memory);
    return status;
}

/* ---- the spectrum -------------------------------------------------------------------------------- */

static void add_spectrum(plot *p, const char *name, int color, const cloob_coverage *s)
{
    chart_series *line = add(p, name, color, s->dimensions);
    for (int64_t i = 0; line && i < s->dimensions;
         i++) /* few rows leave zeros in the covariance, which rounding scatters around 1e-17 */
        if (s->eigenvalue[i] > 1e-12) chart_point(&p->c, line, (double)i + 1, s->eigenvalue[i]);
}

static bool has_variance(const cloob_analysis *a) { return a->x.dimensions > 0 && a->x.eigenvalue[0] > 1e-12; }

static cloob_status spectrum(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                             const char *folder)
{
    char name[64];
    plot p = {
        .ctx = ctx,
        .c = { .title = "Eigenvalues of the covariance", .x_label = "rank", .y_label = "eigenvalue", .log_y = true }
    };
    if (!has_variance(a)) return CLOOB_OK; /* all rows are one point */
    snprintf(name, sizeof name, "image, %lld effective", (long long)a->x.effective);
    add_spectrum(&p, name, 0, &a->x);
    if (a->paired) {
        snprintf(name, sizeof name, "text, %lld effective", (long long)a->y.effective);
        add_spectrum(&p, name, 1, &a->y);
    }
    if (reference) add_spectrum(&p, "reference, image", 5, &reference->x);
    if (reference && reference->paired) add_spectrum(&p, "reference, text", 4, &reference->y);
    return finish(&p, folder, "spectrum");
}

/* ---- similarities -------------------------------------------------------------------------------- */

static void add_bins(plot *p, const char *name, int color, const cloob_similarity_set *s)
{
    int64_t from = CLOOB_SIMILARITY_BINS, to = -1;
    chart_series *line = add(p, name, color, CLOOB_SIMILARITY_BINS);
    for (int64_t b = 0; b < CLOOB_SIMILARITY_BINS; b++) {
        if (!s->bin[b]) continue;
        if (from > b) from = b;
        to = b;
    }
    if (from > 0) from--; /* an empty bin on each side, so that the curve comes down */
    if (to < CLOOB_SIMILARITY_BINS - 1) to++;
    for (int64_t b = from; line && s->count && b <= to; b++)
        chart_point(&p->c, line, ((double)b + 0.5) / 100 - 1, 100 * (double)s->bin[b] / (double)s->count);
}

static cloob_status similarities(cloob_ctx *ctx, const cloob_analysis *a, const char *folder)
{
    static const int color[CLOOB_UNMATCHED_SETS] = { 1, 4, 0 };
    char name[64];
    plot p = { .ctx = ctx,
               .c = { .title = "Similarity of matched and unmatched pairs",
                      .x_label = "cosine similarity",
                      .y_label = "share of pairs per bin of 0.01, %",
                      .fill = true } };
    add_bins(&p, "matched", 2, &a->similarity.matched);
    for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++) {
        const cloob_similarity_set *s = &a->similarity.unmatched[k];
        snprintf(name, sizeof name, "top-%lld unmatched", (long long)s->k);
        if (s->k > 0) add_bins(&p, name, color[k], s);
        if (s->k < s->asked) break; /* larger sets are the same values */
    }
    return finish(&p, folder, "similarities");
}

cloob_status analysis_plots(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder)
{
    CLOOB_TRY(spectrum(ctx, a, reference, folder));
    return a->paired ? similarities(ctx, a, folder) : CLOOB_OK;
}

/* ---- the reliability plot: how often a model is right where it says p ---- */

static void add_model(arena *a, chart *c, const char *name, int color, const calibration *m, bool *failed)
{
    chart_series *line = chart_add(a, c, name, color, m->bins);
    if (!line) *failed = true;
    for (int b = 0; line && b < m->bins; b++)
        if (m->bin[b].n) chart_point(c, line, m->bin[b].confidence, m->bin[b].accuracy);
}

cloob_status calibration_plot(cloob_ctx *ctx, const calibration *m, const char *const *name, int64_t n,
                              const char *path)
{
    arena a = { 0 };
    sbuf svg = { 0 };
    bool failed = false;
    cloob_status status;
    chart c = { .title = "Reliability", .x_label = "confidence", .y_label = "accuracy", .from_zero = true };
    chart_series *diagonal = chart_add(&a, &c, "calibrated", 7, 2);
    if (diagonal) chart_point(&c, diagonal, 0, 0), chart_point(&c, diagonal, 1, 1);
    for (int64_t i = 0; i < n; i++) add_model(&a, &c, name[i], (int)i, &m[i], &failed);
    if (failed || !diagonal) status = ctx_no_memory(ctx, 4096, path);
    else if (chart_draw(&svg, &c, CHART_ALONE))
        status = svg.failed ? ctx_no_memory(ctx, svg.len, path) : file_write(ctx, path, svg.data, svg.len);
    else status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, CHART_NO_CAIRO);
    sbuf_release(&svg);
    arena_release(&a);
    return status;
}
