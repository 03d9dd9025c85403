/* Names and shapes of the parameters of all towers. */
#include "model/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* List of rows, filled in two passes: the first counts (row NULL), the second writes. */
typedef struct list {
    arena *a;
    st_entry *row;
    int64_t count;
    bool failed;
} list;

/* Adds a row; its name is the concatenation of three parts. */
static void add(list *l, const char *prefix, const char *name, const char *leaf, int ndim, const int64_t *dim)
{
    int64_t i = l->count++;
    if (!l->row) return;
    size_t bytes = strlen(prefix) + strlen(name) + strlen(leaf) + 1;
    char *full = arena_push(l->a, bytes);
    l->failed |= !full;
    if (full) snprintf(full, bytes, "%s%s%s", prefix, name, leaf);
    l->row[i] = (st_entry){ full, tensor_make(CLOOB_F32, ndim, dim, NULL) };
}

static void add1(list *l, const char *prefix, const char *name, int64_t n) { add(l, prefix, name, "", 1, &n); }

static void add2(list *l, const char *prefix, const char *name, int64_t n, int64_t m)
{
    add(l, prefix, name, "", 2, (int64_t[]){ n, m });
}

static void add4(list *l, const char *prefix, const char *name, int64_t out, int64_t in, int64_t k)
{
    add(l, prefix, name, "", 4, (int64_t[]){ out, in, k, k });
}

/* ---- parts --------------------------------------------------------------------------------------- */

static void add_norm(list *l, const char *prefix, const char *name, int64_t n)
{
    add(l, prefix, name, ".weight", 1, &n);
    add(l, prefix, name, ".bias", 1, &n);
}

static void add_batch_norm(list *l, const char *prefix, const char *name, int64_t n)
{
    add_norm(l, prefix, name, n);
    add(l, prefix, name, ".running_mean", 1, &n);
    add(l, prefix, name, ".running_var", 1, &n);
}

static void add_linear(list *l, const char *prefix, const char *name, int64_t out, int64_t in)
{
    add(l, prefix, name, ".weight", 2, (int64_t[]){ out, in });
    add(l, prefix, name, ".bias", 1, &out);
}

/* Adds a convolution with a bias; in = 1: depthwise. */
static void add_conv(list *l, const char *prefix, const char *name, int64_t out, int64_t in, int64_t k)
{
    add(l, prefix, name, ".weight", 4, (int64_t[]){ out, in, k, k });
    add(l, prefix, name, ".bias", 1, &out);
}

/* Adds an MLP and its layer norm. */
static void add_mlp(list *l, const char *p, int64_t w, int64_t inner, bool gated)
{
    add_linear(l, p, "mlp.c_fc", gated ? 2 * inner : inner, w);
    add_linear(l, p, "mlp.c_proj", w, inner);
    add_norm(l, p, "ln_2", w);
}

static void add_attention(list *l, const char *p, int64_t w, bool no_key_bias)
{
    add2(l, p, "attn.in_proj_weight", 3 * w, w);
    if (no_key_bias) add1(l, p, "attn.qv_bias", 2 * w);
    else add1(l, p, "attn.in_proj_bias", 3 * w);
    add_linear(l, p, "attn.out_proj", w, w);
}

static void add_transformer(list *l, const char *prefix, int64_t layers, int64_t w, const model_blocks *b)
{
    char p[96];
    for (int64_t i = 0; i < layers; i++) {
        snprintf(p, sizeof p, "%s.resblocks.%lld.", prefix, (long long)i);
        add_attention(l, p, w, b->no_key_bias);
        add_norm(l, p, "ln_1", w);
        add_mlp(l, p, w, model_blocks_inner(b, w), b->swiglu);
        if (b->inner_norms) add_norm(l, p, "attn.ln_inner", w);
        if (b->inner_norms) add_norm(l, p, "mlp.ln_inner", model_blocks_inner(b, w));
        if (b->layer_scale) add1(l, p, "ls_1.gamma", w);
        if (b->layer_scale) add1(l, p, "ls_2.gamma", w);
    }
}

/* ---- towers -------------------------------------------------------------------------------------- */

