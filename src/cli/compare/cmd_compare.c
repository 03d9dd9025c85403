/* cloob compare: groups of runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/shared_opts.h"
#include "cli/compare/compare_predictions.h"

static struct {
    int64_t epoch, resamples;
    double alpha;
    const char *by, *format;
    opt_list where;
    predictions_opts answers;
} o;

static const opt_row rows[] = {
    { "epoch", OPT_INT, &o.epoch, "-1", "N", "use only lines of this epoch; -1: every line is a run", 0 },
    { "alpha", OPT_DOUBLE, &o.alpha, "0.05", "X", "significance level", OPT_POSITIVE },
    { "by", OPT_STRING, &o.by, NULL, "NAME", "setting to group runs by; default: the method", 0 },
    { "where", OPT_LIST, &o.where, NULL, "KEY=VALUE", "use only runs with this setting", 0 },
    { "format", OPT_STRING, &o.format, "text", "text|markdown|latex|csv", "format of the tables", 0 },
    { "predictions", OPT_LIST, &o.answers.files, NULL, "FILE",
      "instead of runs: predictions that cloob zeroshot wrote, of models on the same images", 0 },
    { "bins", OPT_INT, &o.answers.bins, "15", "N", "calibration bins for --predictions", OPT_POSITIVE },
    { "reliability", OPT_STRING, &o.answers.reliability, NULL, "FILE.svg", "the reliability plot of --predictions", 0 },
    { "resamples", OPT_INT, &o.resamples, "10000", "N", "bootstrap resamples", OPT_POSITIVE },
    OPT_END,
};

static void print_group(const cloob_group *g)
{
    if (g->n) printf("  %12.6g +- %-10.4g (%lld)", g->mean, g->deviation, (long long)g->n);
    else printf("  %12s    %-10s (0)", "-", "");
}

static void print_text(const cloob_comparison *c)
{
    int width = 6;
    for (int64_t i = 0; i < c->metrics; i++)
        if ((int)strlen(c->row[i].metric) > width) width = (int)strlen(c->row[i].metric);
    printf("%-*s  %-31s %-31s p (two-sided)\n", width, "metric", "  A: mean +- spread (n)", "  B: mean +- spread (n)");
    for (int64_t i = 0; i < c->metrics; i++) {
        const cloob_compared *m = &c->row[i];
        printf("%-*s", width, m->metric);
        print_group(&m->a);
        print_group(&m->b);
        if (m->tested)
            printf("  %.4g (%s)%s", m->test.two_sided, m->test.exact ? "exact" : "normal",
                   !m->significant         ? ""
                   : m->a.mean > m->b.mean ? "  A is higher"
                                           : "  B is higher");
        putchar('\n');
    }
}

static cloob_status print_result(cloob_ctx *ctx, const cloob_comparison *c)
{
    if (c->skipped)
        fprintf(stderr, "warning: %lld values are no finite numbers and were left out\n", (long long)c->skipped);
    if (common.json) return cli_put_text(ctx, cloob_comparison_json(c));
    print_text(c);
    return CLOOB_OK;
}

static cloob_status two_files(cloob_ctx *ctx, const opt_list *file)
{
    cloob_comparison c;
    cloob_status status = cloob_compare(ctx, &c, file->item[0], file->item[1], o.epoch, o.alpha);
    if (status != CLOOB_OK) return status;
    status = print_result(ctx, &c);
    cloob_comparison_release(&c);
    return status;
}

static cloob_status many_runs(cloob_ctx *ctx, const opt_list *path)
{
    cloob_groups g;
    cloob_compare_options how;
    cloob_compare_options_init(&how);
    if (o.by) how.by = o.by;
    how.where = o.where.item, how.wheres = o.where.count;
    how.alpha = o.alpha, how.resamples = o.resamples, how.seed = (uint64_t)common.seed;
    cloob_status status = cloob_compare_runs(ctx, &g, path->item, path->count, &how);
    if (status != CLOOB_OK) return status;
    status = cli_put_text(ctx, cloob_groups_text(&g, common.json ? "json" : o.format));
    cloob_groups_release(&g);
    return status;
}

/* Two files without a word on groups: each is a group, line by line. */
static bool are_two_files(const opt_list *path)
{
    if (path->count != 2 || o.by || o.where.count || opt_given("format")) return false;
    return !cli_is_folder(path->item[0]) && !cli_is_folder(path->item[1]);
}

static int check_predictions(const command *self)
{
    if (opt_words.count) return cli_usage(self, "%s: give runs or --predictions", opt_words.item[0]);
    if (o.answers.bins > CLOOB_CALIBRATION_BINS)
        return cli_usage(self, "--bins %lld: at most %d", (long long)o.answers.bins, CLOOB_CALIBRATION_BINS);
    return -1;
}

static int check(const command *self)
{
    if (o.answers.files.count) return check_predictions(self);
    if (o.answers.reliability) return cli_usage(self, "--reliability needs --predictions");
    if (!opt_words.count) return cli_usage(self, "needs folders of runs, two files, or --predictions");
    if (opt_words.count == 1 && !cli_is_folder(opt_words.item[0]) && !o.by)
        return cli_usage(self, "needs two files, got 1, or --by");
    if (o.alpha >= 1) return cli_usage(self, "--alpha %g: needs a number below 1", o.alpha);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    o.answers.alpha = o.alpha, o.answers.resamples = o.resamples;
    if (o.answers.files.count) return cli_exit(self, ctx, compare_predictions(ctx, &o.answers));
    return cli_exit(self, ctx, are_two_files(&opt_words) ? two_files(ctx, &opt_words) : many_runs(ctx, &opt_words));
}

const command cmd_compare = {
    .name = "compare",
    .run = run,
    .check = check,
    .help = "compare groups of runs, with corrected significance tests",
    .options = rows,
    .uses = USES_SEED,
    .usage = "A.jsonl B.jsonl | RUN... [--by NAME] | --predictions A.csv B.csv...",
    .details =
        "Folders of runs, or of an ablation or a sweep, are grouped by a setting (--by, without it the method): means "
        "with\n"
        "bootstrap intervals, rank-sum tests of all pairs corrected by Holm, Cliff's delta. A sweep's results.jsonl "
        "works, too; --where stage=final leaves out its search. Two files without --by are two groups:\n"
        "\n"
        "Each line of a file is one run: a JSON object, whose numbers are its metrics. The test is the unpaired\n"
        "Wilcoxon rank-sum test, exact for up to 8 values without ties, otherwise normal with tie and continuity\n"
        "correction. The paper calls a difference significant below 5 %. With five runs a side the smallest exact\n"
        "two-sided p is 0.0079, with three it is 0.1: three runs cannot be significant.\n"
        "\n"
        "--predictions takes what cloob zeroshot --predictions wrote: each model's calibration (ECE), and of every "
        "two\n"
        "models on the same images bootstrap intervals of their accuracies and McNemar's paired test.\n"
        "\n"
        "  cloob compare clip.jsonl cloob.jsonl\n"
        "  cloob compare --predictions clip.csv cloob.csv --reliability reliability.svg\n"
        "  cloob compare logs/ablation --format latex\n"
        "  cloob compare logs/sweep/results.jsonl --by method --where stage=final --format markdown",
};
