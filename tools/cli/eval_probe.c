/* cloob eval probe: trains a linear classifier on fixed features. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
#include "eval/metrics.h"
#include "infer/model_file.h"
#include "infer/embed_job.h"
#include "infer/embeddings_file.h"

static struct {
    cli_model model;
    cloob_eval_options eval;
    opt_list trains, vals, tests, datas;   /* one entry per split */
    const char *train, *val, *test, *data; /* entries of the current split */
    const char *lambda, *refit, *out, *shots, *half, *ties;
    int64_t iterations, seeds, knn;
    double tolerance;
} o;

static const opt_row rows[] = {
    { "train", OPT_LIST, &o.trains, NULL, "E", "safetensors with x [N,d] and y [N]; results of several are averaged",
      0 },
    { "test", OPT_LIST, &o.tests, NULL, "E", "the same for testing; one for each --train", 0 },
    { "val", OPT_LIST, &o.vals, NULL, "E", "the same for choosing lambda; without it, half of the training rows", 0 },
    { "lambda", OPT_STRING, &o.lambda, "search", "X", "L2 strength, or search", 0 },
    { "refit", OPT_STRING, &o.refit, "all", "all|train",
      "after a search, train on the training and validation rows, or on the training rows only", 0 },
    { "half", OPT_STRING, &o.half, "alternate", "alternate|random",
      "without --val: every other training row validates, or a random half by --seed", 0 },
    { "ties", OPT_STRING, &o.ties, "largest", "largest|mean",
      "of several lambdas with the best validation accuracy: the largest, or their geometric mean", 0 },
    { "max-iterations", OPT_INT, &o.iterations, "1000", "N", "maximum number of L-BFGS iterations", OPT_POSITIVE },
    { "tolerance", OPT_DOUBLE, &o.tolerance, "0", "X",
      "stop when the objective is expected to fall by less than this share; 0: chosen by the problem",
      OPT_NOT_NEGATIVE },
    { "shots", OPT_STRING, &o.shots, NULL, "N,N,...",
      "few-shot probes: this many training rows per class, such as 1,2,4,8,16", 0 },
    { "seeds", OPT_INT, &o.seeds, "5", "N", "number of draws for --shots; the first uses --seed", OPT_POSITIVE },
    { "knn", OPT_INT, &o.knn, "0", "K", "instead of a probe: classify by the K nearest training rows by cosine",
      OPT_NOT_NEGATIVE },
    { "out", OPT_STRING, &o.out, NULL, "FILE", "write the classifier as safetensors: weight, bias, label", 0 },
    { "data", OPT_LIST, &o.datas, NULL, "SOURCE",
      "instead of --train and --test: data with classes, split as described above; several are averaged", 0 },
    OPT_END,
};
static const opt_set sets[] = { { .table = cli_model_table, .into = &o.model },
                                { .table = eval_option_table, .into = &o.eval, .only = "workers" },
                                OPT_SETS_END };

typedef struct input {
    embeddings_file *file;
    embed_result made; /* memory of an embedded data set */
    cloob_split split;
} input;

/* Opens a file of one split, or of several splits as train.x, train.y and so on. */
static cloob_status open_input(cloob_ctx *ctx, const char *path, const char *which, input *in)
{
    char x[32], y[32];
    snprintf(x, sizeof x, "x|image|%s.x", which);
    snprintf(y, sizeof y, "y|label|%s.y", which);
    CLOOB_TRY(embeddings_open(ctx, path, &in->file));
    CLOOB_TRY(embeddings_matrix(ctx, in->file, x, &in->split.x));
    CLOOB_TRY(embeddings_labels(ctx, in->file, y, in->split.x.rows, &in->split.y));
    return embeddings_classes(ctx, in->file, &in->split.class_name, &in->split.classes);
}

/* ---- embedding first ----------------------------------------------------------------------------- */

static cloob_status embed_split(cloob_ctx *ctx, cloob_model *m, const char *source, const cloob_data_options *d,
                                embed_result *e)
{
    cloob_dataset *set;
    CLOOB_TRY(cloob_dataset_open(ctx, source, d, &set));
    cloob_status status = embed_dataset(ctx, m, set, CLOOB_FEATURES, (int)o.eval.workers, e);
    cloob_dataset_close(set);
    return status;
}

static cloob_split split_of(const embed_result *e, int64_t begin, int64_t n, const char *name)
{
    return (cloob_split){ .x = { e->image + begin * e->image_width, CLOOB_F32, n, e->image_width, name },
                          .y = e->label + begin,
                          .class_name = (const char *const *)e->class_name,
                          .classes = e->classes };
}