/* Adds a bottleneck block: 1x1, 3x3, 1x1 with four times the planes; a projection shortcut if the shape changes. */
static void add_bottleneck(list *l, const char *p, int64_t in, int64_t planes, bool downsample)
{
    add4(l, p, "conv1.weight", planes, in, 1);
    add_batch_norm(l, p, "bn1", planes);
    add4(l, p, "conv2.weight", planes, planes, 3);
    add_batch_norm(l, p, "bn2", planes);
    add4(l, p, "conv3.weight", 4 * planes, planes, 1);
    add_batch_norm(l, p, "bn3", 4 * planes);
    if (!downsample) return;
    add4(l, p, "downsample.0.weight", 4 * planes, in, 1);
    add_batch_norm(l, p, "downsample.1", 4 * planes);
}

static void add_attention_pool(list *l, const model_config *c)
{
    int64_t e = 32 * c->width, grid = c->image_size / 32;
    add2(l, "visual.attnpool.", "positional_embedding", grid * grid + 1, e);
    add_linear(l, "visual.attnpool.", "k_proj", e, e);
    add_linear(l, "visual.attnpool.", "q_proj", e, e);
    add_linear(l, "visual.attnpool.", "v_proj", e, e);
    add_linear(l, "visual.attnpool.", "c_proj", c->embed, e);
}

static void add_resnet(list *l, const model_config *c)
{
    char p[96];
    int64_t w = c->width, in = w;
    for (int i = 1; i <= 3; i++) {
        int64_t out = i == 3 ? w : w / 2;
        snprintf(p, sizeof p, "visual.conv%d.weight", i);
        add4(l, p, "", out, i == 1 ? 3 : w / 2, 3);
        snprintf(p, sizeof p, "visual.bn%d", i);
        add_batch_norm(l, p, "", out);
    }
    for (int stage = 0; stage < 4; stage++)
        for (int64_t b = 0; b < c->layers[stage]; b++) {
            int64_t planes = w << stage;
            snprintf(p, sizeof p, "visual.layer%d.%lld.", stage + 1, (long long)b);
            add_bottleneck(l, p, in, planes, (stage > 0 && b == 0) || in != 4 * planes);
            in = 4 * planes;
        }
    add_attention_pool(l, c);
}

/* Adds a projection: a matrix (in, out), a linear layer with weight (out, in), or an MLP. Only the image tower's MLP
 * has a bias in its hidden layer. */
static void add_projection(list *l, const char *name, int64_t out, int64_t in, int64_t hidden, bool bias)
{
    char p[64];
    snprintf(p, sizeof p, "%s.", name);
    if (hidden) {
        add2(l, p, "0.weight", hidden, in);
        if (model_is_image(name)) add1(l, p, "0.bias", hidden);
        add2(l, p, "2.weight", out, hidden);
    } else if (bias) add_linear(l, name, "", out, in);
    else add2(l, name, "", in, out);
}

static void add_image_projection(list *l, const model_config *c, int64_t in)
{
    if (c->no_image_projection) return;
    add_projection(l, "visual.proj", c->embed, in, c->image_projection_hidden, c->image_projection_bias);
}

/* Names after "visual." are timm's. */
static void add_convnext_block(list *l, const char *p, int64_t w, const model_blocks *b)
{
    add_conv(l, p, "conv_dw", w, 1, 7);
    add_norm(l, p, "norm", w);
    add_linear(l, p, "mlp.fc1", 4 * w, w);
    add_linear(l, p, "mlp.fc2", w, 4 * w);
    if (b->layer_scale) add1(l, p, "gamma", w);
}

static void add_convnext(list *l, const model_config *c)
{
    char p[96];
    add_conv(l, "visual.", "stem.0", c->width, 3, c->patch);
    add_norm(l, "visual.", "stem.1", c->width);
    for (int stage = 0; stage < 4; stage++) {
        int64_t w = c->width << stage;
        snprintf(p, sizeof p, "visual.stages.%d.", stage);
        if (stage) add_norm(l, p, "downsample.0", w / 2);
        if (stage) add_conv(l, p, "downsample.1", w, w / 2, 2);
        for (int64_t i = 0; i < c->layers[stage]; i++) {
            snprintf(p, sizeof p, "visual.stages.%d.blocks.%lld.", stage, (long long)i);
            add_convnext_block(l, p, w, &c->image);
        }
    }
    add_norm(l, "visual.", "head.norm", c->width << 3);
    add_image_projection(l, c, c->width << 3);
}

