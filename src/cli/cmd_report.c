/* cloob report. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json_out.h"

static struct {
    const char *out, *title;
    opt_list scores;
} o;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, "report.html", "FILE", "the page", 0 },
    { "title", OPT_STRING, &o.title, NULL, "TEXT", "its heading; by default the runs' names", 0 },
    { "scores", OPT_LIST, &o.scores, NULL, "DIR", "further folders with zeroshot*.json, examples*.json", 0 },
    OPT_END,
};

static void print_result(const cloob_report_summary *s)
{
    if (!common.json) {
        printf("%s\n", o.out);
        return;
    }
    json_out_open(NULL, '{');
    json_out_text("out", o.out);
    json_out_int("runs", s->runs);
    json_out_int("charts", s->charts);
    json_out_int("damaged", s->damaged);
    json_out_int("bytes", s->bytes);
    json_out_close();
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_report_summary s;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (!rest.count) return cli_usage(self, "needs a run's folder, LOGS/NAME");
    cloob_ctx *ctx = cli_context();
    cloob_report_options ro = { .title = o.title, .score_folder = o.scores.item, .score_folders = o.scores.count };
    cloob_status status = cloob_report(ctx, rest.item, rest.count, o.out, &ro, &s);
    if (status == CLOOB_OK) print_result(&s);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_report = {
    .name = "report",
    .run = run,
    .help = "one HTML page about runs: curves, spectra, histograms, zero-shot",
    .options = rows,
    .usage = "RUN... [--out report.html]",
    .details =
        "Makes one self-contained page out of the folders that cloob train wrote. It needs no network, and suits a "
        "phone and\n"
        "dark mode. Several runs are drawn into the same charts. Zero-shot results (zeroshot*.json of cloob zeroshot "
        "--json,\n"
        "classify*.json of cloob classify --json) are taken from the run's folder, beside it, and beside the page.\n"
        "\n"
        "  cloob report logs/first --out report.html\n"
        "  cloob report logs/clip logs/cloob --out both.html --title \"CLIP and CLOOB\"",
};