/* Splits the rows: rows 0, 2, 4, ... (train) are moved before rows 1, 3, 5, ... (test). */
static void part(embed_result *e)
{
    int64_t n = e->rows, w = e->image_width, half = (n + 1) / 2;
    float *x = must(malloc((size_t)(n * w) * sizeof *x));
    int64_t *y = must(malloc((size_t)n * sizeof *y));
    for (int64_t i = 0; i < n; i++) {
        int64_t to = i % 2 ? half + i / 2 : i / 2;
        memcpy(x + to * w, e->image + i * w, (size_t)w * sizeof *x);
        y[to] = e->label[i];
    }
    free(e->image), free(e->label);
    e->image = x, e->label = y;
}

/* Finds the training and test data: folders train and test (or val), or the parts of a published set. *two false: there
 * is only one set. */
static cloob_status find_parts(cloob_ctx *ctx, cloob_data_options d[2], char path[2][4096], bool *two)
{
    cloob_dataset *set;
    *two = true;
    snprintf(path[0], 4096, "%s/train", o.data);
    snprintf(path[1], 4096, "%s/test", o.data);
    if (!file_is_dir(path[1])) snprintf(path[1], 4096, "%s/val", o.data);
    if (file_is_dir(path[0]) && file_is_dir(path[1])) return CLOOB_OK;
    snprintf(path[0], 4096, "%s", o.data);
    snprintf(path[1], 4096, "%s", o.data);
    CLOOB_TRY(cloob_dataset_open(ctx, o.data, &d[0], &set));
    *two = text_has_word("cifar stl10 mnist", dataset_kind(set)) && !d[0].split;
    cloob_dataset_close(set);
    if (*two) d[0].split = "train", d[1].split = "test";
    return CLOOB_OK;
}

static cloob_status embed_parts(cloob_ctx *ctx, const cloob_data_options *how, input in[3])
{
    cloob_data_options d[2] = { *how, *how };
    static char path[2][4096];
    bool two;
    cloob_model *m = NULL;
    cloob_status status = find_parts(ctx, d, path, &two);
    if (status == CLOOB_OK) status = cli_model_open(ctx, &o.model, &m);
    if (status == CLOOB_OK) status = embed_split(ctx, m, path[0], &d[0], &in[0].made);
    if (status == CLOOB_OK && two) status = embed_split(ctx, m, path[1], &d[1], &in[2].made);
    cloob_model_close(m);
    if (status != CLOOB_OK) return status;
    if (!in[0].made.label || (two && !in[2].made.label))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: the data has no classes", o.data);
    if (!two && in[0].made.rows < 4)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: too few images to train on half of them", o.data);
    if (!two) part(&in[0].made);
    int64_t n = in[0].made.rows, trained = two ? n : (n + 1) / 2;
    in[0].split = split_of(&in[0].made, 0, trained, path[0]);
    in[2].split =
        two ? split_of(&in[2].made, 0, in[2].made.rows, path[1]) : split_of(&in[0].made, trained, n - trained, path[0]);
    return CLOOB_OK;
}

static void print_text(const cloob_probe_result *r)
{
    printf("%lld classes, %lld dimensions, %lld training rows, %lld test rows\n", (long long)r->classes,
           (long long)r->dimensions, (long long)r->trained_rows, (long long)r->test_rows);
    printf("lambda %.6g  objective %.10g  |W| %.6g  %d iteration%s%s\n", r->lambda, r->objective, r->coef_norm,
           r->iterations, r->iterations == 1 ? "" : "s", r->converged ? "" : " (not converged)");
    printf("train %.4f", r->train_acc);
    if (r->has_val) printf("  val %.4f", r->val_acc);
    printf("  test %.4f  mean per class %.4f\n", r->test_acc, r->test_mean_per_class);
}

/* ---- few-shot probes, nearest neighbours ----------------------------------------------------------- */

/* Parses "1,2,4"; returns the number of values, 0: invalid. */
static int64_t parse_shots(int64_t shots[FEW_SHOT_ROWS])
{
    int64_t n = 0;
    for (const char *at = o.shots;; at++) {
        char *end;
        long long v = strtoll(at, &end, 10);
        if (end == at || v < 1 || n == FEW_SHOT_ROWS || (*end && *end != ',')) return 0;
        shots[n++] = v;
        if (!*end) return n;
        at = end;
    }
}

