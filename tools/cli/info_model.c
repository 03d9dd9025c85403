/* cloob info MODEL: a known model or a configuration file, without weights. cloob info FILE: weights in any known
 * format, or a file of embeddings. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
#include "infer/embeddings_file.h"
#include "model/config.h"
#include "train/memory_budget.h"

/* ---- models without weights -------------------------------------------------------------------------- */

/* A file or folder of that name comes first. */
static bool matches_model(const char *what)
{
    return (text_ends_with(what, ".json") && file_exists(what)) || (!file_exists(what) && model_config_known(what));
}

/* JSON that is shown as it is, in JSON as in text; a key without text is left out. */
static struct {
    const char *key, *text;
} raw[2];

static void put_raw(void)
{
    for (int i = 0; i < 2; i++)
        if (common.json && raw[i].key) json_out_raw(raw[i].key, raw[i].text);
        else if (raw[i].text) printf("%s  %s\n", raw[i].key, raw[i].text);
}

static int64_t image_layers(const model_config *c)
{
    int64_t n = 0;
    for (int i = 0; i < 5; i++) n += c->layers[i];
    return n;
}

static const char *image_activation(const model_config *c)
{
    return c->family == MODEL_RESNET ? "relu" : model_act_name(c->image.act);
}

static void print_model(const model_outline *m, int64_t batch)
{
    const model_config *c = &m->config;
    const step_memory *s = &m->step;
    const json_member shown[] = {
        J_TEXT("kind", "model"),
        J_TEXT("model", c->name),
        J_TEXT("family", model_family_name(c->family)),
        J_TEXT("image_activation", image_activation(c)),
        J_TEXT("text_activation", model_act_name(c->text.act)),
        J_INT("embed_dim", c->embed),
        J_OF(c, image_size),
        J_INT("patch_size", c->patch),
        J_INT("image_tokens", model_config_image_tokens(c)),
        J_INT("image_width", c->width),
        J_INT("image_layers", image_layers(c)),
        J_OF(c, image_heads),
        J_INT("context_length", c->context),
        J_INT("vocab_size", c->vocab),
        J_OF(c, text_width),
        J_OF(c, text_layers),
        J_OF(c, text_heads),
        J_OF(m, tensors),
        J_OF(m, parameters),
        J_OF(m, image_parameters),
        J_INT("text_parameters", m->parameters - m->image_parameters),
        J_INT("batch_size", batch),
        J_INT("step_bytes", (int64_t)s->total_bytes),
        J_INT("params_bytes", (int64_t)s->params_bytes),
        J_INT("optimizer_bytes", (int64_t)s->optimizer_bytes),
        J_INT("image_bytes", (int64_t)s->image_bytes),
        J_INT("text_bytes", (int64_t)s->text_bytes),
        J_INT("objective_bytes", (int64_t)s->loss_bytes),
        J_INT("embed_bytes", (int64_t)m->embed_bytes),
    };
    cli_show(shown, sizeof shown / sizeof *shown, put_raw);
}

static int describe_model(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    model_outline m;
    sbuf config = { 0 };
    cloob_status status = model_describe(ctx, what, o->batch, common.precision, &m);
    if (status == CLOOB_OK) model_config_to_json(&m.config, &config);
    if (config.failed) must(NULL);
    raw[0].key = "config", raw[0].text = config.data;
    if (status == CLOOB_OK) print_model(&m, o->batch);
    sbuf_release(&config);
    return cli_exit(self, ctx, status);
}

const info_kind info_model = { matches_model, describe_model };

/* ---- files ------------------------------------------------------------------------------------------- */

/* A folder is recognised by the configuration in it. */
static bool holds(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return file_exists(path);
}

static const char in_run[] = "checkpoints/latest.safetensors"; /* a folder of cloob train */

/* Some data sets are .bin files too; torch's begin as a zip file or as a pickle of protocol 2. */
static bool begins_as_torch(const char *path)
{
    unsigned char head[4] = { 0 };
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    return n == sizeof head && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "\x80\x02\x8a\x0a", 4) == 0);
}

