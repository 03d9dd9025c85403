/* The built-in models, and the rules every configuration keeps. */
#include "model/config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/text.h"

/* ---- the table ----------------------------------------------------------------------------------- */

typedef struct builtin {
    const char *name;
    model_family family;
    int64_t embed, image_size, layers[4], width, patch;
    int64_t context, vocab, text_width, text_heads, text_layers;
} builtin;

/* Image heads are 64 wide in all of them. `tiny` is the demo's: small enough for two cores at 64 px. */
static const builtin table[] = {
    { "RN50", MODEL_RESNET, 1024, 224, { 3, 4, 6, 3 }, 64, 0, 77, 49408, 512, 8, 12 },
    { "RN101", MODEL_RESNET, 512, 224, { 3, 4, 23, 3 }, 64, 0, 77, 49408, 512, 8, 12 },
    { "RN50x4", MODEL_RESNET, 640, 288, { 4, 6, 10, 6 }, 80, 0, 77, 49408, 640, 10, 12 },
    { "RN50x16", MODEL_RESNET, 768, 384, { 6, 8, 18, 8 }, 96, 0, 77, 49408, 768, 12, 12 },
    { "ViT-B-32", MODEL_VIT, 512, 224, { 12 }, 768, 32, 77, 49408, 512, 8, 12 },
    { "ViT-B-16", MODEL_VIT, 512, 224, { 12 }, 768, 16, 77, 49408, 512, 8, 12 },
    { "tiny", MODEL_RESNET, 128, 64, { 1, 3, 3, 1 }, 16, 0, 24, 2048, 64, 2, 2 },
    { "tiny-rn", MODEL_RESNET, 24, 64, { 1, 2, 1, 1 }, 8, 0, 12, 96, 16, 2, 2 },
    { "tiny-vit", MODEL_VIT, 24, 32, { 2 }, 128, 8, 12, 96, 16, 2, 2 },
};
enum { TABLE_ROWS = sizeof table / sizeof table[0] };

void model_config_init(model_config *c)
{
    static const double mean[3] = { .48145466, .4578275, .40821073 }, std[3] = { .26862954, .26130258, .27577711 };
    *c = (model_config){ .act = ACT_QUICKGELU };
    memcpy(c->image_mean, mean, sizeof mean);
    memcpy(c->image_std, std, sizeof std);
}

static const char *const resize_names[] = { "shortest", "longest", "squash" }; /* as in model_resize */

bool model_resize_from_name(const char *name, model_resize *out)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(name, resize_names[i]) == 0) {
            *out = (model_resize)i;
            return true;
        }
    return false;
}

const char *model_resize_name(model_resize r) { return resize_names[r]; }

int64_t model_config_image_attention_width(const model_config *c)
{
    return c->family == MODEL_RESNET ? 32 * c->width : c->width;
}

static void from_builtin(const builtin *b, model_config *c)
{
    model_config_init(c);
    snprintf(c->name, sizeof c->name, "%s", b->name);
    c->family = b->family;
    c->embed = b->embed;
    c->image_size = b->image_size;
    memcpy(c->layers, b->layers, sizeof c->layers);
    c->width = b->width;
    c->patch = b->patch;
    c->image_heads = model_config_image_attention_width(c) / 64;
    c->context = b->context;
    c->vocab = b->vocab;
    c->text_width = b->text_width;
    c->text_heads = b->text_heads;
    c->text_layers = b->text_layers;
}

/* ---- by name ------------------------------------------------------------------------------------- */

/* "ViT-B/32", "vit_b_32" and "ViT-B-32" are one name: letters, digits, lower case. */
static void squeeze(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++)
        if (isalnum((unsigned char)*name)) out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

static const builtin *find(const char *name)
{
    char wanted[64], have[64];
    squeeze(name, wanted, sizeof wanted);
    size_t n = strlen(wanted), tail = strlen("quickgelu");
    if (n > tail && strcmp(wanted + n - tail, "quickgelu") == 0) wanted[n - tail] = '\0';
    for (int i = 0; i < TABLE_ROWS; i++) {
        squeeze(table[i].name, have, sizeof have);
        if (strcmp(wanted, have) == 0) return &table[i];
    }
    return NULL;
}

cloob_status model_config_by_name(cloob_ctx *ctx, const char *name, model_config *c)
{
    char known[256];
    size_t n = 0;
    const builtin *b = find(name);
    if (b) {
        from_builtin(b, c);
        return CLOOB_OK;
    }
    for (int i = 0; i < TABLE_ROWS && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", table[i].name);
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "model \"%.100s\" is not known; there are %s, or the path of a .json file",
                    name, known);
}

