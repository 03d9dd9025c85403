/* cloob report: writes an HTML page about runs. */
#include <stdio.h>

#include "cli/cli.h"
#include "lab/report/report.h"

static struct {
    const char *out, *title, *export;
    opt_list scores;
    bool no_samples;
} o;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, "report.html", "FILE", "output file", 0 },
    { "title", OPT_STRING, &o.title, NULL, "TEXT", "heading of the page; default: the names of the runs", 0 },
    { "scores", OPT_LIST, &o.scores, NULL, "DIR", "additional folders with zeroshot*.json, examples*.json", 0 },
    { "no-samples", OPT_FLAG, &o.no_samples, NULL, NULL, "do not run the model; show existing examples", 0 },
    { "export", OPT_STRING, &o.export, NULL, "DIR", "also write each chart as SVG and its numbers as CSV", 0 },
    OPT_END,
};

static int check(const command *self)
{
    return opt_words.count ? -1 : cli_usage(self, "needs a run's folder, LOGS/NAME");
}

static int run(const command *self, cloob_ctx *ctx)
{
    report_summary s;
    report_options ro;
    report_options_init(&ro);
    ro.title = o.title, ro.score_folder = o.scores.item, ro.score_folders = o.scores.count;
    ro.samples = !o.no_samples, ro.device = common.device, ro.export_dir = o.export;
    cloob_status status = report_write(ctx, opt_words.item, opt_words.count, o.out, &ro, &s);
    if (status == CLOOB_OK && !common.json) puts(o.out);
    else if (status == CLOOB_OK)
        json_out_object(NULL, J_OF(&o, out), J_OF(&s, runs), J_OF(&s, charts), J_OF(&s, damaged), J_OF(&s, bytes));
    return cli_exit(self, ctx, status);
}

const command cmd_report = {
    .name = "report",
    .run = run,
    .check = check,
    .help = "make an HTML page about runs: images, predictions, curves",
    .options = rows,
    .usage = "RUN... [--out report.html]",
    .details =
        "Makes one self-contained page from the run folders of cloob train. It loads nothing from the network and "
        "adapts to phones and dark mode. Several runs are drawn into the same charts. Zero-shot results "
        "(zeroshot*.json of cloob eval zeroshot --json, classify*.json of cloob classify --json) are found in the "
        "run's folder, its parent folder and the folder of the page. Examples from the run's validation data are first "
        "written to RUN/examples-validation.json.\n"
        "\n"
        "  cloob report logs/first --out report.html\n"
        "  cloob report logs/first --out report.html --export figures\n"
        "  cloob report logs/clip logs/cloob --out both.html --title \"CLIP and CLOOB\"",
};
