/* cloob compare: compares groups of runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "lab/compare/groups.h"

static struct {
    compare_options how;
    int64_t epoch;
    const char *format;
    opt_list where;
    bool paper;
} o;

static const opt_row rows[] = {
    { "epoch", OPT_INT, &o.epoch, "-1", "N", "use only lines of this epoch; -1: every line is a run", 0 },
    { "alpha", OPT_DOUBLE, &o.how.alpha, "0.05", "X", "significance level", OPT_POSITIVE },
    { "by", OPT_STRING, &o.how.by, NULL, "NAME", "setting to group runs by; default: the method", 0 },
    { "where", OPT_LIST, &o.where, NULL, "KEY=VALUE", "use only runs with this setting", 0 },
    { "metrics", OPT_STRING, &o.how.metrics, NULL, "A,B", "show only these metrics, in this order", 0 },
    { "format", OPT_STRING, &o.format, "text", "text|markdown|latex|csv", "format of the tables", 0 },
    { "paper", OPT_FLAG, &o.paper, NULL, NULL,
      "print the tables of the CLOOB paper next to results on the same data sets", 0 },
    { "resamples", OPT_INT, &o.how.resamples, "10000", "N", "bootstrap resamples", OPT_POSITIVE },
    OPT_END,
};

static cloob_status two_files(cloob_ctx *ctx, const opt_list *file)
{
    groups_result g;
    CLOOB_TRY(compare_files(ctx, &g, file->item[0], file->item[1], o.epoch, o.how.alpha));
    if (g.skipped) cli_print("warning: ", "%lld values are not finite and were skipped", (long long)g.skipped);
    cli_put_text(common.json ? groups_two_json(&g) : groups_text(&g, o.format));
    groups_release(&g);
    return CLOOB_OK;
}

static cloob_status many_runs(cloob_ctx *ctx, const opt_list *path)
{
    groups_result g;
    o.how.where = o.where.item, o.how.wheres = o.where.count, o.how.seed = (uint64_t)common.seed;
    CLOOB_TRY(compare_runs(ctx, &g, path->item, path->count, &o.how));
    cli_put_text(groups_text(&g, common.json ? "json" : o.format));
    groups_release(&g);
    return CLOOB_OK;
}

/* Whether the arguments are two files without --by: each file is then a group, and each line a run. */
static bool are_two_files(const opt_list *path)
{
    if (path->count != 2 || o.how.by || o.how.metrics || o.where.count) return false;
    return !file_is_dir(path->item[0]) && !file_is_dir(path->item[1]);
}

/* ---- the command --------------------------------------------------------------------------------- */

static cloob_status with_paper(cloob_ctx *ctx)
{
    char *text;
    CLOOB_TRY(compare_paper(ctx, opt_words.item, opt_words.count, common.json ? "json" : o.format, &text));
    return cli_put_text(text);
}

static int check(const command *self)
{
    if (o.paper && (o.how.by || o.how.metrics || o.where.count))
        return cli_usage(self, "--paper cannot be combined with --by, --metrics or --where");
    if (o.paper && strcmp(o.format, "text") != 0 && strcmp(o.format, "markdown") != 0)
        return cli_usage(self, "--format %s: --paper supports text, markdown and --json", o.format);
    if (o.paper) return -1;
    if (!opt_words.count) return cli_usage(self, "needs folders of runs, or two files");
    if (opt_words.count == 1 && file_exists(opt_words.item[0]) && !file_is_dir(opt_words.item[0]) && !o.how.by)
        return cli_usage(self, "needs two files, got 1, or --by");
    if (o.how.alpha >= 1) return cli_usage(self, "--alpha %g: must be below 1", o.how.alpha);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    if (o.paper) return cli_exit(self, ctx, with_paper(ctx));
    return cli_exit(self, ctx, are_two_files(&opt_words) ? two_files(ctx, &opt_words) : many_runs(ctx, &opt_words));
}

const command cmd_compare = {
    .name = "compare",
    .run = run,
    .check = check,
    .help = "compare groups of runs, with corrected significance tests",
    .options = rows,
    .uses = USES_SEED,
    .usage = "A.jsonl B.jsonl | RUN... [--by NAME] | --paper [RESULTS...]",
    .details =
        "Groups runs by a setting (--by; default: the method) and prints means with bootstrap intervals, rank-sum "
        "tests of all pairs corrected by Holm, and Cliff's delta. RUN is the folder of a run, an ablation or a sweep, "
        "or a sweep's results.jsonl. For a sweep, the final runs are compared; --where stage=search compares its "
        "search runs. Unfinished runs are left out; a warning names them.\n"
        "\n"
        "Two files without --by are two groups. Each line of a file is one run: a JSON object whose numbers are its "
        "metrics. The test is the unpaired Wilcoxon rank-sum test, exact for up to 8 values without ties, otherwise "
        "normal with tie and continuity correction. The paper calls a difference significant below 5 %. With five runs "
        "a side the smallest exact two-sided p is 0.0079, with three it is 0.1: three runs cannot be significant.\n"
        "\n"
        "--paper prints the published tables of CLOOB and CLIP, in per cent, with the means of the given "
        "results: folders of cloob eval suite, files of cloob eval zeroshot --json, training runs with --imagenet-val. "
        "Data sets are matched by name. Give the runs of one method at a time; five seeds become one mean.\n"
        "\n"
        "  cloob compare clip.jsonl cloob.jsonl\n"
        "  cloob compare --paper benchmark\n"
        "  cloob compare logs/ablation --format latex\n"
        "  cloob compare logs/ablation --metrics val_loss,text_to_image_R@1 --format markdown\n"
        "  cloob compare logs/sweep/results.jsonl --by method --format markdown",
};
