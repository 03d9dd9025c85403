/* cloob eval retrieval: ranks matching pairs. */
#include <stdio.h>

#include "cli/cli.h"
#include "eval/metrics.h"
#include "infer/embeddings_file.h"

static struct {
    const char *input;
    int64_t queries;
} o;

static const opt_row rows[] = {
    { "input", OPT_STRING, &o.input, NULL, "E", "safetensors with image and text (or x and y), one row per pair",
      OPT_REQUIRED },
    { "queries", OPT_INT, &o.queries, "0", "N", "number of evenly spaced pairs to rank; 0: all", OPT_NOT_NEGATIVE },
    OPT_END,
};

static void print_side(const char *name, const cloob_retrieval_side *s)
{
    printf("%-13s  %6.2f %%  %6.2f %%  %6.2f %%  %9.2f  %11.0f  %6.4f\n", name, 100 * s->recall1, 100 * s->recall5,
           100 * s->recall10, s->mean_rank, s->median_rank, s->mrr);
}

static void print_result(const cloob_retrieval *r)
{
    int64_t tied = r->image_to_text.tied + r->text_to_image.tied;
    if (r->scaled) cli_print("warning: ", "%lld rows were not of unit length and were scaled", (long long)r->scaled);
    if (tied)
        cli_print("warning: ", "%lld queries tie with another candidate (equal embeddings); ties rank by index",
                  (long long)tied);
    if (common.json) {
        cli_put_text(retrieval_json(r));
        return;
    }
    if (r->images != r->texts) printf("%lld images, %lld texts", (long long)r->images, (long long)r->texts);
    else printf("%lld pairs", (long long)r->pairs);
    if (r->queries < r->images) printf(", %lld of them ranked", (long long)r->queries);
    printf("\n");
    printf("%-13s  %8s  %8s  %8s  %9s  %11s  %6s\n", "", "R@1", "R@5", "R@10", "mean rank", "median rank", "MRR");
    print_side("image to text", &r->image_to_text);
    print_side("text to image", &r->text_to_image);
}

static int run(const command *self, cloob_ctx *ctx)
{
    embeddings_file *e = NULL;
    cloob_matrix image = { 0 }, text = { 0 };
    cloob_retrieval r;
    cloob_retrieve_options how = { .queries = o.queries };
    cloob_status status = embeddings_open(ctx, o.input, &e);
    if (status == CLOOB_OK) status = embeddings_matrix(ctx, e, "image|x", &image);
    if (status == CLOOB_OK) status = embeddings_matrix(ctx, e, "text|y", &text);
    if (status == CLOOB_OK && embeddings_has(e, "text_image"))
        status = embeddings_labels(ctx, e, "text_image", text.rows, &how.text_image);
    if (status == CLOOB_OK) status = cloob_retrieve(ctx, &r, &image, &text, &how);
    if (status == CLOOB_OK) print_result(&r);
    embeddings_close(e);
    return cli_exit(self, ctx, status);
}

const command eval_retrieval = {
    .name = "eval retrieval",
    .run = run,
    .stray = "--input",
    .help = "measure image-text retrieval: R@1/5/10, mean and median rank",
    .options = rows,
    .usage = "--input E.safetensors",
    .details =
        "Row i of image belongs to row i of text. Ranks count from 1; candidates of exactly equal similarity rank by "
        "index. Similarities are computed in tiles, so 780,000 pairs need no more memory than 7,000. --queries N ranks "
        "N evenly spaced pairs among all candidates: an estimate of the same metrics for less work.\n"
        "\n"
        "If E has `text_image`, the image of each text, images may have any number of captions, as in Flickr30k and "
        "COCO: an image's rank is the rank of its best caption, a text's rank is the rank of its image.\n"
        "\n"
        "  cloob embed --checkpoint M --data val.tsv --out E.safetensors\n"
        "  cloob eval retrieval --input E.safetensors --json\n"
        "  cloob embed --checkpoint M --data flickr.csv --all-captions --out F.safetensors",
};
