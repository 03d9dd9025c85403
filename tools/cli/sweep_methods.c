/* cloob sweep --by method: the objectives with everything else equal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "lab/sweep/sweep.h"

static sweep_options o;
static const char *preset, *by;

static const opt_row rows[] = { { "by", OPT_STRING, &by, NULL, "method", "compare the objectives", OPT_REQUIRED },
                                CLI_PRESET_ROW(preset),
                                OPT_END };
static const opt_set sets[] = { { .table = ablate_option_table, .into = &o }, OPT_SETS_END };

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
        for (char *part; copy && (part = strsep(&copy, ","));)
            if (!opt_list_add(&list, part)) return false;
    }
    free((void *)o.methods);
    o.methods = list.item, o.methods_count = list.count;
    return true;
}

static cloob_status print_result(cloob_ctx *ctx, const sweep_summary *s)
{
    char path[1200], *table;
    snprintf(path, sizeof path, "%s/%s", s->folder, common.json ? "ablation.json" : "ablation.md");
    cloob_status status = cli_read_made(ctx, path, &table);
    if (status != CLOOB_OK) return status;
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
    } else printf("%s\n%s/report.html\n", table, s->folder);
    free(table);
    return CLOOB_OK;
}

static int check(const command *self)
{
    if (opt_given("method"))
        return cli_usage(self, "--method: several objectives are trained; choose them with --methods");
    if (opt_given("resume")) return cli_usage(self, "--resume: the same command continues automatically; leave it out");
    o.ablation = true;
    if (!o.train.train_data) return cli_usage(self, "needs --train-data");
    if (!split_methods()) return cli_usage(self, "out of memory");
    for (int64_t i = 0; i < o.methods_count; i++)
        if (!known(o.methods[i]))
            return cli_usage(self, "--methods %s: choose from clip, infoloob, infonce-hopfield, cloob", o.methods[i]);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    sweep_summary s;
    int code = cli_train_fill(self, ctx, preset, &o.train);
    if (code >= 0) return code;
    if (!opt_given("analyze")) o.train.analyze = true;
    if (!opt_given("save-frequency")) o.train.save_frequency = 0; /* twenty runs times all epochs would fill disks */
    cloob_status status = run_sweep(ctx, &o, &s);
    if (status == CLOOB_OK && s.rank == 0) status = print_result(ctx, &s); /* rank 0 reports for all */
    return cli_exit(self, ctx, status);
}

const command sweep_methods = {
    .name = "sweep --by method",
    .run = run,
    .check = check,
    .stray = "unexpected argument",
    .help = "train several objectives with several seeds and compare them",
    .options = rows,
    .sets = sets,
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
