/* cloob sweep: settings times seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "lab/sweep/sweep.h"

enum { MAX_AXES = 16, MAX_VALUES = 64 };

static sweep_options o;
static opt_list grid, methods;
static const char *preset, *part;

static const opt_row rows[] = {
    { "grid", OPT_LIST, &grid, NULL, "NAME=V,V", "option of cloob train and its values; several options form a grid",
      0 },
    { "part", OPT_STRING, &part, NULL, "I/N", "train every N-th run starting at the I-th (from 0): for array jobs", 0 },
    { "methods", OPT_LIST, &methods, NULL, "METHOD",
      "with --by method and without --grid: two or more of clip, infoloob, infonce-hopfield, cloob; default: all", 0 },
    CLI_PRESET_ROW(preset),
    OPT_END,
};
static const opt_set sets[] = { { .table = sweep_option_table, .into = &o, .required = "select" }, OPT_SETS_END };

static sweep_axis axis[MAX_AXES];
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
    axis[at] = (sweep_axis){ copy, value[at], 0 };
    for (char *one; (one = strsep(&rest, ","));) {
        if (axis[at].values == MAX_VALUES) return cli_usage(self, "--grid %s: %d values at most", copy, MAX_VALUES);
        value[at][axis[at].values++] = one;
    }
    for (char *c = copy; *c; c++)
        if (*c == '-') *c = '_';
    return -1;
}

static int read_part(const command *self)
{
    char *end;
    if (!part) return -1;
    o.part = strtoll(part, &end, 10);
    if (end != part && *end == '/') o.parts = strtoll(end + 1, &end, 10);
    if (*end || o.parts < 1 || o.part < 0 || o.part >= o.parts)
        return cli_usage(self, "--part %s: needs I/N with I from 0 to N - 1", part);
    return -1;
}

static cloob_status print_table(cloob_ctx *ctx, const char *folder)
{
    char path[1200], *table;
    snprintf(path, sizeof path, "%s/sweep.md", folder);
    cloob_status status = cli_read_made(ctx, path, &table);
    if (status == CLOOB_OK) printf("%s\n%s/report.html\n", table, folder);
    free(table);
    return status;
}

static cloob_status print_result(cloob_ctx *ctx, const sweep_summary *s)
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
    } else if (s->complete) return print_table(ctx, s->folder);
    else printf("%s: this part is done; the last part, or the command without --part, writes the tables\n", s->folder);
    return CLOOB_OK;
}

static int check(const command *self)
{
    int code = -1;
    if (methods.count) return cli_usage(self, "--methods needs --by method, without --grid");
    if (!grid.count) return cli_usage(self, "needs --grid NAME=VALUE,VALUE, or --by method");
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    if (!o.train.train_data) return cli_usage(self, "needs --train-data");
    for (int i = 0; i < grid.count && code < 0; i++) code = read_axis(self, grid.item[i], i);
    o.axis = axis, o.axes = grid.count;
    return code < 0 ? read_part(self) : code;
}

static int run(const command *self, cloob_ctx *ctx)
{
    sweep_summary s;
    int code = cli_train_fill(self, ctx, preset, &o.train);
    if (code >= 0) return code;
    if (!opt_given("save-frequency")) o.train.save_frequency = 0; /* hundreds of runs would fill disks */
    cloob_status status = run_sweep(ctx, &o, &s);
    if (status == CLOOB_OK && s.rank == 0) status = print_result(ctx, &s); /* rank 0 reports for all */
    return cli_exit(self, ctx, status);
}

/* `--by method` without a grid compares the objectives. */
static const command *find_variant(int argc, char **argv)
{
    bool by = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--grid", 6) == 0) return NULL;
        by |= strcmp(argv[i], "--by=method") == 0 ||
              (strcmp(argv[i], "--by") == 0 && i + 1 < argc && strcmp(argv[i + 1], "method") == 0);
    }
    return by ? &sweep_methods : NULL;
}

const command cmd_sweep = {
    .name = "sweep",
    .run = run,
    .check = check,
    .variant = find_variant,
    .stray = "unexpected argument",
    .help = "compare objectives or settings over several seeds",
    .options = rows,
    .sets = sets,
    .brief = "grid part methods preset select by seeds final-seeds random halving test-zeroshot jobs zeroshot prompts "
             "train-data val-data model name logs json",
    .usage = "--train-data SOURCE --grid NAME=V,V... --select METRIC [--final-seeds 5] [OPTIONS] | --by method",
    .details =
        "Trains every combination of the values, with --seeds runs each, and chooses by the number that --select "
        "names,\n"
        "for each method or each value of --by. --final-seeds retrains the chosen settings with fresh seeds;\n"
        "--test-zeroshot and --test-data evaluate those runs, and no others, once. LOGS/NAME holds the runs,\n"
        "results.jsonl with a line per run, sweep.md with the tables, and report.html. All options of cloob train "
        "apply. Run the same command again to continue an interrupted one. A run that diverges is never chosen.\n"
        "--by method without --grid trains InfoNCE, InfoLOOB, InfoNCE with Hopfield retrieval, and CLOOB with "
        "everything else equal, and compares them; cloob sweep --by method --help explains.\n"
        "\n"
        "  cloob sweep --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 "
        "--grid method=clip,cloob --grid lr=1e-3,5e-4 --select image_to_text_R@1 --final-seeds 5 --name first",
};
