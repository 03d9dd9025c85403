/* cloob sweep: settings times seeds; cloob sweep --by method: the objectives with everything else equal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "lab/sweep/sweep.h"

enum { MAX_AXES = 16, MAX_VALUES = 64 };

static sweep_options o;
static opt_list grid, methods;
static const char *preset, *part, *by;

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

static const opt_row method_rows[] = {
    { "by", OPT_STRING, &by, NULL, "method", "compare the objectives", OPT_REQUIRED }, CLI_PRESET_ROW(preset), OPT_END
};
static const opt_set method_sets[] = { { .table = ablate_option_table, .into = &o }, OPT_SETS_END };

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

/* The tables, or JSON with what both commands have; of an ablation the JSON contains its table. */
static cloob_status print_result(cloob_ctx *ctx, const sweep_summary *s)
{
    char path[1200], *table = NULL;
    const char *name = !o.ablation ? "sweep.md" : common.json ? "ablation.json" : "ablation.md";
    cloob_status status = CLOOB_OK;
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    if (o.ablation || (s->complete && !common.json)) status = cli_read_made(ctx, path, &table);
    if (status != CLOOB_OK) return status;
    if (common.json) {
        json_out_open(NULL, '{');
        json_out_text("folder", s->folder);
        if (!o.ablation) json_out_int("settings", s->settings);
        json_out_members(J_OF(s, runs), J_OF(s, trained), J_OF(s, resumed), J_OF(s, found));
        if (o.ablation) json_out_int("significant", s->significant);
        else json_out_members(J_OF(s, failed), J_OF(s, complete));
        json_out_number("seconds", s->seconds, 6);
        if (o.ablation) json_out_raw("table", table);
        json_out_close();
    } else if (table) printf("%s\n%s/report.html\n", table, s->folder);
    else printf("%s: this part is done; the last part, or the command without --part, writes the tables\n", s->folder);
    free(table);
    return CLOOB_OK;
}

static int check_train(const command *self)
{
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    return o.train.train_data ? -1 : cli_usage(self, "needs --train-data");
}

static int check(const command *self)
{
    int code = -1;
    if (methods.count) return cli_usage(self, "--methods needs --by method, without --grid");
    if (!grid.count) return cli_usage(self, "needs --grid NAME=VALUE,VALUE, or --by method");
    code = check_train(self);
    for (int i = 0; i < grid.count && code < 0; i++) code = read_axis(self, grid.item[i], i);
    o.axis = axis, o.axes = grid.count;
    return code < 0 ? read_part(self) : code;
}

static int run(const command *self, cloob_ctx *ctx)
{
    sweep_summary s;
    int code = cli_train_fill(self, ctx, preset, NULL, &o.train);
    if (code >= 0) return code;
    if (o.ablation && !opt_given("analyze")) o.train.analyze = true;
    if (!opt_given("save-frequency")) o.train.save_frequency = 0; /* hundreds of runs would fill disks */
    cloob_status status = run_sweep(ctx, &o, &s);
    if (status == CLOOB_OK && s.rank == 0) status = print_result(ctx, &s); /* rank 0 reports for all */
    return cli_exit(self, ctx, status);
}

/* ---- --by method -------------------------------------------------------------------------------- */

static bool known(const char *method)
{
    static const char *const all[] = { "clip", "infoloob", "infonce-hopfield", "cloob" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i], method) == 0) return true;
    return false;
}

/* Words may also be joined by commas. The list lives as long as the program. */
static bool split_methods(void)
{
    static opt_list list;
    for (int64_t i = 0; i < o.methods_count; i++) {
        char *copy = strdup(o.methods[i]);
        for (char *one; copy && (one = strsep(&copy, ","));)
            if (!opt_list_add(&list, one)) return false;
    }
    free((void *)o.methods);
    o.methods = list.item, o.methods_count = list.count;
    return true;
}

static int check_methods(const command *self)
{
    if (opt_given("method"))
        return cli_usage(self, "--method: several objectives are trained; choose them with --methods");
    o.ablation = true;
    int code = check_train(self);
    if (code >= 0) return code;
    if (!split_methods()) return cli_usage(self, "out of memory");
    for (int64_t i = 0; i < o.methods_count; i++)
        if (!known(o.methods[i]))
            return cli_usage(self, "--methods %s: choose from clip, infoloob, infonce-hopfield, cloob", o.methods[i]);
    return -1;
}

static const command sweep_methods = {
    .name = "sweep --by method",
    .run = run,
    .check = check_methods,
    .stray = "--train-data",
    .help = "train several objectives with several seeds and compare them",
    .options = method_rows,
    .sets = method_sets,
    .brief =
        "by preset seeds methods jobs alpha zeroshot prompts train-data val-data workers name logs batch-size epochs "
        "lr warmup model device json",
    .usage = "--train-data SOURCE [--seeds 5] [OPTIONS]",
    .details =
        "Trains InfoNCE, InfoLOOB, InfoNCE with Hopfield retrieval, and CLOOB with everything else equal, evaluates "
        "each run,\n"
        "tests differences with the rank-sum test, and leaves in LOGS/NAME the runs, ablation.md, ablation.json and\n"
        "report.html. All options of cloob train apply. Run the same command again to continue an interrupted one.\n"
        "\n"
        "  cloob sweep --by method --train-data world/train.tsv --val-data world/val.tsv --model tiny --epochs 4 "
        "--seeds 5 "
        "--zeroshot world/classes/object world/classes/colour --prompts world/prompts.json --name first",
};

/* `--by method` without a grid compares the objectives. */
static const command *find_variant(int argc, char **argv)
{
    bool asked = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--grid", 6) == 0) return NULL;
        asked |= strcmp(argv[i], "--by=method") == 0 ||
                 (strcmp(argv[i], "--by") == 0 && i + 1 < argc && strcmp(argv[i + 1], "method") == 0);
    }
    return asked ? &sweep_methods : NULL;
}

const command cmd_sweep = {
    .name = "sweep",
    .run = run,
    .check = check,
    .variant = find_variant,
    .stray = "--train-data",
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