static void print_shots(const few_shot_result *r)
{
    for (const few_shot_row *row = r->row; !common.json && row < r->row + r->rows; row++)
        printf("%3lld shots  test %.4f +- %.4f over %lld draws\n", (long long)row->shots, row->mean, row->deviation,
               (long long)r->seeds);
    if (!common.json) return;
    json_out_open(NULL, '{'), json_out_int("seeds", r->seeds), json_out_open("shots", '[');
    for (const few_shot_row *row = r->row; row < r->row + r->rows; row++) {
        json_out_open(NULL, '{');
        json_out_members(J_OF(row, shots), J_NUMBER("mean", row->mean, 10), J_NUMBER("deviation", row->deviation, 10));
        json_out_open("test_acc", '[');
        for (int64_t s = 0; s < r->seeds; s++) json_out_number(NULL, row->draw[s].test_acc, 10);
        json_out_close();
        json_out_close();
    }
    json_out_close(), json_out_close();
}

static cloob_status few_shots(cloob_ctx *ctx, const cloob_probe_options *p, const input *in)
{
    int64_t shots[FEW_SHOT_ROWS];
    few_shot_options how = { .shots = shots, .seeds = o.seeds, .seed = (uint64_t)common.seed, .probe = *p };
    how.shots_count = parse_shots(shots);
    few_shot_result *r = must(calloc(1, sizeof *r));
    cloob_status status = few_shot_probe(ctx, r, &how, &in[0].split, o.val ? &in[1].split : NULL, &in[2].split);
    if (status == CLOOB_OK) print_shots(r);
    free(r);
    return status;
}

static cloob_status neighbours(cloob_ctx *ctx, const input *in)
{
    knn_result r;
    CLOOB_TRY(knn_classify(ctx, &r, o.knn, &in[0].split, &in[2].split));
    cli_result(J_OF(&r, k), J_NUMBER("test_acc", r.test_acc, 10),
               J_NUMBER("test_mean_per_class", r.test_mean_per_class, 10), J_OF(&r, train_rows), J_OF(&r, test_rows));
    return CLOOB_OK;
}

/* ---- one split, or several and their average ------------------------------------------------------ */

typedef struct split_result {
    double test_acc, test_mean_per_class;
    char *json; /* NULL if not requested */
} split_result;

static cloob_status work(cloob_ctx *ctx, const cloob_probe_options *p, const input *in, split_result *out)
{
    cloob_probe_result r;
    if (o.knn) return neighbours(ctx, in);
    if (o.shots) return few_shots(ctx, p, in);
    CLOOB_TRY(cloob_probe(ctx, &r, p, &in[0].split, o.val ? &in[1].split : NULL, &in[2].split));
    out->test_acc = r.test_acc, out->test_mean_per_class = r.test_mean_per_class;
    if (common.json) out->json = must(probe_json(&r));
    else print_text(&r);
    cloob_status status = o.out ? probe_save(ctx, &r, o.out) : CLOOB_OK;
    cloob_probe_release(&r);
    return status;
}

/* The mean and the standard deviation (n - 1) of the splits' accuracies. */
static void print_average(const split_result *r, int n)
{
    double mean = 0, per_class = 0, squares = 0;
    for (int k = 0; k < n; k++) mean += r[k].test_acc / n, per_class += r[k].test_mean_per_class / n;
    for (int k = 0; k < n; k++) squares += (r[k].test_acc - mean) * (r[k].test_acc - mean);
    double deviation = sqrt(squares / (n - 1));
    if (!common.json) {
        printf("average of %d splits: test %.4f +- %.4f  mean per class %.4f\n", n, mean, deviation, per_class);
        return;
    }
    json_out_open(NULL, '{');
    json_out_members(J_NUMBER("test_acc", mean, 10), J_NUMBER("test_acc_deviation", deviation, 10),
                     J_NUMBER("test_mean_per_class", per_class, 10));
    json_out_open("splits", '[');
    for (int k = 0; k < n; k++) json_out_raw(NULL, r[k].json);
    json_out_close();
    json_out_close();
}

static void fill(cloob_probe_options *p)
{
    cloob_probe_options_init(p);
    p->search = strcmp(o.lambda, "search") == 0;
    p->lambda = p->search ? 0 : strtod(o.lambda, NULL);
    p->refit_all = strcmp(o.refit, "all") == 0;
    p->random_half = strcmp(o.half, "random") == 0, p->seed = (uint64_t)common.seed;
    p->ties_mean = strcmp(o.ties, "mean") == 0;
    p->tolerance = o.tolerance;
    p->max_iterations = o.iterations > 1000000 ? 1000000 : (int)o.iterations;
}

static bool is_lambda(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    return strcmp(text, "search") == 0 || (end != text && !*end && isfinite(v) && v >= 0);
}

