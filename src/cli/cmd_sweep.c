/* cloob sweep: settings times seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/train_opts.h"

enum { MAX_AXES = 16, MAX_VALUES = 64 };

static cloob_train_options o;
static const char *preset;
static struct {
    opt_list grid, zeroshot, test_zeroshot;
    const char *select, *by, *prompts, *test_data, *part;
    int64_t seeds, final_seeds, random, jobs;
    double alpha;
    bool halving;
} own;

static const opt_row rows[] = {
    { "grid", OPT_LIST, &own.grid, NULL, "NAME=V,V",
      "option of cloob train and its values; several options form a grid", 0 },
    { "select", OPT_STRING, &own.select, NULL, "METRIC",
      "validation metric to choose by: zeroshot/average, image_to_text_R@1, clip_val_loss, ...", OPT_REQUIRED },
    { "by", OPT_STRING, &own.by, NULL, "NAME",
      "choose separately for each value of this option; default: for each method", 0 },
    { "seeds", OPT_INT, &own.seeds, "1", "N",
      "runs per setting in the search, with consecutive seeds starting at --seed", OPT_POSITIVE },
    { "final-seeds", OPT_INT, &own.final_seeds, "0", "N", "retrain the chosen settings with N fresh seeds",
      OPT_NOT_NEGATIVE },
    { "random", OPT_INT, &own.random, "0", "N",
      "draw N combinations of the grid, the same for every value of --by; 0: all", OPT_NOT_NEGATIVE },
    { "halving", OPT_FLAG, &own.halving, NULL, NULL,
      "successive halving: a quarter of the epochs for all, half for the better half, all for the best quarter", 0 },
    { "jobs", OPT_INT, &own.jobs, "1", "N", "runs at a time; small models fill a GPU only together", OPT_POSITIVE },
    { "part", OPT_STRING, &own.part, NULL, "I/N", "train every N-th run starting at the I-th (from 0): for array jobs",
      0 },
    { "zeroshot", OPT_LIST, &own.zeroshot, NULL, "DIR", "class folders for validation", 0 },
    { "prompts", OPT_STRING, &own.prompts, NULL, "P.json",
      "class names and templates, with a set named like each folder", 0 },
    { "test-zeroshot", OPT_LIST, &own.test_zeroshot, NULL, "DIR",
      "class folders for the final test of the chosen settings", 0 },
    { "test-data", OPT_STRING, &own.test_data, NULL, "SOURCE",
      "image-text pairs for the final retrieval test of the chosen settings", 0 },
    { "alpha", OPT_DOUBLE, &own.alpha, "0.05", "X", "significance level", OPT_POSITIVE },
    CLI_PRESET_ROW(preset),
    OPT_END,
};
static const opt_set sets[] = { { cloob_train_option_table, &o }, OPT_SETS_END };

static cloob_sweep_axis axis[MAX_AXES];
static const char *value[MAX_AXES][MAX_VALUES];

/* "lr=1e-3,5e-4": cut in place of a copy that lives as long as the program. */
static int read_axis(const command *self, const char *text, int at)
{
    if (at == MAX_AXES) return cli_usage(self, "--grid: %d options at most", MAX_AXES);
    char *copy = strdup(text), *rest = copy ? strchr(copy, '=') : NULL;
    if (!rest || rest == copy || !rest[1]) {
        free(copy);
        return cli_usage(self, "--grid %s: write it as NAME=VALUE,VALUE", text);
    }
    *rest++ = '\0';
    axis[at] = (cloob_sweep_axis){ copy, value[at], 0 };
    for (char *part; (part = strsep(&rest, ","));) {
        if (axis[at].values == MAX_VALUES) return cli_usage(self, "--grid %s: %d values at most", copy, MAX_VALUES);
        value[at][axis[at].values++] = part;
    }
    for (char *c = copy; *c; c++)
        if (*c == '-') *c = '_';
    return -1;
}

