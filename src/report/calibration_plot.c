/* The reliability plot: how often a model is right where it says p. */
#include <stdlib.h>

#include "cloob/predictions.h"
#include "core/file.h"
#include "core/needs.h"
#include "report/chart_image.h"

static void add_model(arena *a, chart *c, const char *name, int color, const cloob_calibration *m, bool *failed)
{
    chart_series *line = chart_add(a, c, name, color, m->bins);
    if (!line) *failed = true;
    for (int b = 0; line && b < m->bins; b++)
        if (m->bin[b].n) chart_point(c, line, m->bin[b].confidence, m->bin[b].accuracy);
}

cloob_status cloob_calibration_plot(cloob_ctx *ctx, const cloob_calibration *m, const char *const *name, int64_t n,
                                    const char *path)
{
    API_NEEDS(ctx, m && name && n > 0 && path);
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
    else
        status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                          "this build draws no plots; install cairo (libcairo2-dev) and build again");
    sbuf_release(&svg);
    arena_release(&a);
    return status;
}
