/* cloob embed: writes embeddings of images and texts. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "infer/model_file.h"
#include "infer/embed_job.h"

static struct {
    cli_model model;
    cloob_eval_options eval;
    const char *out, *texts, *data, *tensors, *features;
    opt_list images;
    bool raw, all_captions;
} o;

static const opt_row rows[] = {
    { "out", OPT_STRING, &o.out, NULL, "E", "output file: .safetensors, or .npy for a single matrix", OPT_REQUIRED },
    { "images", OPT_LIST, &o.images, NULL, "PATH", "images or folders of images", 0 },
    { "texts", OPT_STRING, &o.texts, NULL, "FILE", "file with one text per line", 0 },
    { "data", OPT_STRING, &o.data, NULL, "SOURCE", "data set: TSV, shards, class folders, CIFAR and others", 0 },
    { "all-captions", OPT_FLAG, &o.all_captions, NULL, NULL,
      "embed every caption of each image in --data; cloob eval retrieval then ranks all of them", 0 },
    { "tensors", OPT_STRING, &o.tensors, NULL, "T",
      "safetensors with images F32 [N,3,H,W], normalised, and/or tokens I32 or I64 [N,L]", 0 },
    { "raw", OPT_FLAG, &o.raw, NULL, NULL, "do not normalise rows to unit length", 0 },
    { "features", OPT_STRING, &o.features, "post", "post|pre",
      "after the projection, or before it (for cloob eval probe)", 0 },
    CLI_MAX_PIXELS_ROW(o.model),
    OPT_END
};
static const opt_set sets[] = { { .table = cli_model_table, .into = &o.model, .required = "checkpoint" },
                                { .table = eval_option_table, .into = &o.eval },
                                OPT_SETS_END };

static cloob_output wanted(void)
{
    return strcmp(o.features, "pre") == 0 ? CLOOB_FEATURES : o.raw ? CLOOB_RAW : CLOOB_UNIT;
}

static cloob_status embed(cloob_ctx *ctx, cloob_model *m, const cloob_data_options *d, embed_result *e)
{
    cloob_dataset *set = NULL;
    cloob_status status = o.data ? cloob_dataset_open(ctx, o.data, d, &set) : CLOOB_OK;
    embed_job job = { .what = wanted(),
                      .data = set,
                      .all_captions = o.all_captions,
                      .tensors = o.tensors,
                      .images = o.images.item,
                      .images_count = o.images.count,
                      .texts = o.texts,
                      .eval = o.eval };
    if (status == CLOOB_OK) status = embed_to_file(ctx, m, &job, o.out, e);
    cloob_dataset_close(set);
    return status;
}

static void print(const embed_result *e)
{
    if (common.json) {
        json_out_object(NULL, J_OF(&o, out), J_INT("image", e->rows), J_INT("text", e->text_rows), J_OF(e, image_width),
                        J_OF(e, text_width), J_OF(e, bad), J_OF(e, classes));
        return;
    }
    printf("%s:", o.out);
    if (e->image_width) printf(" image (%lld, %lld)", (long long)e->rows, (long long)e->image_width);
    if (e->text_width) printf(" text (%lld, %lld)", (long long)e->text_rows, (long long)e->text_width);
    if (e->classes) printf(" label (%lld) of %lld classes", (long long)e->rows, (long long)e->classes);
    if (e->bad) printf("; %lld could not be read", (long long)e->bad);
    printf("\n");
}

static int check(const command *self)
{
    if (!o.images.count && !o.texts && !o.data && !o.tensors)
        return cli_usage(self, "nothing to embed: give --images, --texts, --data or --tensors");
    if (strcmp(o.features, "pre") == 0 && o.eval.retrieve)
        return cli_usage(self, "--retrieve works on embeddings after the projection");
    if (o.all_captions && !o.data) return cli_usage(self, "--all-captions needs --data");
    return -1;
}

static int run(const command *self, cloob_ctx *ctx)
{
    cloob_model *m = NULL;
    embed_result e = { 0 };
    if (o.all_captions) o.model.data.one_caption = true; /* rows of a CSV with the same image become one sample */
    cloob_status status = cli_model_open(ctx, &o.model, &m);
    if (status == CLOOB_OK) status = embed(ctx, m, cli_data_ready(&o.model.data), &e);
    if (status == CLOOB_OK) print(&e);
    embed_result_release(&e);
    cloob_model_close(m);
    return cli_exit(self, ctx, status);
}

const command cmd_embed = {
    .name = "embed",
    .run = run,
    .check = check,
    .stray = "--images",
    .help = "write embeddings of images, texts or a data set",
    .options = rows,
    .sets = sets,
    .uses = USES_PRECISION,
    .usage = "--checkpoint M --out E [--images PATH...] [--texts FILE] [--data SOURCE] [--tensors T]",
    .details =
        "Writes `image` and `text` (N, D) to E, normalised to unit length unless --raw is given. For a data set it "
        "also writes `row` (N), the sample number of each row, with gaps where images could not be read, and `label` "
        "(N) if the data has classes. The metadata lists `names`, `captions` and `classes`. --all-captions embeds "
        "every caption: text (M, D) and `text_image` (M), the row of each caption's image. cloob eval retrieval, "
        "analysis and probe read such files.\n"
        "\n"
        "A row has the same bytes alone or in any batch, unless --no-invariant trades this for "
        "speed. Rows are streamed to the file: memory does not grow with their number.\n"
        "\n"
        "  cloob embed --checkpoint M --out E.safetensors --data val.tsv\n"
        "  cloob embed --checkpoint M --out E.npy --images cat.jpg dog.jpg\n"
        "  cloob embed --checkpoint M --out train.safetensors --data classes/ --features pre",
};
