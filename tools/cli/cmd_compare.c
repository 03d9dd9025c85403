/* cloob compare: groups of runs, or models by their predictions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "infer/predictions.h"
#include "lab/compare/groups.h"
#include "lab/report/report.h"

static struct {
    compare_options how;
    int64_t epoch, bins;
    const char *format, *reliability;
    opt_list where, predictions;
    bool paper;
} o;

static const opt_row rows[] = {
    { "epoch", OPT_INT, &o.epoch, "-1", "N", "use only lines of this epoch; -1: every line is a run", 0 },
    { "alpha", OPT_DOUBLE, &o.how.alpha, "0.05", "X", "significance level", OPT_POSITIVE },
    { "by", OPT_STRING, &o.how.by, NULL, "NAME", "setting to group runs by; default: the method", 0 },
    { "where", OPT_LIST, &o.where, NULL, "KEY=VALUE", "use only runs with this setting", 0 },
    { "metrics", OPT_STRING, &o.how.metrics, NULL, "A,B", "one table of main results: these metrics by group", 0 },
    { "format", OPT_STRING, &o.format, "text", "text|markdown|latex|csv", "format of the tables", 0 },
    { "paper", OPT_FLAG, &o.paper, NULL, NULL, "the tables of the CLOOB paper, next to results on the same data sets",
      0 },
    { "predictions", OPT_LIST, &o.predictions, NULL, "FILE",
      "instead of runs: predictions that cloob eval zeroshot wrote, of models on the same images", 0 },
    { "bins", OPT_INT, &o.bins, "15", "N", "calibration bins for --predictions", OPT_POSITIVE },
    { "reliability", OPT_STRING, &o.reliability, NULL, "FILE.svg", "the reliability plot of --predictions", 0 },
    { "resamples", OPT_INT, &o.how.resamples, "10000", "N", "bootstrap resamples", OPT_POSITIVE },
    OPT_END,
};

static cloob_status two_files(cloob_ctx *ctx, const opt_list *file)
{
    groups_result g;
    CLOOB_TRY(compare_files(ctx, &g, file->item[0], file->item[1], o.epoch, o.how.alpha));
    if (g.skipped) cli_print("warning: ", "%lld values are not finite and were skipped", (long long)g.skipped);
    cli_put_text(groups_two(&g, common.json));
    groups_release(&g);
    return CLOOB_OK;
}

static cloob_status many_runs(cloob_ctx *ctx, const opt_list *path)
{
    groups_result g;
    o.how.where = o.where.item, o.how.wheres = o.where.count, o.how.seed = (uint64_t)common.seed;
    CLOOB_TRY(compare_runs(ctx, &g, path->item, path->count, &o.how));
    char *(*table)(const groups_result *, const char *) = o.how.metrics ? groups_main_table : groups_text;
    cli_put_text(table(&g, common.json ? "json" : o.format));
    groups_release(&g);
    return CLOOB_OK;
}

/* Two files without --by: each file is a group, each line a run. */
static bool are_two_files(const opt_list *path)
{
    if (path->count != 2 || o.how.by || o.how.metrics || o.where.count || opt_given("format")) return false;
    return !file_is_dir(path->item[0]) && !file_is_dir(path->item[1]);
}

/* ---- predictions: models on the same images ---- */

typedef struct file {
    predictions *p;
    calibration c;
    bool calibrated; /* it has probabilities */
} file;

/* ---- predictions as JSON ---------------------------------------------------------------------------------------- */

static void put_range(const char *key, const double range[2])
{
    json_out_open(key, '[');
    json_out_members(J_NUMBER(NULL, range[0], 10), J_NUMBER(NULL, range[1], 10));
    json_out_close();
}

static void put_model(const char *path, const file *f)
{
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("file", path), J_INT("n", predictions_count(f->p)));
    if (f->calibrated) {
        json_out_members(J_NUMBER("accuracy", f->c.accuracy, 10), J_NUMBER("confidence", f->c.confidence, 10),
                         J_NUMBER("ece", f->c.ece, 10), J_NUMBER("mce", f->c.mce, 10),
                         J_NUMBER("brier", f->c.brier, 10));
        json_out_open("bins", '[');
        for (int b = 0; b < f->c.bins; b++)
            json_out_object(NULL, J_INT("n", f->c.bin[b].n), J_NUMBER("confidence", f->c.bin[b].confidence, 10),
                            J_NUMBER("accuracy", f->c.bin[b].accuracy, 10));
        json_out_close();
    }
    json_out_close();
}

