#include "cli/compare/compare_predictions.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/json_out.h"

typedef struct file {
    cloob_predictions *p;
    cloob_calibration c;
    bool calibrated; /* it has probabilities */
} file;

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void put_range(const char *key, const double range[2])
{
    json_out_open(key, '[');
    json_out_number(NULL, range[0], 10);
    json_out_number(NULL, range[1], 10);
    json_out_close();
}

static void put_model(const char *path, const file *f)
{
    json_out_open(NULL, '{');
    json_out_text("file", path);
    json_out_int("n", cloob_predictions_count(f->p));
    if (f->calibrated) {
        json_out_number("accuracy", f->c.accuracy, 10);
        json_out_number("confidence", f->c.confidence, 10);
        json_out_number("ece", f->c.ece, 10);
        json_out_number("mce", f->c.mce, 10);
        json_out_number("brier", f->c.brier, 10);
        json_out_open("bins", '[');
        for (int b = 0; b < f->c.bins; b++) {
            json_out_open(NULL, '{');
            json_out_int("n", f->c.bin[b].n);
            json_out_number("confidence", f->c.bin[b].confidence, 10);
            json_out_number("accuracy", f->c.bin[b].accuracy, 10);
            json_out_close();
        }
        json_out_close();
    }
    json_out_close();
}

static void put_pair(const char *a, const char *b, const cloob_paired *r, double alpha)
{
    json_out_open(NULL, '{');
    json_out_text("a", a);
    json_out_text("b", b);
    json_out_int("n", r->n);
    json_out_int("left_out", r->left_out);
    json_out_number("accuracy_a", r->accuracy_a, 10);
    json_out_number("accuracy_b", r->accuracy_b, 10);
    json_out_number("difference", r->difference, 10);
    put_range("interval_a", r->interval_a);
    put_range("interval_b", r->interval_b);
    put_range("interval_difference", r->interval_difference);
    json_out_int("both", r->both);
    json_out_int("a_only", r->a_only);
    json_out_int("b_only", r->b_only);
    json_out_int("neither", r->neither);
    json_out_number("p_exact", r->p_exact, 10);
    json_out_number("p_chi2", r->p_chi2, 10);
    json_out_bool("significant", r->p_exact < alpha);
    json_out_close();
}

/* ---- text ---------------------------------------------------------------------------------------- */

static void print_model(const char *path, const file *f)
{
    printf("%s: %lld images", path, (long long)cloob_predictions_count(f->p));
    if (f->calibrated)
        printf(", accuracy %.4f, confidence %.4f, ECE %.4f, largest gap %.4f", f->c.accuracy, f->c.confidence, f->c.ece,
               f->c.mce);
    printf("\n");
}

static void print_pair(const char *a, const char *b, const cloob_paired *r, double alpha)
{
    printf("\nA %s\nB %s\n%lld images in both", a, b, (long long)r->n);
    if (r->left_out) printf(", %lld in one alone left out", (long long)r->left_out);
    printf("\n  A %.4f [%.4f, %.4f]   B %.4f [%.4f, %.4f]   A - B %+.4f [%+.4f, %+.4f]\n", r->accuracy_a,
           r->interval_a[0], r->interval_a[1], r->accuracy_b, r->interval_b[0], r->interval_b[1], r->difference,
           r->interval_difference[0], r->interval_difference[1]);
    printf("  right in both %lld, only in A %lld, only in B %lld, in none %lld\n", (long long)r->both,
           (long long)r->a_only, (long long)r->b_only, (long long)r->neither);
    printf("  McNemar: p %.4g exact, %.4g by chi-squared%s\n", r->p_exact, r->p_chi2,
           r->p_exact >= alpha ? ""
           : r->difference > 0 ? "  A is better"
                               : "  B is better");
}

/* ---- running ------------------------------------------------------------------------------------- */

static cloob_status open_all(cloob_ctx *ctx, const predictions_opts *o, file *f)
{
    for (int i = 0; i < o->files.count; i++) {
        cloob_status status = cloob_predictions_open(ctx, o->files.item[i], &f[i].p);
        if (status != CLOOB_OK) return status;
        f[i].calibrated = cloob_predictions_calibrate(ctx, f[i].p, (int)o->bins, &f[i].c) == CLOOB_OK;
        if (!f[i].calibrated && o->reliability) return CLOOB_ERR_FORMAT; /* the context says which file */
    }
    return CLOOB_OK;
}

static cloob_status every_pair(cloob_ctx *ctx, const predictions_opts *o, const file *f)
{
    cloob_paired_options how;
    cloob_paired_options_init(&how);
    how.resamples = o->resamples, how.seed = (uint64_t)common.seed;
    for (int i = 0; i < o->files.count; i++)
        for (int k = i + 1; k < o->files.count; k++) {
            cloob_paired r;
            cloob_status status = cloob_predictions_compare(ctx, f[i].p, f[k].p, &how, &r);
            if (status != CLOOB_OK) return status;
            (common.json ? put_pair : print_pair)(o->files.item[i], o->files.item[k], &r, o->alpha);
        }
    return CLOOB_OK;
}

static cloob_status plot(cloob_ctx *ctx, const predictions_opts *o, const file *f)
{
    cloob_calibration *c = malloc((size_t)o->files.count * sizeof *c);
    if (!c) return CLOOB_ERR_MEMORY;
    for (int i = 0; i < o->files.count; i++) c[i] = f[i].c;
    cloob_status status = cloob_calibration_plot(ctx, c, o->files.item, o->files.count, o->reliability);
    free(c);
    return status;
}

static cloob_status print_all(cloob_ctx *ctx, const predictions_opts *o, const file *f)
{
    if (common.json) json_out_open(NULL, '{'), json_out_open("models", '[');
    for (int i = 0; i < o->files.count; i++) (common.json ? put_model : print_model)(o->files.item[i], &f[i]);
    if (common.json) json_out_close(), json_out_open("pairs", '[');
    cloob_status status = every_pair(ctx, o, f);
    if (common.json) json_out_close(), json_out_close();
    return status;
}

cloob_status compare_predictions(cloob_ctx *ctx, const predictions_opts *o)
{
    file *f = calloc((size_t)o->files.count, sizeof *f);
    cloob_status status = f ? open_all(ctx, o, f) : CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK) status = print_all(ctx, o, f);
    if (status == CLOOB_OK && o->reliability) status = plot(ctx, o, f);
    for (int i = 0; i < o->files.count && f; i++) cloob_predictions_close(f[i].p);
    free(f);
    return status;
}
