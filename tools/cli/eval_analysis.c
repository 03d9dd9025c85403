/* cloob eval analysis: how evenly embeddings cover the sphere, and which known factors they retain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "eval/metrics.h"
#include "infer/embeddings_file.h"
#include "eval/analysis.h"
#include "lab/synth/world_truth.h"
#include "lab/report/report.h"

static struct {
    const char *input, *out, *reference, *world;
    cli_model model;
    double share, lambda, beta;
} o;

static const opt_row option_rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "E", "safetensors with image and text (or x and y); text is optional", 0 },
    { "out", OPT_STRING, &o.out, NULL, "DIR",
      "folder for analysis.json, eigenvalues.tsv, similarities.tsv, and plots: spectrum and "
      "similarities, .svg and .pdf",
      0 },
    { "reference", OPT_STRING, &o.reference, NULL, "E",
      "report changes relative to these embeddings, such as an early epoch's", 0 },
    { "share", OPT_DOUBLE, &o.share, "0.99", "X", "share of the variance that the effective eigenvalues explain",
      OPT_POSITIVE },
    { "scale-hopfield", OPT_DOUBLE, &o.beta, NULL, "B",
      "also count the rows that a Hopfield network of all rows stores with this beta (well separated)", OPT_POSITIVE },
    { "world", OPT_STRING, &o.world, NULL, "DIR",
      "a world of cloob synth: measure how much of each factor the embeddings retain", 0 },
    { "lambda", OPT_DOUBLE, &o.lambda, "1", "X", "L2 strength of the probes of --world", OPT_POSITIVE },
    CLI_BATCHED_ROWS(o.model),
    OPT_END,
};
static const opt_set sets[] = { { .table = cli_model_table, .into = &o.model }, OPT_SETS_END };

static cloob_status analyze(cloob_ctx *ctx, const char *path, cloob_analysis *out)
{
    embeddings_file *e = NULL;
    cloob_matrix image, text;
    cloob_status status = embeddings_open(ctx, path, &e);
    if (status != CLOOB_OK) return status;
    bool paired = embeddings_has(e, "text|y");
    status = embeddings_matrix(ctx, e, "image|x", &image);
    if (status == CLOOB_OK && paired) status = embeddings_matrix(ctx, e, "text|y", &text);
    if (status == CLOOB_OK) status = cloob_analyze(ctx, out, &image, paired ? &text : NULL, o.share);
    embeddings_close(e);
    return status;
}

static void print_row(const char *name, double image, double text, bool paired)
{
    printf("%-22s %12.6g", name, image);
    if (paired) printf(" %12.6g", text);
    putchar('\n');
}

static void print_coverage(const cloob_analysis *a)
{
    const cloob_coverage *x = &a->x, *y = &a->y;
    printf("%-22s %12s%s\n", "", "image", a->paired ? "         text" : "");
    print_row("Ajne", x->ajne, y->ajne, a->paired);
    print_row("uniformity", x->uniformity, y->uniformity, a->paired);
    print_row("effective eigenvalues", (double)x->effective, (double)y->effective, a->paired);
    print_row("largest eigenvalue", x->eigenvalue[0], a->paired ? y->eigenvalue[0] : 0, a->paired);
    print_row("variance", x->variance, y->variance, a->paired);
}

static void print_set(const char *name, const cloob_similarity_set *s)
{
    printf("%-22s %12.6f +- %.6f\n", name, s->mean, s->deviation);
}

static void print_text(const cloob_analysis *a)
{
    printf("%lld rows of width %lld\n", (long long)a->rows, (long long)a->x.dimensions);
    print_coverage(a);
    if (!a->paired) return;
    printf("%-22s %12.6f\n", "alignment", a->similarity.alignment);
    print_set("matched pairs", &a->similarity.matched);
    for (int k = 0; k < CLOOB_UNMATCHED_SETS; k++) {
        const cloob_similarity_set *s = &a->similarity.unmatched[k];
        char name[32];
        snprintf(name, sizeof name, "top-%lld unmatched", (long long)s->k);
        print_set(name, s);
        if (s->k < s->asked) break; /* larger sets are the same values */
    }
}

static void print_change(const cloob_analysis *a, const cloob_analysis *r)
{
    printf("against %s\n", o.reference);
    printf("  image  effective eigenvalues %+.2f %%, Ajne %+.2f %%\n",
           100 * ((double)a->x.effective / (double)r->x.effective - 1), 100 * (a->x.ajne / r->x.ajne - 1));
    if (a->paired && r->paired)
        printf("  text   effective eigenvalues %+.2f %%, Ajne %+.2f %%\n",
               100 * ((double)a->y.effective / (double)r->y.effective - 1), 100 * (a->y.ajne / r->y.ajne - 1));
}

/* The numbers are useful without plots: a build that cannot draw prints a warning and continues. */
static cloob_status write_files(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference)
{
    cloob_status status = analysis_write(ctx, a, reference, o.out);
    if (status == CLOOB_OK) status = analysis_plots(ctx, a, reference, o.out);
    if (status != CLOOB_ERR_UNSUPPORTED) return status;
    cli_print("warning: ", "no plots in %s: %s", o.out, cloob_error(ctx));
    return CLOOB_OK;
}

/* ---- separation ---------------------------------------------------------------------------------- */

static const char *const row_keys[] = { "image|x", "text|y" }, *const row_names[] = { "image", "text" };

/* found[i]: the rows of row_keys[i] are there. */
static cloob_status separate(cloob_ctx *ctx, separation s[2], bool found[2])
{
    embeddings_file *e = NULL;
    cloob_matrix m;
    cloob_status status = embeddings_open(ctx, o.input, &e);
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        found[i] = embeddings_has(e, row_keys[i]);
        if (!found[i]) continue;
        status = embeddings_matrix(ctx, e, row_keys[i], &m);
        if (status == CLOOB_OK) status = separation_of(ctx, &s[i], &m, o.beta);
    }
    embeddings_close(e);
    return status;
}