static void put_pair(const char *a, const char *b, const paired_result *r, double alpha)
{
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("a", a), J_TEXT("b", b), J_OF(r, n), J_OF(r, left_out),
                     J_NUMBER("accuracy_a", r->accuracy_a, 10), J_NUMBER("accuracy_b", r->accuracy_b, 10),
                     J_NUMBER("difference", r->difference, 10));
    put_range("interval_a", r->interval_a);
    put_range("interval_b", r->interval_b);
    put_range("interval_difference", r->interval_difference);
    json_out_members(J_OF(r, both), J_OF(r, a_only), J_OF(r, b_only), J_OF(r, neither),
                     J_NUMBER("p_exact", r->p_exact, 10), J_NUMBER("p_chi2", r->p_chi2, 10),
                     J_BOOL("significant", r->p_exact < alpha));
    json_out_close();
}

/* ---- text ---------------------------------------------------------------------------------------- */

static void print_model(const char *path, const file *f)
{
    printf("%s: %lld images", path, (long long)predictions_count(f->p));
    if (f->calibrated)
        printf(", accuracy %.4f, confidence %.4f, ECE %.4f, largest gap %.4f", f->c.accuracy, f->c.confidence, f->c.ece,
               f->c.mce);
    printf("\n");
}

static void print_pair(const char *a, const char *b, const paired_result *r, double alpha)
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

static cloob_status open_all(cloob_ctx *ctx, file *f)
{
    for (int i = 0; i < o.predictions.count; i++) {
        CLOOB_TRY(predictions_open(ctx, o.predictions.item[i], &f[i].p));
        f[i].calibrated = predictions_calibrate(ctx, f[i].p, (int)o.bins, &f[i].c) == CLOOB_OK;
        if (!f[i].calibrated && o.reliability) return CLOOB_ERR_FORMAT; /* the context says which file */
    }
    return CLOOB_OK;
}

static cloob_status every_pair(cloob_ctx *ctx, const file *f)
{
    paired_options how;
    paired_options_init(&how);
    how.resamples = o.how.resamples, how.seed = (uint64_t)common.seed;
    for (int i = 0; i < o.predictions.count; i++)
        for (int k = i + 1; k < o.predictions.count; k++) {
            paired_result r;
            CLOOB_TRY(predictions_compare(ctx, f[i].p, f[k].p, &how, &r));
            (common.json ? put_pair : print_pair)(o.predictions.item[i], o.predictions.item[k], &r, o.how.alpha);
        }
    return CLOOB_OK;
}

static cloob_status plot(cloob_ctx *ctx, const file *f)
{
    calibration *c = must(malloc((size_t)o.predictions.count * sizeof *c));
    for (int i = 0; i < o.predictions.count; i++) c[i] = f[i].c;
    cloob_status status = calibration_plot(ctx, c, o.predictions.item, o.predictions.count, o.reliability);
    free(c);
    return status;
}

static cloob_status print_all(cloob_ctx *ctx, const file *f)
{
    if (common.json) json_out_open(NULL, '{'), json_out_open("models", '[');
    for (int i = 0; i < o.predictions.count; i++) (common.json ? put_model : print_model)(o.predictions.item[i], &f[i]);
    if (common.json) json_out_close(), json_out_open("pairs", '[');
    cloob_status status = every_pair(ctx, f);
    if (common.json) json_out_close(), json_out_close();
    return status;
}

/* Every file's calibration, every pair's test. */
static cloob_status compare_predictions(cloob_ctx *ctx)
{
    file *f = must(calloc((size_t)o.predictions.count, sizeof *f));
    cloob_status status = open_all(ctx, f);
    if (status == CLOOB_OK) status = print_all(ctx, f);
    if (status == CLOOB_OK && o.reliability) status = plot(ctx, f);
    for (int i = 0; i < o.predictions.count; i++) predictions_close(f[i].p);
    free(f);
    return status;
}

