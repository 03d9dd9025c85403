/* cloob eval analysis: measures how evenly embeddings cover the sphere and how similar matched pairs are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "eval/metrics.h"
#include "infer/embeddings_file.h"
#include "eval/analysis.h"
#include "lab/report/report.h"

static struct {
    const char *input, *out, *reference;
    double share, beta;
} o;

static const opt_row option_rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "E", "safetensors with image and text (or x and y); text is optional",
      OPT_REQUIRED },
    { "out", OPT_STRING, &o.out, NULL, "DIR",
      "folder for analysis.json, eigenvalues.tsv, similarities.tsv, spectrum.svg and similarities.svg", 0 },
    { "reference", OPT_STRING, &o.reference, NULL, "E",
      "report changes relative to these embeddings, such as an early epoch's", 0 },
    { "share", OPT_DOUBLE, &o.share, "0.99", "X", "share of the variance that the effective eigenvalues explain",
      OPT_POSITIVE },
    { "scale-hopfield", OPT_DOUBLE, &o.beta, NULL, "B",
      "also count the rows that a Hopfield network of all rows stores with this beta (well separated)", OPT_POSITIVE },
    OPT_END,
};

static cloob_status analyze(cloob_ctx *ctx, const char *path, embedding_analysis *out)
{
    embeddings_file *e = NULL;
    cloob_matrix image, text;
    CLOOB_TRY(embeddings_open(ctx, path, &e));
    bool paired = embeddings_has(e, "text|y");
    cloob_status status = embeddings_matrix(ctx, e, "image|x", &image);
    if (status == CLOOB_OK && paired) status = embeddings_matrix(ctx, e, "text|y", &text);
    if (status == CLOOB_OK) status = analyze_matrices(ctx, out, &image, paired ? &text : NULL, o.share);
    embeddings_close(e);
    return status;
}

static void print_row(const char *name, double image, double text, bool paired)
{
    printf("%-22s %12.6g", name, image);
    if (paired) printf(" %12.6g", text);
    putchar('\n');
}

static void print_coverage(const embedding_analysis *a)
{
    const coverage *x = &a->x, *y = &a->y;
    printf("%-22s %12s%s\n", "", "image", a->paired ? "         text" : "");
    print_row("Ajne", x->ajne, y->ajne, a->paired);
    print_row("uniformity", x->uniformity, y->uniformity, a->paired);
    print_row("effective eigenvalues", (double)x->effective, (double)y->effective, a->paired);
    print_row("largest eigenvalue", x->eigenvalue[0], a->paired ? y->eigenvalue[0] : 0, a->paired);
    print_row("variance", x->variance, y->variance, a->paired);
}

static void print_set(const char *name, const similarity_set *s)
{
    printf("%-22s %12.6f +- %.6f\n", name, s->mean, s->deviation);
}

static void print_text(const embedding_analysis *a)
{
    printf("%lld rows of width %lld\n", (long long)a->rows, (long long)a->x.dimensions);
    print_coverage(a);
    if (!a->paired) return;
    printf("%-22s %12.6f\n", "alignment", a->similarity.alignment);
    print_set("matched pairs", &a->similarity.matched);
    for (int k = 0; k < UNMATCHED_SETS; k++) {
        const similarity_set *s = &a->similarity.unmatched[k];
        char name[32];
        snprintf(name, sizeof name, "top-%lld unmatched", (long long)s->k);
        print_set(name, s);
        if (s->k < s->asked) break; /* larger sets have the same values */
    }
}

static void print_change(const embedding_analysis *a, const embedding_analysis *r)
{
    printf("against %s\n", o.reference);
    printf("  image  effective eigenvalues %+.2f %%, Ajne %+.2f %%\n",
           100 * ((double)a->x.effective / (double)r->x.effective - 1), 100 * (a->x.ajne / r->x.ajne - 1));
    if (a->paired && r->paired)
        printf("  text   effective eigenvalues %+.2f %%, Ajne %+.2f %%\n",
               100 * ((double)a->y.effective / (double)r->y.effective - 1), 100 * (a->y.ajne / r->y.ajne - 1));
}

