/* cloob sweep: trains all combinations of settings and seeds; with --by method, compares the objectives with all other
 * settings equal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
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
static const opt_set sets[] = { { .table = sweep_option_table, .into = &o }, OPT_SETS_END };

static sweep_axis axis[MAX_AXES];
static const char *value[MAX_AXES][MAX_VALUES];

/* Splits an axis such as "lr=1e-3,5e-4". Its copy is kept until the program ends. */
static int read_axis(const command *self, const char *text, int at)
{
    if (at == MAX_AXES) return cli_usage(self, "--grid: too many options; the limit is %d", MAX_AXES);
    char *copy = strdup(text), *rest = copy ? strchr(copy, '=') : NULL;
    if (!rest || rest == copy || !rest[1]) {
        free(copy);
        return cli_usage(self, "--grid %s: invalid; use NAME=VALUE,VALUE", text);
    }
    *rest++ = '\0';
    axis[at] = (sweep_axis){ copy, value[at], 0 };
    for (char *one; (one = strsep(&rest, ","));) {
        if (axis[at].values == MAX_VALUES)
            return cli_usage(self, "--grid %s: too many values; the limit is %d", copy, MAX_VALUES);
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

/* Prints the tables, or JSON; the JSON of a comparison includes its table. */
static cloob_status print_result(cloob_ctx *ctx, const sweep_summary *s)
{
    char path[FILE_PATH], *table = NULL;
    const char *name = o.select ? "sweep.md" : common.json ? "ablation.json" : "ablation.md";
    CLOOB_TRY(file_in(ctx, s->folder, name, path));
    if (s->complete && !(common.json && o.select)) CLOOB_TRY(cli_read_file(ctx, path, &table, NULL));
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_members(J_OF(s, folder), J_OF(s, settings), J_OF(s, runs), J_OF(s, trained), J_OF(s, resumed),
                         J_OF(s, found), J_OF(s, failed), J_OF(s, complete), J_OF(s, significant),
                         J_NUMBER("seconds", s->seconds, 6));
        if (table) json_out_raw("table", table);
        json_out_close();
    } else if (table) printf("%s\n%s/report.html\n", table, s->folder);
    else printf("%s: this part is done; the last part, or the command without --part, writes the tables\n", s->folder);
    free(table);
    return CLOOB_OK;
}

/* Sets the methods for --by method without a grid: all objectives, or those of --methods, as words or separated by
 * commas. Their copies are kept until the program ends. */
static int read_methods(const command *self)
{
    sweep_options given = o;
    if (!o.by || strcmp(o.by, "method") != 0) return cli_usage(self, "needs --grid NAME=VALUE,VALUE, or --by method");
    if (opt_given("method"))
        return cli_usage(self, "--method: several objectives are trained; choose them with --methods");
    sweep_compare_objectives(&o);
    if (opt_given("seeds")) o.seeds = given.seeds;
    if (opt_given("analyze")) o.train.analyze = given.train.analyze;
    if (given.train.name) o.train.name = given.train.name;
    if (!methods.count) return -1;
    axis[0] = (sweep_axis){ "method", value[0], 0 };
    for (int64_t i = 0; i < methods.count; i++) {
        char *words = must(strdup(methods.item[i]));
        for (char *one; (one = strsep(&words, ",")) && axis[0].values < MAX_VALUES;) value[0][axis[0].values++] = one;
    }
    o.axis = axis;
    if (axis[0].values < 2) return cli_usage(self, "--methods: needs two objectives or more");
    for (int64_t i = 0; i < axis[0].values; i++)
        if (!text_has_word("clip infoloob infonce-hopfield cloob", value[0][i]))
            return cli_usage(self, "--methods %s: choose from clip, infoloob, infonce-hopfield, cloob", value[0][i]);
    return -1;
}

static int check(const command *self)
{
    int code = -1;
    if (methods.count && grid.count) return cli_usage(self, "--methods needs --by method, without --grid");
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    if (!o.train.train_data) return cli_usage(self, "needs --train-data");
    if (!grid.count) code = read_methods(self);
    for (int i = 0; i < grid.count && code < 0; i++) code = read_axis(self, grid.item[i], i);
    if (grid.count) o.axis = axis, o.axes = grid.count;
    if (!o.train.name) o.train.name = "sweep";
    return code < 0 ? read_part(self) : code;
}

static int run(const command *self, cloob_ctx *ctx)
{
    sweep_summary s;
    bool analyze = o.train.analyze;
    int code = cli_train_fill(self, ctx, preset, NULL, &o.train);
    if (code >= 0) return code;
    if (!opt_given("analyze")) o.train.analyze = analyze;
    if (!opt_given("save-frequency")) o.train.save_frequency = 0; /* hundreds of runs would fill the disk */
    cloob_status status = run_sweep(ctx, &o, &s);
    if (status == CLOOB_OK && s.rank == 0) status = print_result(ctx, &s); /* only rank 0 reports */
    return cli_exit(self, ctx, status);
}

const command cmd_sweep = {
    .name = "sweep",
    .run = run,
    .check = check,
    .stray = "--train-data",
    .help = "compare objectives or settings over several seeds",
    .options = rows,
    .sets = sets,
    .brief =
        "grid part methods preset select by seeds final-seeds random test-zeroshot test-data jobs zeroshot prompts "
        "train-data val-data model name logs json",
    .usage = "--train-data SOURCE --by method [OPTIONS] | --train-data SOURCE --grid NAME=V,V... [--select METRIC] "
             "[OPTIONS]",
    .details =
        "--by method trains InfoNCE, InfoLOOB, InfoNCE with Hopfield retrieval, and CLOOB with all other settings "
        "equal, five seeds each, and tests the differences with the rank-sum test. --grid does the same for the "
        "values of any options of cloob train.\n"
        "\n"
        "With --select the sweep is a search: it chooses settings by this metric, for each method or each value of "
        "--by. --final-seeds retrains the chosen settings with fresh seeds; --test-zeroshot and --test-data evaluate "
        "those runs, and no others, once. A run that diverges is never chosen.\n"
        "\n"
        "LOGS/NAME receives the runs, the tables (ablation.md and ablation.json, or sweep.md and results.jsonl with a "
        "line per run) and report.html. All options of cloob train apply. Run the same command again to continue an "
        "interrupted one.\n"
        "\n"
        "  cloob sweep --by method --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 "
        "--zeroshot world/classes/object world/classes/colour --prompts world/prompts.json --name first\n"
        "  cloob sweep --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 --grid "
        "method=clip,cloob --grid lr=1e-3,5e-4 --select image_to_text_R@1 --final-seeds 5 --name second",
};