static bool same_sizes(const model_config *c, const builtin *b)
{
    return c->family == b->family && c->embed == b->embed && c->image_size == b->image_size && c->width == b->width &&
           memcmp(c->layers, b->layers, sizeof c->layers) == 0 && c->patch == b->patch && c->context == b->context &&
           c->vocab == b->vocab && c->text_width == b->text_width && c->text_layers == b->text_layers;
}

bool model_config_match(model_config *c)
{
    for (int i = 0; i < TABLE_ROWS; i++) {
        if (!same_sizes(c, &table[i])) continue;
        snprintf(c->name, sizeof c->name, "%s", table[i].name);
        c->text_heads = table[i].text_heads;
        c->image_heads = model_config_image_attention_width(c) / 64;
        return true;
    }
    return false;
}

cloob_status model_config_load(cloob_ctx *ctx, const char *name_or_path, model_config *c)
{
    arena a = { 0 };
    json *root;
    if (!text_ends_with(name_or_path, ".json")) return model_config_by_name(ctx, name_or_path, c);
    cloob_status status = json_read_file(ctx, &a, name_or_path, &root);
    if (status == CLOOB_OK) status = model_config_from_json(ctx, root, name_or_path, c);
    arena_release(&a);
    return status;
}

/* ---- rules --------------------------------------------------------------------------------------- */

typedef struct bound {
    const char *what;
    int64_t value, low, high;
} bound;

/* The upper bounds keep every product of sizes inside 64 bits; no model comes near them. */
static cloob_status check_bounds(cloob_ctx *ctx, const model_config *c)
{
    const bound bounds[] = {
        { "embed_dim", c->embed, 1, 1 << 16 },         { "image size", c->image_size, 1, 1 << 14 },
        { "image layers", c->layers[0], 1, 1 << 10 },  { "image width", c->width, 1, 1 << 16 },
        { "image heads", c->image_heads, 1, 1 << 16 }, { "context length", c->context, 2, 1 << 16 },
        { "vocabulary size", c->vocab, 3, 1 << 24 },   { "text width", c->text_width, 1, 1 << 16 },
        { "text heads", c->text_heads, 1, 1 << 16 },   { "text layers", c->text_layers, 1, 1 << 10 },
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s of %lld is impossible; it must be %lld to %lld",
                            bounds[i].what, (long long)bounds[i].value, (long long)bounds[i].low,
                            (long long)bounds[i].high);
    return CLOOB_OK;
}

static cloob_status check_divides(cloob_ctx *ctx, const char *whole, int64_t n, const char *part, int64_t by)
{
    if (by > 0 && n % by == 0) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s of %lld does not divide by %s of %lld", whole, (long long)n, part,
                    (long long)by);
}

static cloob_status check_resnet(cloob_ctx *ctx, const model_config *c)
{
    for (int i = 1; i < 4; i++)
        if (c->layers[i] < 1 || c->layers[i] > 1 << 10)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "stage %d has %lld blocks; each stage needs 1 to 1024", i + 1,
                            (long long)c->layers[i]);
    CLOOB_TRY(check_divides(ctx, "ResNet stem width", c->width, "the two halves of the stem", 2));
    return check_divides(ctx, "ResNet image size", c->image_size, "its total stride", 32);
}

cloob_status model_config_check(cloob_ctx *ctx, const model_config *c)
{
    CLOOB_TRY(check_bounds(ctx, c));
    if (c->family == MODEL_RESNET) CLOOB_TRY(check_resnet(ctx, c));
    else CLOOB_TRY(check_divides(ctx, "image size", c->image_size, "a patch size", c->patch));
    CLOOB_TRY(check_divides(ctx, "image attention width", model_config_image_attention_width(c), "image heads",
                            c->image_heads));
    CLOOB_TRY(check_divides(ctx, "text width", c->text_width, "text heads", c->text_heads));
    for (int i = 0; i < 3; i++)
        if (!(c->image_std[i] > 0 && c->image_std[i] < 1e6 && c->image_mean[i] > -1e6 && c->image_mean[i] < 1e6))
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                            "image mean %g and standard deviation %g of channel %d cannot be used", c->image_mean[i],
                            c->image_std[i], i);
    return CLOOB_OK;
}