/* ---- separation ---------------------------------------------------------------------------------- */

/* Prints the number of well separated rows of both sides, as lines or as members of `w`. */
static cloob_status put_separation(cloob_ctx *ctx, json_out *w)
{
    static const char *const keys[] = { "image|x", "text|y" }, *const names[] = { "image", "text" };
    embeddings_file *e = NULL;
    cloob_status status = embeddings_open(ctx, o.input, &e);
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) {
        cloob_matrix m;
        separation s;
        if (!embeddings_has(e, keys[i])) continue;
        status = embeddings_matrix(ctx, e, keys[i], &m);
        if (status == CLOOB_OK) status = separation_of(ctx, &s, &m, o.beta);
        if (status == CLOOB_OK && common.json)
            json_object(w, names[i], J_NUMBER("scale_hopfield", o.beta, 0), J_OF(&s, rows),
                        J_NUMBER("needed", s.needed, 0), J_NUMBER("smallest", s.smallest, 0),
                        J_NUMBER("mean", s.mean, 0));
        else if (status == CLOOB_OK)
            printf("%s: %lld rows are well separated at scale %g (%.4g needed; smallest %.4g, mean %.4g)\n", names[i],
                   (long long)s.rows, o.beta, s.needed, s.smallest, s.mean);
    }
    embeddings_close(e);
    return status;
}

/* Prints the analysis, with an additional member if --scale-hopfield is given. */
static cloob_status print_json(cloob_ctx *ctx, char *analysis)
{
    json_out w = { .spaced = true };
    if (!opt_given("scale-hopfield")) return cli_put_text(analysis);
    char *end = strrchr(must(analysis), '}');
    json_begin(&w, NULL, '{');
    cloob_status status = put_separation(ctx, &w);
    json_end(&w);
    if (status == CLOOB_OK)
        printf("%.*s, \"well_separated\": %s}\n", (int)(end - analysis), analysis, (char *)must(w.data));
    free(w.data), free(analysis);
    return status;
}

static cloob_status show(cloob_ctx *ctx, const embedding_analysis *a, const embedding_analysis *reference)
{
    if (a->scaled) cli_print("warning: ", "%lld rows were not of unit length and were scaled", (long long)a->scaled);
    cloob_status status = CLOOB_OK;
    if (common.json) status = print_json(ctx, analysis_json(a, reference));
    else {
        print_text(a);
        if (reference) print_change(a, reference);
        if (opt_given("scale-hopfield")) status = put_separation(ctx, NULL);
    }
    if (status == CLOOB_OK && o.out) status = analysis_write(ctx, a, reference, o.out);
    return status == CLOOB_OK && o.out ? analysis_plots(ctx, o.out) : status;
}

/* ---- the command --------------------------------------------------------------------------------- */

static int check(const command *self)
{
    return o.share < 1 ? -1 : cli_usage(self, "--share %g: must be below 1", o.share);
}

static int run(const command *self, cloob_ctx *ctx)
{
    embedding_analysis a = { 0 }, reference = { 0 };
    cloob_status status = analyze(ctx, o.input, &a);
    if (status == CLOOB_OK && o.reference) status = analyze(ctx, o.reference, &reference);
    if (status == CLOOB_OK) status = show(ctx, &a, o.reference ? &reference : NULL);
    analysis_release(&a), analysis_release(&reference);
    return cli_exit(self, ctx, status);
}

const command eval_analysis = {
    .name = "eval analysis",
    .run = run,
    .check = check,
    .stray = "--input",
    .help = "measure uniformity, eigenvalues and similarities of embeddings",
    .options = option_rows,
    .usage = "--input E.safetensors [--out DIR] [--reference E0.safetensors]",
    .details =
        "Ajne's statistic and uniformity are small when rows are spread evenly; many effective eigenvalues mean that "
        "many features carry the variance. Unmatched similarities compare each image with the nearest texts of other "
        "images. In the result x is the image and y the text.\n"
        "\n"
        "  cloob eval analysis --input epoch_31.safetensors --reference epoch_1.safetensors --out analysis",
};