/* ---- the command ---- */

static cloob_status with_paper(cloob_ctx *ctx)
{
    char *text;
    CLOOB_TRY(compare_paper(ctx, opt_words.item, opt_words.count, common.json ? "json" : o.format, &text));
    return cli_put_text(text);
}

static int check_predictions(const command *self)
{
    if (opt_words.count) return cli_usage(self, "%s: give runs or --predictions", opt_words.item[0]);
    if (o.bins > CALIBRATION_BINS)
        return cli_usage(self, "--bins %lld: at most %d", (long long)o.bins, CALIBRATION_BINS);
    return -1;
}

static int check(const command *self)
{
    if (o.paper && (o.predictions.count || o.how.by || o.how.metrics || o.where.count))
        return cli_usage(
            self, "--paper is for results of cloob eval alone: leave out --predictions, --by, --metrics, --where");
    if (o.paper && strcmp(o.format, "text") != 0 && strcmp(o.format, "markdown") != 0)
        return cli_usage(self, "--format %s: --paper has text and markdown; --json is for programs", o.format);
    if (o.paper) return -1;
    if (o.predictions.count) return check_predictions(self);
    if (o.reliability) return cli_usage(self, "--reliability needs --predictions");
    if (!opt_words.count) return cli_usage(self, "needs folders of runs, two files, or --predictions");
    if (opt_words.count == 1 && !file_is_dir(opt_words.item[0]) && !o.how.by)
        return cli_usage(self, "needs two files, got 1, or --by");
    if (o.how.alpha >= 1) return cli_usage(self, "--alpha %g: needs a number below 1", o.how.alpha);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    if (o.paper) return cli_exit(self, ctx, with_paper(ctx));
    if (o.predictions.count) return cli_exit(self, ctx, compare_predictions(ctx));
    return cli_exit(self, ctx, are_two_files(&opt_words) ? two_files(ctx, &opt_words) : many_runs(ctx, &opt_words));
}

const command cmd_compare = {
    .name = "compare",
    .run = run,
    .check = check,
    .help = "compare groups of runs, with corrected significance tests",
    .options = rows,
    .uses = USES_SEED,
    .usage = "A.jsonl B.jsonl | RUN... [--by NAME] | --predictions A.csv B.csv... | --paper [RESULTS...]",
    .details =
        "Groups runs by a setting (--by; default: the method) and prints means with bootstrap intervals, rank-sum "
        "tests of all pairs corrected by Holm, and Cliff's delta. RUN is the folder of a run, an ablation or a sweep, "
        "or a sweep's results.jsonl. For a sweep, the final runs are compared; --where stage=search compares its "
        "search runs. Unfinished runs are left out and named.\n"
        "\n"
        "Two files without --by are two groups. Each line of a file is one run: a JSON object whose numbers are its "
        "metrics. The test is the unpaired Wilcoxon rank-sum test, exact for up to 8 values without ties, otherwise "
        "normal with tie and continuity correction. The paper calls a difference significant below 5 %. With five runs "
        "a side the smallest exact two-sided p is 0.0079, with three it is 0.1: three runs cannot be significant.\n"
        "\n"
        "--predictions reads files of cloob eval zeroshot --predictions: each model's calibration (ECE), and for every "
        "two models on the same images bootstrap intervals of their accuracies and McNemar's paired test.\n"
        "\n"
        "--paper prints the published tables of CLOOB and CLIP, in per cent, with the mean of the results that are "
        "given: folders of cloob eval suite, files of cloob eval zeroshot --json, training runs with --imagenet-val. "
        "Data sets are matched by name. Give the runs of one method at a time; five seeds become one mean.\n"
        "\n"
        "  cloob compare clip.jsonl cloob.jsonl\n"
        "  cloob compare --paper benchmark\n"
        "  cloob compare --predictions clip.csv cloob.csv --reliability reliability.svg\n"
        "  cloob compare logs/ablation --format latex\n"
        "  cloob compare logs/ablation --metrics val_loss,text_to_image_R@1 --format markdown\n"
        "  cloob compare logs/sweep/results.jsonl --by method --format markdown",
};