static int read_part(const command *self, cloob_sweep_options *s)
{
    char *end;
    if (!own.part) return -1;
    s->part = strtoll(own.part, &end, 10);
    if (end != own.part && *end == '/') s->parts = strtoll(end + 1, &end, 10);
    if (*end || s->parts < 1 || s->part < 0 || s->part >= s->parts)
        return cli_usage(self, "--part %s: needs I/N with I from 0 to N - 1", own.part);
    return -1;
}

static void print_table(const char *folder)
{
    char path[1200], line[4096];
    snprintf(path, sizeof path, "%s/sweep.md", folder);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stdout);
    if (f) fclose(f);
    printf("\n%s/report.html\n", folder);
}

static void print_result(const cloob_sweep_summary *s)
{
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_text("folder", s->folder);
        json_out_int("settings", s->settings);
        json_out_int("runs", s->runs);
        json_out_int("trained", s->trained);
        json_out_int("resumed", s->resumed);
        json_out_int("found", s->found);
        json_out_int("failed", s->failed);
        json_out_bool("complete", s->complete);
        json_out_number("seconds", s->seconds, 6);
        json_out_close();
    } else if (s->complete) print_table(s->folder);
    else printf("%s: this part is done; the last part, or the command without --part, writes the tables\n", s->folder);
}

static int gather(const command *self, cloob_sweep_options *s)
{
    int code = -1;
    for (int i = 0; i < own.grid.count && code < 0; i++) code = read_axis(self, own.grid.item[i], i);
    if (code < 0) code = read_part(self, s);
    s->axis = axis, s->axes = own.grid.count;
    s->seeds = own.seeds, s->final_seeds = own.final_seeds, s->random = own.random, s->jobs = own.jobs;
    s->halving = own.halving, s->select = own.select, s->by = own.by, s->alpha = own.alpha;
    s->zeroshot = own.zeroshot.item, s->zeroshots = own.zeroshot.count, s->prompts = own.prompts;
    s->test_zeroshot = own.test_zeroshot.item, s->test_zeroshots = own.test_zeroshot.count;
    s->test_data = own.test_data;
    return code;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_sweep_options s;
    cloob_sweep_summary done;
    cloob_sweep_options_init(&s);
    o = s.train;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "%s: not understood", rest.item[0]);
    if (!own.grid.count) return cli_usage(self, "needs --grid NAME=VALUE,VALUE");
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    if (!o.train_data) return cli_usage(self, "needs --train-data");
    bool sparse = !opt_given("save-frequency");
    if ((code = gather(self, &s)) >= 0) return code;
    cloob_ctx *ctx = cli_context();
    if ((code = cli_train_fill(self, ctx, preset, &o)) < 0) {
        s.train = o;
        if (sparse) s.train.save_frequency = 0; /* hundreds of runs times all epochs would fill disks */
        cloob_status status = cloob_sweep(ctx, &s, &done);
        if (status == CLOOB_OK) print_result(&done);
        code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    }
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_sweep = {
    .name = "sweep",
    .run = run,
    .help = "search settings, choose on validation data, test the choice",
    .options = rows,
    .sets = sets,
    .usage = "--train-data SOURCE --grid NAME=V,V... --select METRIC [--final-seeds 5] [OPTIONS]",
    .details =
        "Trains every combination of the values, with --seeds runs each, and chooses by the number that --select "
        "names,\n"
        "for each method or each value of --by. --final-seeds retrains the chosen settings with fresh seeds;\n"
        "--test-zeroshot and --test-data evaluate those runs, and no others, once. LOGS/NAME holds the runs,\n"
        "results.jsonl with a line per run, sweep.md with the tables, and report.html. All options of cloob train "
        "apply. Run the same command again to continue an interrupted one. A run that diverges is never chosen.\n"
        "\n"
        "  cloob sweep --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 \\\n"
        "      --grid method=clip,cloob --grid lr=1e-3,5e-4 --select image_to_text_R@1 --final-seeds 5 --name first",
};