/* FastViT in folded form: timm's layer names, each with a weight and a bias. */
static void add_excite(list *l, const char *p, int64_t w, int64_t reduced)
{
    add_linear(l, p, "se.fc1", reduced, w);
    add_linear(l, p, "se.fc2", w, reduced);
}

static void add_fastvit_block(list *l, const char *p, int64_t w, int64_t inner, bool attends, bool norms)
{
    if (attends && norms) add_norm(l, p, "norm", w);
    if (attends && norms) add2(l, p, "token_mixer.qkv.weight", 3 * w, w);
    else if (attends) add_linear(l, p, "token_mixer.qkv", 3 * w, w);
    if (attends) add_linear(l, p, "token_mixer.proj", w, w);
    else add_conv(l, p, "token_mixer", w, 1, 3);
    add_conv(l, p, "mlp.conv", w, 1, 7);
    add_linear(l, p, "mlp.fc1", inner, w);
    add_linear(l, p, "mlp.fc2", w, inner);
}

static void add_fastvit(list *l, const model_config *c)
{
    char p[96];
    bool norms = fastvit_layer_norms(c);
    add_conv(l, "visual.", "stem.0", c->width, 3, 3);
    add_conv(l, "visual.", "stem.1", c->width, 1, 3);
    add_linear(l, "visual.", "stem.2", c->width, c->width);
    for (int stage = 0; stage < fastvit_stages(c); stage++) {
        int64_t w = c->width << stage;
        snprintf(p, sizeof p, "visual.stages.%d.", stage);
        if (stage) add_conv(l, p, "downsample.proj.0", w, 1, 7);
        if (stage) add_linear(l, p, "downsample.proj.1", w, w);
        if (fastvit_attends(stage)) add_conv(l, p, "pos_emb", w, 1, 7);
        snprintf(p, sizeof p, "visual.stages.%d.downsample.proj.0.", stage);
        if (stage >= 2 && !norms) add_excite(l, p, w, w / 4);
        for (int64_t i = 0; i < c->layers[stage]; i++) {
            snprintf(p, sizeof p, "visual.stages.%d.blocks.%lld.", stage, (long long)i);
            add_fastvit_block(l, p, w, model_blocks_inner(&c->image, c->width) << stage, fastvit_attends(stage), norms);
        }
    }
    int64_t features = model_config_image_features(c);
    add_conv(l, "visual.", "final_conv", features, 1, 3);
    add_excite(l, "visual.final_conv.", features, features / 16);
    add_image_projection(l, c, features);
}

static void add_vit(list *l, const model_config *c)
{
    int64_t w = c->width;
    if (!c->no_class_token) add1(l, "visual.", "class_embedding", w);
    int64_t side = c->position_side;
    add2(l, "visual.", "positional_embedding", side ? side * side : model_config_image_tokens(c), w);
    add_image_projection(l, c, w);
    if (c->patch_stem) add_conv(l, "visual.", "stem.0", w / 4, 3, c->patch / 4);
    if (c->patch_stem) add_conv(l, "visual.", "stem.1", w / 4, w / 4, 2);
    if (side) add2(l, "visual.", "conv1.weight", w, 3 * c->patch * c->patch); /* a row is a patch (patch, patch, 3) */
    else add4(l, "visual.", "conv1.weight", w, c->patch_stem ? w / 4 : 3, c->patch_stem ? 2 : c->patch);
    if (c->patch_bias) add1(l, "visual.", "conv1.bias", w);
    if (!c->no_ln_pre) add_norm(l, "visual.", "ln_pre", w);
    add_transformer(l, "visual.transformer", c->layers[0], w, &c->image);
    if (!c->no_ln_post) add_norm(l, "visual.", "ln_post", w);
    if (c->image_pool != IMAGE_POOL_MAP) return;
    add1(l, "visual.attn_pool.", "latent", w);
    add_attention(l, "visual.attn_pool.", w, false);
    add_mlp(l, "visual.attn_pool.", w, c->pool_inner ? c->pool_inner : model_blocks_inner(&c->image, w), false);
}