static int check(const command *self)
{
    if (!is_lambda(o.lambda)) return cli_usage(self, "--lambda %s: needs a number of 0 or more, or search", o.lambda);
    int64_t shots[FEW_SHOT_ROWS];
    if (o.shots && !parse_shots(shots))
        return cli_usage(self, "--shots %s: needs up to %d numbers of 1 or more, such as 1,2,4,8,16", o.shots,
                         FEW_SHOT_ROWS);
    if (o.knn && o.shots) return cli_usage(self, "give --shots or --knn");
    if (o.out && (o.knn || o.shots)) return cli_usage(self, "--out does not apply to --shots or --knn");
    if (!o.datas.count != !o.model.checkpoint) return cli_usage(self, "--data and --checkpoint must be given together");
    if (o.datas.count && (o.trains.count || o.tests.count || o.vals.count))
        return cli_usage(self, "give --data, or --train and --test");
    if (!o.datas.count && (!o.trains.count || !o.tests.count))
        return cli_usage(self, "needs --train and --test, or --checkpoint and --data");
    if (o.trains.count != o.tests.count || (o.vals.count && o.vals.count != o.trains.count))
        return cli_usage(self, "--train, --test and --val need the same number of files: one of each for every split");
    if (o.datas.count + o.trains.count > 1 && (o.out || o.knn || o.shots))
        return cli_usage(self, "--out, --knn and --shots need a single split");
    return -1;
}

static const char *item(const opt_list *l, int k) { return l->count ? l->item[k] : NULL; }

static int run_split(const command *self, cloob_ctx *ctx, const cloob_probe_options *p, int k, split_result *out)
{
    o.train = item(&o.trains, k), o.val = item(&o.vals, k), o.test = item(&o.tests, k), o.data = item(&o.datas, k);
    input in[3] = { 0 };
    cloob_status status =
        o.data ? embed_parts(ctx, cli_data_ready(&o.model.data), in) : open_input(ctx, o.train, "train", &in[0]);
    if (status == CLOOB_OK && o.val) status = open_input(ctx, o.val, "val", &in[1]);
    if (status == CLOOB_OK && o.test) status = open_input(ctx, o.test, "test", &in[2]);
    if (status == CLOOB_OK) status = work(ctx, p, in, out);
    for (int i = 0; i < 3; i++) {
        embeddings_close(in[i].file);
        embed_result_release(&in[i].made);
    }
    return cli_exit(self, ctx, status);
}

static int run(const command *self, cloob_ctx *ctx)
{
    int splits = (int)(o.datas.count ? o.datas.count : o.trains.count), code = 0;
    cloob_probe_options p;
    fill(&p);
    split_result *result = must(calloc((size_t)splits, sizeof *result));
    for (int k = 0; k < splits && !code; k++) code = run_split(self, ctx, &p, k, &result[k]);
    if (!code && splits > 1) print_average(result, splits);
    else if (!code && result[0].json) fputs(result[0].json, stdout);
    for (int k = 0; k < splits; k++) free(result[k].json);
    free(result);
    return code;
}

const command eval_probe = {
    .name = "eval probe",
    .run = run,
    .check = check,
    .stray = "--data",
    .help = "fit a linear probe on stored features",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION | USES_SEED,
    .usage = "--train E... --test E... [--val E...] | --checkpoint M --data SOURCE... [--lambda X|search]",
    .details =
        "Minimises the sum of cross entropies + lambda/2 |W|^2 by L-BFGS; biases are not penalised. --lambda search "
        "tries 1e-6, 1e-4, ... 1e6, then halves the interval around the best down to an eighth of a decade; --ties "
        "chooses among equals. As in CLIP, the final training then includes the validation rows (--refit train leaves "
        "them out). A file may contain all splits as train.x, train.y, val.x and so on. Features stay in the mapped "
        "file. Classes of two splits are matched by name, or by number in files without class names.\n"
        "\n"
        "--data embeds images first, with features before the projection. It uses the folders train and test (or val) "
        "of SOURCE, or the two parts of CIFAR, STL-10 and MNIST. A set without parts is split: its images alternate "
        "between training and testing.\n"
        "\n"
        "For a data set with several splits, such as UCF101, repeat --data, or --train with --test: the output is a "
        "result for each split, then the mean and standard deviation of the accuracies (JSON: test_acc, "
        "test_acc_deviation, test_mean_per_class, splits). --shots trains on a few rows of each class, drawn --seeds "
        "times; lambda is chosen on --val, and is 1 without it.\n"
        "\n"
        "  cloob embed --checkpoint M --data train --features pre --raw --out train.safetensors\n"
        "  cloob eval probe --train train.safetensors --test test.safetensors --lambda search\n"
        "  cloob eval probe --train train.safetensors --test test.safetensors --shots 1,2,4,8,16",
};
