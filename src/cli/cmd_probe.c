/* cloob probe: a linear classifier on fixed features. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

static struct {
    const char *train, *val, *test, *lambda, *refit, *out;
    int64_t iterations;
    double tolerance;
} o;

static const opt_row rows[] = {
    { "train", OPT_STRING, &o.train, NULL, "E", "safetensors with x [N,d] and y [N]", OPT_REQUIRED },
    { "test", OPT_STRING, &o.test, NULL, "E", "the same for testing", OPT_REQUIRED },
    { "val", OPT_STRING, &o.val, NULL, "E",
      "the same for choosing lambda; without it, half of the training rows", 0 },
    { "lambda", OPT_STRING, &o.lambda, "search", "X", "L2 strength, or search", 0 },
    { "refit", OPT_STRING, &o.refit, "all", "all|train",
      "after a search, train on train and val rows, or on train alone", 0 },
    { "max-iterations", OPT_INT, &o.iterations, "1000", "N", "of L-BFGS", OPT_POSITIVE },
    { "tolerance", OPT_DOUBLE, &o.tolerance, "0", "X",
      "relative decrease still expected at the end; 0: by size", OPT_NOT_NEGATIVE },
    { "out", OPT_STRING, &o.out, NULL, "FILE", "the classifier as safetensors: weight, bias, label", 0 },
    OPT_END,
};

typedef struct input {
    cloob_embeddings *file;
    cloob_split split;
} input;

/* A file of its own, or one that holds several splits as train.x, train.y and so on. */
static cloob_status open_input(cloob_ctx *ctx, const char *path, const char *which, input *in)
{
    char x[32], y[32];
    cloob_status status = cloob_embeddings_open(ctx, path, &in->file);
    if (status != CLOOB_OK) return status;
    snprintf(x, sizeof x, "x|image|%s.x", which);
    snprintf(y, sizeof y, "y|label|%s.y", which);
    status = cloob_embeddings_matrix(ctx, in->file, x, &in->split.x);
    if (status == CLOOB_OK)
        status = cloob_embeddings_labels(ctx, in->file, y, in->split.x.rows, &in->split.y);
    return status;
}

static void print_text(const cloob_probe_result *r)
{
    printf("%lld classes, %lld dimensions, %lld training rows, %lld test rows\n", (long long)r->classes,
           (long long)r->dimensions, (long long)r->trained_rows, (long long)r->test_rows);
    printf("lambda %.6g  objective %.10g  |W| %.6g  %d iterations%s\n", r->lambda, r->objective, r->coef_norm,
           r->iterations, r->converged ? "" : " (not converged)");
    printf("train %.4f", r->train_acc);
    if (r->has_val) printf("  val %.4f", r->val_acc);
    printf("  test %.4f  mean per class %.4f\n", r->test_acc, r->test_mean_per_class);
}

static cloob_status work(cloob_ctx *ctx, const cloob_probe_options *p, const input *in)
{
    cloob_probe_result r;
    cloob_status status = cloob_probe(ctx, &r, p, &in[0].split, o.val ? &in[1].split : NULL, &in[2].split);
    if (status != CLOOB_OK) return status;
    if (common.json) {
        char *text = cloob_probe_json(&r);
        fputs(text ? text : "", stdout);
        free(text);
    } else print_text(&r);
    if (o.out) status = cloob_probe_save(ctx, &r, o.out);
    cloob_probe_release(&r);
    return status;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    cloob_probe_options p;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "does not take %s", rest.item[0]);
    cloob_probe_options_init(&p);
    p.search = strcmp(o.lambda, "search") == 0;
    p.refit_all = strcmp(o.refit, "all") == 0;
    p.tolerance = o.tolerance;
    p.max_iterations = o.iterations > 1000000 ? 1000000 : (int)o.iterations;
    if (!p.search) {
        char *end;
        p.lambda = strtod(o.lambda, &end);
        if (end == o.lambda || *end || !isfinite(p.lambda) || p.lambda < 0)
            return cli_usage(self, "--lambda %s: needs a number of 0 or more, or search", o.lambda);
    }
    cloob_ctx *ctx = cli_context();
    input in[3] = { 0 };
    cloob_status status = open_input(ctx, o.train, "train", &in[0]);
    if (status == CLOOB_OK && o.val) status = open_input(ctx, o.val, "val", &in[1]);
    if (status == CLOOB_OK) status = open_input(ctx, o.test, "test", &in[2]);
    if (status == CLOOB_OK) status = work(ctx, &p, in);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    for (int i = 0; i < 3; i++) cloob_embeddings_close(in[i].file);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_probe = {
    "probe",
    run,
    "linear probe: L2-regularised logistic regression on stored features",
    rows,
    "--train E --test E [--val E] [--lambda X|search]",
    "Minimises the sum of cross entropies + lambda/2 |W|^2 (bias free) by L-BFGS. --lambda search goes "
    "through\n"
    "1e-6, 1e-4, ... 1e6 and halves the interval around the best down to an eighth of a decade; among equals "
    "the\n"
    "strongest wins. As in CLIP, the final training then includes the validation rows (--refit train leaves "
    "them\n"
    "out). A file may hold all splits as train.x, train.y, val.x and so on. Features stay in the mapped "
    "file.\n\n"
    "  cloob embed --checkpoint M --data train --features pre --raw --out train.safetensors\n"
    "  cloob probe --train train.safetensors --test test.safetensors --lambda search",
};
