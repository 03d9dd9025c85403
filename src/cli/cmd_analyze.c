/* cloob analyze: how embeddings lie on the sphere. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"

static struct {
    const char *input, *out, *reference;
    double share;
} o;

static const opt_row rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "E",
      "safetensors with image and text (or x and y); image alone is fine", OPT_REQUIRED },
    { "out", OPT_STRING, &o.out, NULL, "DIR",
      "folder for analysis.json, eigenvalues.tsv and similarities.tsv", 0 },
    { "reference", OPT_STRING, &o.reference, NULL, "E",
      "embeddings to tell the relative change against, say of an early epoch", 0 },
    { "share", OPT_DOUBLE, &o.share, "0.99", "X", "of the variance, that effective eigenvalues make up",
      OPT_POSITIVE },
    OPT_END,
};

static cloob_status analyze(cloob_ctx *ctx, const char *path, cloob_analysis *out)
{
    cloob_embeddings *e = NULL;
    cloob_matrix image, text;
    cloob_status status = cloob_embeddings_open(ctx, path, &e);
    if (status != CLOOB_OK) return status;
    bool paired = cloob_embeddings_has(e, "text|y");
    status = cloob_embeddings_matrix(ctx, e, "image|x", &image);
    if (status == CLOOB_OK && paired) status = cloob_embeddings_matrix(ctx, e, "text|y", &text);
    if (status == CLOOB_OK) status = cloob_analyze(ctx, out, &image, paired ? &text : NULL, o.share);
    cloob_embeddings_close(e);
    return status;
}

static void print_spread(const char *name, const cloob_coverage *s)
{
    printf(
        "%-6s  Ajne %.6g  uniformity %.6g  effective eigenvalues %lld of %lld  largest %.4g  variance %.4g\n",
        name, s->ajne, s->uniformity, (long long)s->effective, (long long)s->dimensions, s->eigenvalue[0],
        s->variance);
}

static void print_set(const char *name, const cloob_similarity_set *s)
{
    printf("%-18s %.6f +- %.6f\n", name, s->mean, s->deviation);
}

static void print_text(const cloob_analysis *a)
{
    printf("%lld rows\n", (long long)a->rows);
    print_spread("image", &a->x);
    if (!a->paired) return;
    print_spread("text", &a->y);
    printf("alignment          %.6f\n", a->similarity.alignment);
    print_set("matched", &a->similarity.matched);
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
    printf("against %s: effective eigenvalues %+.2f %%, Ajne %+.2f %% (image)", o.reference,
           100 * ((double)a->x.effective / (double)r->x.effective - 1), 100 * (a->x.ajne / r->x.ajne - 1));
    if (a->paired && r->paired)
        printf("; %+.2f %%, %+.2f %% (text)", 100 * ((double)a->y.effective / (double)r->y.effective - 1),
               100 * (a->y.ajne / r->y.ajne - 1));
    putchar('\n');
}

static cloob_status show(cloob_ctx *ctx, const cloob_analysis *a, const cloob_analysis *reference)
{
    if (a->scaled)
        fprintf(stderr, "warning: %lld rows were not of unit length and were scaled\n", (long long)a->scaled);
    if (common.json) {
        char *text = cloob_analysis_json(a, reference);
        fputs(text ? text : "", stdout);
        free(text);
    } else {
        print_text(a);
        if (reference) print_change(a, reference);
    }
    return o.out ? cloob_analysis_write(ctx, a, reference, o.out) : CLOOB_OK;
}

static int run(const command *self, int argc, char **argv)
{
    opt_list rest;
    int code = opt_parse(self, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count) return cli_usage(self, "does not take %s; give the file with --input", rest.item[0]);
    if (o.share >= 1) return cli_usage(self, "--share %g: needs a number below 1", o.share);
    cloob_ctx *ctx = cli_context();
    cloob_analysis a = { 0 }, reference = { 0 };
    cloob_status status = analyze(ctx, o.input, &a);
    if (status == CLOOB_OK && o.reference) status = analyze(ctx, o.reference, &reference);
    if (status == CLOOB_OK) status = show(ctx, &a, o.reference ? &reference : NULL);
    code = status == CLOOB_OK ? 0 : cli_fail(self, ctx, status);
    cloob_analysis_release(&a), cloob_analysis_release(&reference);
    cloob_ctx_destroy(ctx);
    return code;
}

const command cmd_analyze = {
    "analyze",
    run,
    "uniformity, effective eigenvalues and similarity distributions of stored embeddings",
    rows,
    "--input E.safetensors [--out DIR] [--reference E0.safetensors]",
    "Ajne's statistic and uniformity are small when rows lie evenly; many effective eigenvalues mean that "
    "many\n"
    "features carry the variance. Unmatched similarities are those of each image with its nearest foreign "
    "texts.\n"
    "In JSON, x is the image and y the text.\n\n"
    "  cloob analyze --input epoch_31.safetensors --reference epoch_1.safetensors --out analysis",
};