static cloob_status print_separation(cloob_ctx *ctx)
{
    separation s[2];
    bool found[2] = { false, false };
    cloob_status status = separate(ctx, s, found);
    for (int i = 0; i < 2 && status == CLOOB_OK; i++)
        if (found[i])
            printf("%s: %lld rows are well separated at scale %g (%.4g needed; smallest %.4g, mean %.4g)\n",
                   row_names[i], (long long)s[i].rows, o.beta, s[i].needed, s[i].smallest, s[i].mean);
    return status;
}

/* The analysis with one more member. */
static cloob_status print_json(cloob_ctx *ctx, char *analysis)
{
    separation s[2];
    bool found[2] = { false, false };
    json_out w = { .spaced = true };
    size_t n = analysis ? strlen(analysis) : 0;
    if (!n || !opt_given("scale-hopfield")) return cli_put_text(ctx, analysis);
    cloob_status status = separate(ctx, s, found);
    json_begin(&w, NULL, '{');
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        if (!found[i]) continue;
        json_object(&w, row_names[i], J_NUMBER("scale_hopfield", o.beta, 0), J_OF(&s[i], rows),
                    J_NUMBER("needed", s[i].needed, 0), J_NUMBER("smallest", s[i].smallest, 0),
                    J_NUMBER("mean", s[i].mean, 0));
    }
    json_end(&w);
    while (n && analysis[n - 1] != '}') n--;
    if (status == CLOOB_OK) printf("%.*s, \"well_separated\": %s}\n", (int)n - 1, analysis, w.data ? w.data : "null");
    free(w.data), free(analysis);
    return status;
}

static cloob_status show(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference)
{
    if (a->scaled) cli_print("warning: ", "%lld rows were not of unit length and were scaled", (long long)a->scaled);
    cloob_status status = CLOOB_OK;
    if (common.json) status = print_json(ctx, analysis_json(a, reference));
    else {
        print_text(a);
        if (reference) print_change(a, reference);
        if (opt_given("scale-hopfield")) status = print_separation(ctx);
    }
    return status == CLOOB_OK && o.out ? write_files(ctx, a, reference) : status;
}

/* ---- factors ------------------------------------------------------------------------------------- */

static void print_factors(const factors_result *f)
{
    printf("%-12s %6s %8s %9s %8s %6s\n", "factor", "values", "chance", "zero-shot", "probe", "kept");
    for (int64_t i = 0; i < f->count; i++) {
        const factor_result *r = &f->row[i];
        printf("%-12s %6lld %6.1f %% %7.1f %% %6.1f %% %6.2f\n", r->name, (long long)r->values, 100 * r->chance,
               100 * r->zeroshot, 100 * r->probe, r->kept);
    }
    printf("%.2f of %lld factors kept; %lld images of combinations that training never shows", f->kept,
           (long long)f->count, (long long)f->tested);
    if (f->bad) printf(" (%lld could not be read)", (long long)f->bad);
    printf("\n");
}

static cloob_status show_factors(cloob_ctx *ctx)
{
    cloob_model *m = NULL;
    factors_result f;
    cloob_status status = cli_model_open(ctx, &o.model, &m);
    if (status == CLOOB_OK) status = factors_measure(ctx, m, o.world, o.lambda, &f);
    cloob_model_close(m);
    if (status != CLOOB_OK) return status;
    if (common.json) status = cli_put_text(ctx, factors_json(&f));
    else print_factors(&f);
    return status == CLOOB_OK && o.out ? factors_write(ctx, &f, o.out) : status;
}

/* ---- the command --------------------------------------------------------------------------------- */

static cloob_status show_embeddings(cloob_ctx *ctx)
{
    cloob_analysis a = { 0 }, reference = { 0 };
    cloob_status status = analyze(ctx, o.input, &a);
    if (status == CLOOB_OK && o.reference) status = analyze(ctx, o.reference, &reference);
    if (status == CLOOB_OK) status = show(ctx, &a, o.reference ? &reference : NULL);
    cloob_analysis_release(&a), cloob_analysis_release(&reference);
    return status;
}

static int check(const command *self)
{
    if (!o.input == !o.world)
        return cli_usage(self, "needs --input E, or --checkpoint M with --world DIR; one of the two");
    if (!o.world != !o.model.checkpoint) return cli_usage(self, "--world and --checkpoint need each other");
    if (o.share >= 1) return cli_usage(self, "--share %g: needs a number below 1", o.share);
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    return cli_exit(self, ctx, o.world ? show_factors(ctx) : show_embeddings(ctx));
}

const command eval_analysis = {
    .name = "eval analysis",
    .run = run,
    .check = check,
    .stray = "--input",
    .help = "measure uniformity, eigenvalues and similarities of embeddings",
    .options = option_rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--input E.safetensors [--out DIR] [--reference E0.safetensors] | --checkpoint M --world DIR",
    .details =
        "Ajne's statistic and uniformity are small when rows are spread evenly; many effective eigenvalues mean that "
        "many\n"
        "features carry the variance. Unmatched similarities compare each image with the nearest texts of other "
        "images.\n"
        "In JSON, x is the image and y the text.\n"
        "\n"
        "With --world: each factor's zero-shot and linear-probe accuracy, on combinations that training\n"
        "never shows, and how many of the factors the embeddings retain: a measure of explaining away.\n"
        "\n"
        "  cloob eval analysis --input epoch_31.safetensors --reference epoch_1.safetensors --out analysis\n"
        "  cloob eval analysis --checkpoint logs/first/checkpoints/latest.safetensors --world world",
};
