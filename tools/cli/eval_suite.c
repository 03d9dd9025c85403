/* cloob eval suite: evaluates models on data sets in CLIP_benchmark's layout; writes results as JSON and tables. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "infer/model_file.h"
#include "core/arena.h"
#include "core/ctx.h"
#include "core/file.h"
#include "lab/suite/benchmark.h"

static struct {
    cli_model model;
    cloob_eval_options eval;
    opt_list checkpoints, datasets;
    const char *out, *task, *train_split, *val_split;
    int64_t shots;
    bool datacomp, again;
} o;

static const opt_row rows[] = {
    { "checkpoint", OPT_LIST, &o.checkpoints, NULL, "M",
      "weights, in any format that cloob convert reads; several are compared", OPT_REQUIRED },
    { "datasets", OPT_LIST, &o.datasets, NULL, "DIR|LIST",
      "data sets, folders of data sets, or a text file that lists them", OPT_REQUIRED },
    { "task", OPT_STRING, &o.task, "auto", "auto|linear_probe|all",
      "auto: zero-shot classification or retrieval, depending on the data set; all: also a linear probe", 0 },
    { "split", OPT_STRING, &o.model.data.split, NULL, "NAME", "split to evaluate; default: test", 0 },
    { "train-split", OPT_STRING, &o.train_split, "train", "NAME", "linear probe: split to train on", 0 },
    { "val-split", OPT_STRING, &o.val_split, NULL, "NAME",
      "linear probe: split to choose lambda on; default: every other training image", 0 },
    { "shots", OPT_INT, &o.shots, "-1", "N", "linear probe: images per class; -1: all", 0 },
    { "datacomp", OPT_FLAG, &o.datacomp, NULL, NULL,
      "list all sets of DataComp in the table, and mark those that are missing", 0 },
    { "out", OPT_STRING, &o.out, "benchmark", "DIR",
      "folder for results: one .json each, benchmark.csv, eval_results.jsonl", 0 },
    { "again", OPT_FLAG, &o.again, NULL, NULL, "repeat evaluations whose results are already in the folder", 0 },
    OPT_END
};
static const opt_set sets[] = { { .table = cli_model_table,
                                  .into = &o.model,
                                  .shown = "vocab config invariant batch_size split max_image_pixels data_cache" },
                                { .table = eval_option_table, .into = &o.eval, .only = "workers" },
                                OPT_SETS_END };

typedef struct session {
    const command *self;
    cloob_ctx *ctx;
    suite_sets sets;
    benchmark_result *result;
    int64_t n;
    int failed; /* number of data sets that could not be evaluated */
} session;

/* ---- output -------------------------------------------------------------------------------------- */

static void print_result(const benchmark_result *r)
{
    enum { SHOWN = 8 };
    if (common.json) {
        cli_put_text(benchmark_json(r));
        return;
    }
    printf("%-28s %-24s %7lld", r->dataset, r->task, (long long)r->n);
    for (int64_t i = 0; i < r->scores && i < SHOWN; i++) printf("  %s %.4f", r->score[i].name, r->score[i].value);
    if (r->scores > SHOWN) printf("  and %lld more", (long long)(r->scores - SHOWN));
    printf("\n");
    if (r->bad) cli_print("", "%s: skipped %lld images that cannot be read", r->dataset, (long long)r->bad);
}

/* Writes a text to a file in the output folder, and frees it. */
static bool write_text(const session *s, const char *name, char *text)
{
    char path[FILE_PATH];
    cloob_status status = file_in(s->ctx, o.out, name, path);
    if (status == CLOOB_OK) status = file_write(s->ctx, path, text, strlen(must(text)));
    free(text);
    if (status != CLOOB_OK) cli_fail(&eval_suite, s->ctx, status);
    return status == CLOOB_OK;
}

/* Writes eval_results.jsonl for one model, or eval_results_1.jsonl and so on for several, in the order of
 * --checkpoint. */
static bool write_datacomp(const session *s)
{
    int written = 0;
    for (int64_t i = 0; i < s->n; i++) {
        bool first = true;
        char name[64] = "eval_results.jsonl";
        for (int64_t k = 0; k < i && first; k++) first = strcmp(s->result[k].pretrained, s->result[i].pretrained) != 0;
        if (!first) continue;
        char *text = must(datacomp_lines(s->result, s->n, s->result[i].pretrained));
        written++;
        if (o.checkpoints.count > 1) snprintf(name, sizeof name, "eval_results_%d.jsonl", written);
        if (!*text) free(text);
        else if (!write_text(s, name, text)) return false;
    }
    return true;
}

