/* Spread of each modality, then how the two lie to each other. */
#include "eval/analysis.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/sbuf.h"
#include "core/needs.h"
#include "eval/eval_json.h"

static cloob_status run_spread(cloob_ctx *ctx, cloob_coverage *out, const unit_rows *x, double share)
{
    spectrum s;
    uniformity u;
    ctx_log(ctx, CLOOB_LOG_INFO, "%s: %lld x %lld: covariance and %.3g pairs", x->src.name, (long long)x->src.N,
            (long long)x->src.D, 0.5 * (double)x->src.N * (double)(x->src.N - 1));
    CLOOB_TRY(spectrum_run(ctx, &s, x, share));
    out->eigenvalue = s.value, out->dimensions = s.D, out->effective = s.effective, out->variance = s.total;
    CLOOB_TRY(uniformity_run(ctx, &u, x));
    out->ajne = u.ajne, out->uniformity = u.potential;
    return CLOOB_OK;
}

static cloob_status run_pair(cloob_ctx *ctx, cloob_analysis *out, const unit_rows *x, const unit_rows *y)
{
    CLOOB_TRY(unit_rows_match(ctx, x, y));
    out->paired = true;
    CLOOB_TRY(run_spread(ctx, &out->y, y, out->share));
    ctx_log(ctx, CLOOB_LOG_INFO, "matched and unmatched similarities");
    return similarity_run(ctx, &out->similarity, x, y);
}

cloob_status analysis_run(cloob_ctx *ctx, cloob_analysis *out, const rows *image, const rows *text, double share)
{
    unit_rows x, y;
    memset(out, 0, sizeof *out);
    if (!(share > 0 && share < 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "share %g: needs a number between 0 and 1", share);
    out->rows = image->N, out->share = share;
    CLOOB_TRY(unit_rows_init(ctx, &x, image));
    out->scaled = x.scaled;
    cloob_status status = CLOOB_OK;
    if (text) {
        status = unit_rows_init(ctx, &y, text);
        if (status == CLOOB_OK) {
            out->scaled += y.scaled;
            status = run_pair(ctx, out, &x, &y);
            unit_rows_release(&y);
        }
    }
    if (status == CLOOB_OK) status = run_spread(ctx, &out->x, &x, share);
    unit_rows_release(&x);
    return status;
}

void cloob_analysis_release(cloob_analysis *a)
{
    if (!a) return;
    free(a->x.eigenvalue), free(a->y.eigenvalue);
    a->x.eigenvalue = a->y.eigenvalue = NULL;
}

/* ---- files --------------------------------------------------------------------------------------- */

static void put_eigenvalues(sbuf *s, const cloob_analysis *a)
{
    sbuf_puts(s, a->paired ? "index\tx\ty\n" : "index\tx\n");
    for (int64_t i = 0; i < a->x.dimensions; i++) {
        sbuf_printf(s, "%lld\t%.9g", (long long)i + 1, a->x.eigenvalue[i]);
        if (a->paired) sbuf_printf(s, "\t%.9g", a->y.eigenvalue[i]);
        sbuf_putc(s, '\n');
    }
}

static void put_similarities(sbuf *s, const cloob_similarity *m)
{
    sbuf_puts(s, "from\tto\tmatched");
    for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++)
        sbuf_printf(s, "\ttop%lld_unmatched", (long long)m->unmatched[k].asked);
    for (int b = 0; b < CLOOB_SIMILARITY_BINS; b++) {
        sbuf_printf(s, "\n%.2f\t%.2f\t%lld", b / 100.0 - 1, (b + 1) / 100.0 - 1, (long long)m->matched.bin[b]);
        for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++) sbuf_printf(s, "\t%lld", (long long)m->unmatched[k].bin[b]);
    }
    sbuf_putc(s, '\n');
}

cloob_status analysis_write(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference,
                            const char *folder)
{
    API_NEEDS(ctx, a && folder);
    sbuf values = { 0 }, bins = { 0 };
    char *text = analysis_json(a, reference);
    cloob_status status = text ? file_make_dirs(ctx, folder) : ctx_no_memory(ctx, 4096, "analysis.json");
    if (status == CLOOB_OK)
        status = file_write_in(ctx, folder, "analysis.json", &(sbuf){ .data = text, .len = strlen(text) });
    put_eigenvalues(&values, a);
    if (status == CLOOB_OK) status = file_write_in(ctx, folder, "eigenvalues.tsv", &values);
    if (a->paired) put_similarities(&bins, &a->similarity);
    if (status == CLOOB_OK && a->paired) status = file_write_in(ctx, folder, "similarities.tsv", &bins);
    sbuf_release(&values), sbuf_release(&bins);
    free(text);
    return status;
}
