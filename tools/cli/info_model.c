/* cloob info MODEL: describes a model or configuration file without weights. cloob info FILE: describes weights in any
 * known format, or a file of embeddings. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/text.h"
#include "infer/embeddings_file.h"
#include "model/config.h"
#include "train/memory_budget.h"

/* ---- models without weights -------------------------------------------------------------------------- */

/* Whether the argument is a model's name or a configuration; an existing file or folder of that name has priority. */
static bool matches_model(const char *what)
{
    return (text_ends_with(what, ".json") && file_exists(what)) || (!file_exists(what) && model_config_known(what));
}

static double gib(size_t bytes) { return (double)bytes / 1073741824.0; }

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

static void print_tower(int64_t layers, int64_t width, int64_t heads, const char *activation, int64_t parameters)
{
    printf("        %lld layers of width %lld, %lld heads, %s, %.1f million parameters\n", (long long)layers,
           (long long)width, (long long)heads, activation, (double)parameters / 1e6);
}

static void print_model(const model_outline *m, int64_t batch, const char *config)
{
    const model_config *c = &m->config;
    const step_memory *s = &m->step;
    printf("%s: %s, embeddings of %lld, %.1f million parameters in %lld tensors\n", c->name,
           model_family_name(c->family), (long long)c->embed, (double)m->parameters / 1e6, (long long)m->tensors);
    printf("images  %lld px", (long long)c->image_size);
    if (c->patch)
        printf(" in patches of %lld: %lld tokens", (long long)c->patch, (long long)model_config_image_tokens(c));
    putchar('\n');
    print_tower(image_layers(c), c->width, c->image_heads, image_activation(c), m->image_parameters);
    printf("texts   %lld tokens, vocabulary of %lld\n", (long long)c->context, (long long)c->vocab);
    print_tower(c->text_layers, c->text_width, c->text_heads, model_act_name(c->text.act),
                m->parameters - m->image_parameters);
    printf("memory  %.2f GiB for a training step of %lld pairs: parameters and gradients %.2f,\n"
           "        optimizer %.2f, image tower %.2f, text tower %.2f, objective %.2f\n"
           "        %.2f GiB for embedding %lld pairs\n",
           gib(s->total_bytes), (long long)batch, gib(s->params_bytes), gib(s->optimizer_bytes), gib(s->image_bytes),
           gib(s->text_bytes), gib(s->loss_bytes), gib(m->embed_bytes), (long long)batch);
    printf("config  %s\n", config);
}

static void print_json_model(const model_outline *m, int64_t batch, const char *config)
{
    const model_config *c = &m->config;
    const step_memory *s = &m->step;
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("kind", "model"), J_TEXT("model", c->name), J_TEXT("family", model_family_name(c->family)),
                     J_TEXT("image_activation", image_activation(c)),
                     J_TEXT("text_activation", model_act_name(c->text.act)), J_INT("embed_dim", c->embed),
                     J_OF(c, image_size), J_INT("patch_size", c->patch),
                     J_INT("image_tokens", model_config_image_tokens(c)), J_INT("image_width", c->width),
                     J_INT("image_layers", image_layers(c)), J_OF(c, image_heads), J_INT("context_length", c->context),
                     J_INT("vocab_size", c->vocab), J_OF(c, text_width), J_OF(c, text_layers), J_OF(c, text_heads),
                     J_OF(m, tensors), J_OF(m, parameters), J_OF(m, image_parameters),
                     J_INT("text_parameters", m->parameters - m->image_parameters), J_INT("batch_size", batch),
                     J_INT("step_bytes", (int64_t)s->total_bytes), J_INT("params_bytes", (int64_t)s->params_bytes),
                     J_INT("optimizer_bytes", (int64_t)s->optimizer_bytes),
                     J_INT("image_bytes", (int64_t)s->image_bytes), J_INT("text_bytes", (int64_t)s->text_bytes),
                     J_INT("objective_bytes", (int64_t)s->loss_bytes), J_INT("embed_bytes", (int64_t)m->embed_bytes));
    json_out_raw("config", config);
    json_out_close();
}