static int finish(const session *s)
{
    if (!s->n) return 1;
    if (!write_text(s, "benchmark.csv", benchmark_csv(s->result, s->n)) || !write_datacomp(s)) return 1;
    if (!common.json && (s->n > 1 || o.datacomp))
        putchar('\n'), cli_put_text(benchmark_table(s->result, s->n, o.datacomp));
    if (!common.quiet) cli_print("", "%s/benchmark.csv", o.out);
    return s->failed > 0;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Reads a finished result if it was made with the same weights. */
static bool take_finished(session *s, const char *path, const benchmark_result *wanted, benchmark_result *out)
{
    if (o.again || access(path, F_OK) != 0) return false;
    if (benchmark_read(s->ctx, path, out) != CLOOB_OK) {
        cli_print("", "%s; evaluated again", cloob_error(s->ctx));
        return false;
    }
    if (strcmp(out->stamp, wanted->stamp) == 0 && strcmp(out->pretrained, wanted->pretrained) == 0) {
        if (!common.quiet) cli_print("", "%s: read from %s", out->dataset, path);
        return true;
    }
    cli_print("", "%s: the weights have changed; evaluating again", path);
    benchmark_release(out);
    return false;
}

static cloob_status evaluate(session *s, cloob_model *m, const char *folder, const benchmark_options *how)
{
    char path[PATH_MAX];
    benchmark_result wanted, r;
    cloob_status status = benchmark_name(s->ctx, m, folder, how, &wanted);
    if (status != CLOOB_OK) return status;
    char *name = must(benchmark_file_name(&wanted));
    snprintf(path, sizeof path, "%s/%s", o.out, name);
    bool taken = take_finished(s, path, &wanted, &r);
    benchmark_release(&wanted);
    if (!taken) {
        status = benchmark_run(s->ctx, m, folder, how, &r);
        if (status == CLOOB_OK && !write_text(s, name, benchmark_json(&r))) s->failed++;
    }
    free(name);
    if (status != CLOOB_OK) return status;
    print_result(&r);
    fflush(stdout);
    s->result = must(realloc(s->result, (size_t)(s->n + 1) * sizeof r));
    s->result[s->n++] = r;
    return CLOOB_OK;
}

/* Evaluates all tasks of a data set. A failure is reported, and the other tasks continue. */
static void each_task(session *s, cloob_model *m, const char *folder)
{
    benchmark_options how;
    benchmark_options_init(&how);
    how.data = cli_data_ready(&o.model.data);
    if (o.model.data.split) how.split = o.model.data.split;
    how.train_split = o.train_split, how.val_split = o.val_split, how.shots = o.shots;
    how.seed = (uint64_t)common.seed, how.workers = (int)o.eval.workers;
    bool probe = strcmp(o.task, "auto") != 0, zeroshot = strcmp(o.task, "linear_probe") != 0;
    for (int k = 0; k < 2; k++) {
        if (k == 0 ? !zeroshot : !probe) continue;
        how.task = k ? BENCHMARK_LINEAR_PROBE : BENCHMARK_AUTO;
        cloob_status status = evaluate(s, m, folder, &how);
        if (status == CLOOB_OK) continue;
        cli_fail(s->self, s->ctx, status);
        s->failed++;
    }
}

static int each_model(session *s)
{
    for (int i = 0; i < o.checkpoints.count; i++) {
        cloob_model *m = NULL;
        o.model.checkpoint = o.checkpoints.item[i];
        cloob_status status = cli_model_open(s->ctx, &o.model, &m);
        if (status != CLOOB_OK) return cli_fail(s->self, s->ctx, status);
        for (int64_t k = 0; k < s->sets.n; k++) each_task(s, m, s->sets.folder[k]);
        cloob_model_close(m);
    }
    return 0;
}

static int check(const command *self)
{
    if (o.shots == 0 || o.shots < -1)
        return cli_usage(self, "--shots %lld: needs 1 or more, or -1", (long long)o.shots);
    if (mkdir(o.out, 0777) != 0 && access(o.out, W_OK) != 0)
        return cli_usage(self, "--out %s: cannot be written", o.out);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    session s = { .self = self, .ctx = ctx };
    const char *split = o.model.data.split ? o.model.data.split : "test";
    for (int i = 0; i < o.datasets.count; i++)
        if (!suite_sets_add(&s.sets, o.datasets.item[i], split)) return suite_sets_release(&s.sets), 1;
    int code = each_model(&s);
    if (code == 0) code = finish(&s);
    for (int64_t i = 0; i < s.n; i++) benchmark_release(&s.result[i]);
    free(s.result);
    suite_sets_release(&s.sets);
    return code;
}

const command eval_suite = {
    .name = "eval suite",
    .run = run,
    .check = check,
    .stray = "--datasets",
    .help = "evaluate models on data sets of CLIP_benchmark and DataComp",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION | USES_SEED,
    .usage = "--checkpoint M... --datasets DIR|LIST... [--task T] [--out DIR]",
    .details =
        "A data set is a folder with test/0.tar, test/1.tar, ... With classnames.txt and "
        "zeroshot_classification_templates.txt it is a classification task: acc1, acc5, mean_per_class_recall; if "
        "dataset_type.txt contains multilabel, mean_average_precision. Captions in .txt members make a retrieval task "
        "(image_retrieval_recall@k, text_retrieval_recall@k). --task linear_probe trains on train/ and tests on "
        "test/.\n"
        "\n"
        "Sets of DataComp are recognised by name; WILDS, Dollar Street, GeoDE and WinoGAViL have their own metrics. "
        "Run the same command again to continue an interrupted evaluation.\n"
        "\n"
        "  cloob eval suite --checkpoint M --datasets wds/cifar10 wds/flickr8k --out results\n"
        "  cloob eval suite --checkpoint A.safetensors B.safetensors --datasets wds --task all\n"
        "  cloob eval suite --checkpoint M --datasets webdatasets.txt --datacomp --json",
};