static void add_text(list *l, const model_config *c)
{
    int64_t t = c->text_width;
    add_transformer(l, "transformer", c->text_layers, t, &c->text);
    add2(l, "token_embedding.weight", "", c->vocab, t);
    add2(l, "positional_embedding", "", c->bert.positions ? c->bert.positions : c->context, t);
    if (c->bert.positions) add2(l, "token_type_embedding", "", c->bert.types, t);
    if (!c->no_ln_final) add_norm(l, "", c->bert.positions ? "ln_pre" : "ln_final", t);
    if (c->bert.pooler) add_linear(l, "pooler", "", t, t);
    if (c->no_text_projection) return;
    add_projection(l, "text_projection", c->embed, t, c->text_projection_hidden, c->text_projection_bias);
}

static void add_all(list *l, const model_config *c)
{
    if (c->no_image_tower) add_text(l, c);
    if (c->no_image_tower) return;
    if (c->family == MODEL_RESNET) add_resnet(l, c);
    else if (c->family == MODEL_CONVNEXT) add_convnext(l, c);
    else if (c->family == MODEL_FASTVIT) add_fastvit(l, c);
    else add_vit(l, c);
    if (!c->no_text_tower) add_text(l, c);
}

cloob_status model_shapes(cloob_ctx *ctx, arena *a, const model_config *c, st_entry **rows, int64_t *count)
{
    list counted = { .a = a }, filled = { .a = a };
    add_all(&counted, c);
    filled.row = arena_push(a, (size_t)counted.count * sizeof *filled.row);
    if (!filled.row) return ctx_no_memory(ctx, (size_t)counted.count * sizeof *filled.row, "the list of parameters");
    add_all(&filled, c);
    if (filled.failed) return ctx_no_memory(ctx, 96, "the list of parameters");
    *rows = filled.row;
    *count = filled.count;
    return CLOOB_OK;
}

/* ---- groups of layers ------------------------------------------------------------------------ */

bool model_is_image(const char *name) { return strncmp(name, "visual.", 7) == 0; }

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

enum { STEM, ATTENTION_POOL = 5, RESNET_GROUPS };

/* Group of a ResNet, ConvNeXt or FastViT parameter: the stem, four (or five) stages, and the rest. */
static int resnet_group(const char *rest)
{
    if (begins(rest, "layer")) return atoi(rest + strlen("layer"));
    if (begins(rest, "stages.")) return 1 + atoi(rest + strlen("stages."));
    return begins(rest, "attnpool") || begins(rest, "head") || begins(rest, "proj") || begins(rest, "final")
               ? ATTENTION_POOL
               : STEM;
}

/* Group of a transformer's parameter. rest: its name without "visual.". */
static int transformer_group(const char *rest, int layers, int count)
{
    static const char blocks[] = "transformer.resblocks.";
    if (begins(rest, blocks)) return 1 + atoi(rest + strlen(blocks));
    if (begins(rest, "ln_post") || begins(rest, "ln_final")) return layers;
    return begins(rest, "proj") || begins(rest, "text_projection") || begins(rest, "attn_pool") ||
                   begins(rest, "pooler")
               ? count - 1
               : 0;
}

int model_group(const model_config *c, const char *name, int *count)
{
    bool image = model_is_image(name);
    *count = RESNET_GROUPS;
    if (image && c->family != MODEL_VIT) return resnet_group(name + strlen("visual."));
    int layers = (int)(image ? c->layers[0] : c->text_layers);
    bool projects = image ? !c->no_image_projection || c->image_pool == IMAGE_POOL_MAP : !c->no_text_projection;
    *count = 1 + layers + projects;
    return transformer_group(image ? name + strlen("visual.") : name, layers, *count);
}