static int describe_model(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    model_outline m;
    sbuf config = { 0 };
    cloob_status status = model_describe(ctx, what, o->batch, common.precision, &m);
    if (status == CLOOB_OK) model_config_to_json(&m.config, &config);
    if (config.failed) status = ctx_no_memory(ctx, config.len, "a configuration");
    if (status == CLOOB_OK && common.json) print_json_model(&m, o->batch, config.data);
    else if (status == CLOOB_OK) print_model(&m, o->batch, config.data);
    sbuf_release(&config);
    return cli_exit(self, ctx, status);
}

const info_kind info_model = { matches_model, describe_model };

/* ---- files ------------------------------------------------------------------------------------------- */

/* Whether a folder contains a file; model folders are recognised by their configuration. */
static bool holds(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return file_exists(path);
}

static const char in_run[] = "checkpoints/latest.safetensors"; /* in a folder of cloob train */

/* Some data sets are also .bin files; torch's start like a zip file or a pickle of protocol 2. */
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
    return (dot && text_has_word(".safetensors .pt .pth .pkl .gguf .onnx", dot)) ||
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

/* Describes a safetensors file with the matrices of cloob embed; false: it has none. */
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

static void print_weights(const char *what, const cloob_convert_report *r, const char *checksum)
{
    printf("%s: %s with %s names\n", what, r->container, r->names);
    printf("model       %s, %.1f million parameters in %lld tensors, %.1f MB\n", r->model, (double)r->parameters / 1e6,
           (long long)r->tensors, (double)r->bytes / 1e6);
    printf("config      %s\n            from %s\n", r->config, r->config_from);
    if (r->metadata) printf("metadata    %s\n", r->metadata);
    printf("tokenizer   %s\n", r->has_tokenizer ? "stored with it" : "none");
    printf("checksum    %s\n", checksum);
    for (int64_t i = 0; i < r->count[CLOOB_KEY_UNEXPECTED]; i++)
        printf("unexpected  %s\n", r->key[CLOOB_KEY_UNEXPECTED][i]);
}

static void print_json_weights(const char *what, const cloob_convert_report *r, const char *checksum)
{
    json_out_open(NULL, '{');
    json_out_members(J_TEXT("file", what), J_TEXT("kind", "weights"), J_OF(r, container), J_OF(r, names),
                     J_OF(r, model), J_OF(r, config_from), J_TEXT("checksum", checksum), J_OF(r, tensors),
                     J_OF(r, parameters), J_OF(r, bytes), J_OF(r, has_tokenizer));
    json_out_raw("config", r->config);
    json_out_raw("metadata", r->metadata);
    json_out_open("unexpected", '[');
    for (int64_t i = 0; i < r->count[CLOOB_KEY_UNEXPECTED]; i++) json_out_text(NULL, r->key[CLOOB_KEY_UNEXPECTED][i]);
    json_out_close();
    json_out_close();
}

static int describe(const command *self, cloob_ctx *ctx, const char *what, const info_options *o)
{
    cloob_convert_options options;
    cloob_convert_report r;
    char path[4096];
    (void)o;
    if (print_embeddings(ctx, what)) return 0;
    /* weights in cloob's format, in the folder of a run or under the file name used by hubs */
    bool run = holds(what, in_run), own = !run && holds(what, "model.safetensors") && !holds(what, "config.json");
    snprintf(path, sizeof path, "%s/%s", what, run ? in_run : "model.safetensors");
    if (run || own) what = path;
    cloob_convert_options_init(&options);
    options.drop_unexpected = true; /* unexpected tensors are listed in the report */
    cloob_status status = cloob_weights_describe(ctx, what, &options, &r);
    bool stored = false;
    if (status == CLOOB_OK && strcmp(r.names, "cloob") == 0) status = cloob_weights_verify(ctx, what, &stored);
    const char *checksum = stored ? "ok" : "none"; /* a wrong checksum would have failed */
    if (status == CLOOB_OK && common.json) print_json_weights(what, &r, checksum);
    else if (status == CLOOB_OK) print_weights(what, &r, checksum);
    cloob_convert_report_release(&r);
    return cli_exit(self, ctx, status);
}

const info_kind info_weights = { matches, describe };
