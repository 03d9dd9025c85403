/* cloob ablate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/train_opts.h"

static cloob_train_options o;
static const char *preset;
static struct {
    opt_list methods, zeroshot;
    const char *prompts;
    int64_t seeds, jobs;
    double alpha;
} own;

static const opt_row rows[] = {
    { "seeds", OPT_INT, &own.seeds, "5", "N", "runs per method, with consecutive seeds starting at --seed",
      OPT_POSITIVE },
    { "jobs", OPT_INT, &own.jobs, "1", "N", "runs at a time; small models fill a GPU only together", OPT_POSITIVE },
    { "methods", OPT_LIST, &own.methods, NULL, "METHOD",
      "two or more of clip, infoloob, infonce-hopfield, cloob; by default all four", 0 },
    { "alpha", OPT_DOUBLE, &own.alpha, "0.05", "X", "significance level", OPT_POSITIVE },
    { "zeroshot", OPT_LIST, &own.zeroshot, NULL, "DIR", "class folders to evaluate every run on", 0 },
    { "prompts", OPT_STRING, &own.prompts, NULL, "P.json",
      "class names and templates, with a set named like each folder", 0 },
    CLI_PRESET_ROW(preset),
    OPT_END,
};
static const opt_set sets[] = { { cloob_train_option_table, &o }, OPT_SETS_END };

static bool known(const char *method)
{
    static const char *const all[] = { "clip", "infoloob", "infonce-hopfield", "cloob" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i], method) == 0) return true;
    return false;
}

/* Words may also be joined by commas. */
static bool split_methods(opt_list *l)
{
    const char **item = NULL;
    int count = 0;
    for (int i = 0; i < l->count; i++) {
        char *copy = strdup(l->item[i]);
        for (char *part; copy && (part = strsep(&copy, ","));) {
            const char **longer = realloc(item, (size_t)(count + 1) * sizeof *item);
            if (!longer) return false;
            item = longer;
            item[count++] = part;
        }
    }
    free((void *)l->item);
    l->item = item;
    l->count = count;
    return true;
}

/* A whole file; the caller frees. NULL: it cannot be read. */
static char *read_text(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t n = 0;
    if (f && getdelim(&text, &n, '\0', f) < 0) {
        free(text);
        text = NULL;
    }
    if (f) fclose(f);
    return text;
}

static void print_result(const cloob_ablate_summary *s)
{
    char *table = read_text(s->folder, common.json ? "ablation.json" : "ablation.md");
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_text("folder", s->folder);
        json_out_int("runs", s->runs);
        json_out_int("trained", s->trained);
        json_out_int("resumed", s->resumed);
        json_out_int("found", s->found);
        json_out_int("significant", s->significant);
        json_out_number("seconds", s->seconds, 6);
        json_out_raw("table", table);
        json_out_close();
    } else printf("%s\n%s/report.html\n", table ? table : "", s->folder);
    free(table);
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_ablate_options a;
    cloob_ablate_summary s;
    cloob_ablate_options_init(&a);
    o = a.train;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "%s: not understood", rest.item[0]);
    if (opt_given("method")) return cli_usage(self, "--method: several are trained here; name them with --methods");
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    if (!o.train_data) return cli_usage(self, "needs --train-data");
    bool analyze = !opt_given("analyze") || o.analyze, sparse = !opt_given("save-frequency");
    if (!split_methods(&own.methods)) return cli_usage(self, "out of memory");
    for (int i = 0; i < own.methods.count; i++)
        if (!known(own.methods.item[i]))
            return cli_usage(self, "--methods %s: choose of clip, infoloob, infonce-hopfield, cloob",
                             own.methods.item[i]);
    cloob_ctx *ctx = cli_context();
    if ((code = cli_train_fill(self, ctx, preset, &o)) >= 0) {
        cloob_ctx_destroy(ctx);
        return code;
    }
    a.train = o;
    a.train.analyze = analyze;
    if (sparse) a.train.save_frequency = 0; /* twenty runs times all epochs would fill disks */
    if (own.methods.count) a.method = own.methods.item, a.methods = own.methods.count;
    a.seeds = own.seeds;
    a.jobs = own.jobs;
    a.alpha = own.alpha;
    a.zeroshot = own.zeroshot.item;
    a.zeroshots = own.zeroshot.count;
    a.prompts = own.prompts;
    cloob_status status = cloob_ablate(ctx, &a, &s);
    if (status == CLOOB_OK) print_result(&s);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_ablate = {
    .name = "ablate",
    .run = run,
    .help = "train several objectives with several seeds and compare them",
    .options = rows,
    .sets = sets,
    .usage = "--train-data SOURCE [--seeds 5] [OPTIONS]",
    .details =
        "Trains InfoNCE, InfoLOOB, InfoNCE with Hopfield retrieval, and CLOOB with everything else equal, evaluates "
        "each run,\n"
        "tests differences with the rank-sum test, and leaves in LOGS/NAME the runs, ablation.md, ablation.json and\n"
        "report.html. All options of cloob train apply. Run the same command again to continue an interrupted one.\n"
        "\n"
        "  cloob ablate --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 --seeds 5 \\\n"
        "      --zeroshot world/classes/object world/classes/colour --prompts world/prompts.json --name first",
};
