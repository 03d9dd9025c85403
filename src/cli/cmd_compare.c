/* cloob compare: two groups of runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

static struct {
    int64_t epoch;
    double alpha;
} o;

static const opt_row rows[] = {
    { "epoch", OPT_INT, &o.epoch, "-1", "N", "only lines of that epoch; -1: every line is a run", 0 },
    { "alpha", OPT_DOUBLE, &o.alpha, "0.05", "X", "p-values below it are significant", OPT_POSITIVE },
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

static void print_result(const cloob_comparison *c)
{
    if (c->skipped)
        fprintf(stderr, "warning: %lld values are no finite numbers and were left out\n", (long long)c->skipped);
    if (!common.json) {
        print_text(c);
        return;
    }
    char *text = cloob_comparison_json(c);
    fputs(text ? text : "", stdout);
    free(text);
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count != 2) return cli_usage(self, "needs two files, got %d", rest.count);
    if (o.alpha >= 1) return cli_usage(self, "--alpha %g: needs a number below 1", o.alpha);
    cloob_ctx *ctx = cli_context();
    cloob_comparison c;
    cloob_status status = cloob_compare(ctx, &c, rest.item[0], rest.item[1], o.epoch, o.alpha);
    if (status == CLOOB_OK) {
        print_result(&c);
        cloob_comparison_release(&c);
    }
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_compare = {
    .name = "compare",
    .run = run,
    .help = "mean, spread and rank-sum p-value per metric between two groups of runs",
    .options = rows,
    .usage = "A.jsonl B.jsonl",
    .details =
        "Each line of a file is one run: a JSON object, whose numbers are its metrics. The test is the unpaired\n"
        "Wilcoxon rank-sum test, exact for up to 8 values without ties, otherwise normal with tie and continuity\n"
        "correction. The paper calls a difference significant below 5 %. With five runs a side the smallest exact\n"
        "two-sided p is 0.0079, with three it is 0.1: three runs cannot be significant.\n"
        "\n"
        "  cloob compare clip.jsonl cloob.jsonl",
};