static bool matches(const char *what)
{
    const char *dot = strrchr(what, '.');
    return (dot && opt_names(".safetensors .pt .pth .pkl .gguf .onnx", dot)) ||
           (text_ends_with(what, ".bin") && begins_as_torch(what)) || holds(what, "open_clip_config.json") ||
           holds(what, "config.json") || holds(what, in_run);
}

/* ---- embeddings ------------------------------------------------------------------------------------ */

static void print_matrix(cloob_ctx *ctx, embeddings_file *e, const char *name)
{
    cloob_matrix m;
    if (!embeddings_has(e, name) || embeddings_matrix(ctx, e, name, &m) != CLOOB_OK) return;
    if (!common.json) {
        printf("%-11s %lld rows of width %lld\n", name, (long long)m.rows, (long long)m.columns);
        return;
    }
    json_out_open(name, '[');
    json_out_int(NULL, m.rows), json_out_int(NULL, m.columns);
    json_out_close();
}

/* A safetensors file with the matrices that cloob embed writes; false: it is something else. */
static bool print_embeddings(cloob_ctx *ctx, const char *what)
{
    static const char *const names[] = { "image", "text", "x", "y", "U", "V" };
    embeddings_file *e = NULL;
    bool known = text_ends_with(what, ".safetensors") && embeddings_open(ctx, what, &e) == CLOOB_OK &&
                 embeddings_has(e, "image|text|x");
    if (known && common.json)
        json_out_open(NULL, '{'), json_out_text("file", what), json_out_text("kind", "embeddings");
    else if (known) printf("%s: embeddings, for cloob eval retrieval, analysis and probe, and cloob loss\n", what);
    for (size_t i = 0; known && i < sizeof names / sizeof *names; i++) print_matrix(ctx, e, names[i]);
    if (known && common.json) json_out_close();
    embeddings_close(e);
    return known;
}

/* ---- weights --------------------------------------------------------------------------------------- */

static cloob_convert_report report;

static void put_unexpected(void)
{
    put_raw();
    if (common.json) json_out_open("unexpected", '[');
    for (int64_t i = 0; i < report.count[CLOOB_KEY_UNEXPECTED]; i++)
        if (common.json) json_out_text(NULL, report.key[CLOOB_KEY_UNEXPECTED][i]);
        else printf("unexpected  %s\n", report.key[CLOOB_KEY_UNEXPECTED][i]);
    if (common.json) json_out_close();
}

static void print_weights(const char *what, const cloob_convert_report *r, const char *checksum)
{
    const json_member shown[] = { J_TEXT("file", what),
                                  J_TEXT("kind", "weights"),
                                  J_OF(r, container),
                                  J_OF(r, names),
                                  J_OF(r, model),
                                  J_OF(r, config_from),
                                  J_OF(r, tensors),
                                  J_OF(r, parameters),
                                  J_OF(r, bytes),
                                  J_OF(r, has_tokenizer),
                                  J_TEXT("checksum", checksum) };
    raw[0].key = "config", raw[0].text = r->config;
    raw[1].key = "metadata", raw[1].text = r->metadata;
    cli_show(shown, sizeof shown / sizeof *shown, put_unexpected);
}

static int describe(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    cloob_convert_options options;
    char path[4096];
    (void)o;
    if (print_embeddings(ctx, what)) return 0;
    /* weights in cloob's format, in the folder of a run or under the name that a hub expects */
    bool run = holds(what, in_run), own = !run && holds(what, "model.safetensors") && !holds(what, "config.json");
    snprintf(path, sizeof path, "%s/%s", what, run ? in_run : "model.safetensors");
    if (run || own) what = path;
    cloob_convert_options_init(&options);
    options.drop_unexpected = true; /* they are listed */
    cloob_status status = cloob_weights_describe(ctx, what, &options, &report);
    bool stored = false;
    if (status == CLOOB_OK && strcmp(report.names, "cloob") == 0) status = cloob_weights_verify(ctx, what, &stored);
    const char *checksum = stored ? "ok" : "none"; /* a file whose checksum differs has failed */
    if (status == CLOOB_OK) print_weights(what, &report, checksum);
    cloob_convert_report_release(&report);
    return cli_exit(self, ctx, status);
}

const info_kind info_weights = { matches, describe };
