/* Finds tensors by foreign names, and infers a configuration from tensor shapes. */
#include "model/interchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- index --------------------------------------------------------------------------------------- */

/* Removes prefixes of data-parallel training, torch.compile and wrapper classes, in any order. */
static const char *strip(const char *name)
{
    static const char *const wraps[] = { "module.", "_orig_mod.", "model." };
    for (size_t i = 0; i < sizeof wraps / sizeof *wraps;) {
        bool wrapped = strncmp(name, wraps[i], strlen(wraps[i])) == 0;
        if (wrapped) name += strlen(wraps[i]);
        i = wrapped ? 0 : i + 1;
    }
    return name;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const source_key *)a)->name, ((const source_key *)b)->name);
}

int64_t source_find(const source *s, const char *name)
{
    source_key wanted = { .name = name };
    const source_key *k = s->count ? bsearch(&wanted, s->sorted, (size_t)s->count, sizeof wanted, by_name) : NULL;
    return k ? k->index : -1;
}

typedef struct marker {
    const char *name; /* a tensor that only this kind of tower contains */
    int kind;
} marker;

/* The kind of the first row whose tensor exists. */
static int first_match(const source *s, const marker *row)
{
    while (row->name && source_find(s, row->name) < 0) row++;
    return row->kind;
}

/* Detects the naming schemes. The last rows give a missing tower the scheme of the model it belongs to. */
static weight_names detect_names(const source *s)
{
    static const marker images[] = { { "vision_model.head.probe", IMAGE_NAMES_HF_SIGLIP },
                                     { "vision_model.embeddings.patch_embedding.weight", IMAGE_NAMES_HF },
                                     { "vision_model.embeddings.cls_token", IMAGE_NAMES_HF_VIT },
                                     { "visual.trunk.blocks.0.attn.q_proj.weight", IMAGE_NAMES_EVA },
                                     { "visual.trunk.patch_embed.proj.weight", IMAGE_NAMES_TIMM },
                                     { "visual.trunk.stem.0.weight", IMAGE_NAMES_TIMM },
                                     { "visual.trunk.final_conv.se.fc1.weight", IMAGE_NAMES_TIMM },
                                     { "visual.trunk.patch_embed.backbone.0.conv.weight", IMAGE_NAMES_TIMM },
                                     { "vi_t_image_encoder/embed.w", IMAGE_NAMES_HAIKU },
                                     { "visual.conv1.weight", IMAGE_NAMES_OPENAI },
                                     { "text_model.head.weight", IMAGE_NAMES_HF_SIGLIP },
                                     { "text_model.embeddings.token_embedding.weight", IMAGE_NAMES_HF },
                                     { NULL, IMAGE_NAMES_OPENAI } };
    static const marker texts[] = { { "text_model.head.weight", TEXT_NAMES_HF_SIGLIP },
                                    { "text_model.embeddings.token_embedding.weight", TEXT_NAMES_HF },
                                    { "text_model.embeddings.word_embeddings.weight", TEXT_NAMES_HF_BERT },
                                    { "text.transformer.embeddings.word_embeddings.weight", TEXT_NAMES_BERT },
                                    { "LinearTransformation.weight", TEXT_NAMES_MCLIP },
                                    { "transformer.token_embedding.weight", TEXT_NAMES_JKU },
                                    { "text.token_embedding.weight", TEXT_NAMES_CUSTOM },
                                    { "text_encoder/embed.embeddings", TEXT_NAMES_HAIKU },
                                    { "token_embedding.weight", TEXT_NAMES_OPENAI },
                                    { "vision_model.head.probe", TEXT_NAMES_HF_SIGLIP },
                                    { "vision_model.embeddings.patch_embedding.weight", TEXT_NAMES_HF },
                                    { NULL, TEXT_NAMES_OPENAI } };
    return (weight_names){ (image_names)first_match(s, images), (text_names)first_match(s, texts) };
}

/* Concatenates the tensors of all shards. */
static cloob_status join_shards(cloob_ctx *ctx, const char *path, weights *w, source *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < w->shards; i++) n += w->shard[i].st.count + w->shard[i].torch.count;
    st_entry *all = arena_push(&w->a, (size_t)n * sizeof *all);
    if (!all) return ctx_no_memory(ctx, (size_t)n * sizeof *all, path);
    s->entry = all;
    for (int64_t i = 0; i < w->shards; i++) {
        const weight_shard *h = &w->shard[i];
        for (int64_t k = 0; k < h->st.count; k++) all[s->count++] = h->st.entry[k];
        for (int64_t k = 0; k < h->torch.count; k++) all[s->count++] = h->torch.entry[k];
    }
    return CLOOB_OK;
}

/* transformers 5 saves a single tower without its prefix; adds the prefix to all names. */
static cloob_status add_part(cloob_ctx *ctx, weights *w, source *s)
{
    bool text = source_find(s, "embeddings.token_embedding.weight") >= 0;
    if (!text && source_find(s, "embeddings.patch_embedding.weight") < 0) return CLOOB_OK;
    for (int64_t i = 0; i < s->count; i++) {
        char name[2 * NAME_BYTES];
        snprintf(name, sizeof name, "%s%.300s", text ? "text_model." : "vision_model.", s->sorted[i].name);
        s->sorted[i].name = arena_string(&w->a, name);
        if (!s->sorted[i].name) return ctx_no_memory(ctx, sizeof name, s->path);
    }
    return CLOOB_OK; /* the common prefix does not change the order */
}

cloob_status source_index(cloob_ctx *ctx, const char *path, weights *w, source *s)
{
    const char *format = st_meta_get(&w->st, "format");
    *s = (source){ .path = path, .native = format && strcmp(format, "cloob") == 0 };
    s->entry = w->torch.count ? w->torch.entry : w->st.entry;
    s->count = w->torch.count ? w->torch.count : w->st.count;
    if (w->shards) CLOOB_TRY(join_shards(ctx, path, w, s));
    s->sorted = arena_push(&w->a, (size_t)(s->count + 1) * sizeof *s->sorted);
    s->used = arena_push(&w->a, (size_t)(s->count + 1) * sizeof *s->used);
    if (!s->sorted || !s->used) return ctx_no_memory(ctx, (size_t)s->count * sizeof *s->sorted, path);
    for (int64_t i = 0; i < s->count; i++) s->sorted[i] = (source_key){ strip(s->entry[i].name), i };
    qsort(s->sorted, (size_t)s->count, sizeof *s->sorted, by_name);
    for (int64_t i = 1; i < s->count; i++)
        if (by_name(&s->sorted[i - 1], &s->sorted[i]) == 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: tensor %.200s occurs twice, with and without a prefix", path,
                            s->sorted[i].name);
    CLOOB_TRY(add_part(ctx, w, s));
    s->names = detect_names(s);
    return CLOOB_OK;
}

/* ---- shapes -------------------------------------------------------------------------------------- */

/* The shape of a canonical tensor; false if it is missing or has another number of dimensions. */
static bool shape(const source *s, const char *canonical, int ndim, int64_t dim[4])
{
    foreign f;
    memset(dim, 0, 4 * sizeof *dim);
    names_foreign(s->names, canonical, &f);
    int64_t i = source_find(s, f.name[0]);
    if (i < 0 || s->entry[i].t.ndim != ndim + f.lead) return false;
    for (int k = 0; k < ndim; k++)
        dim[k] =
            /* with `last`, h and w are equal */
            s->entry[i].t.dim[f.lead + (f.transposed || f.last ? ndim - 1 - k : k)];
    return true;
}

static bool has(const source *s, const char *canonical)
{
    foreign f;
    names_foreign(s->names, canonical, &f);
    return source_find(s, f.name[0]) >= 0;
}

static cloob_status need_shape(cloob_ctx *ctx, const source *s, const char *canonical, int ndim, int64_t dim[4])
{
    foreign f;
    if (shape(s, canonical, ndim, dim)) return CLOOB_OK;
    names_foreign(s->names, canonical, &f);
    return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                    "%s: not recognised as a CLIP model: no tensor %s with %d dimensions among %lld tensors", s->path,
                    f.name[0], ndim, (long long)s->count);
}

/* The number of consecutive tensors PREFIX0SUFFIX, PREFIX1SUFFIX, ... */
static int64_t count_layers(const source *s, const char *prefix, const char *suffix, int ndim)
{
    char name[NAME_BYTES];
    int64_t n = 0, dim[4];
    do snprintf(name, sizeof name, "%s%lld%s", prefix, (long long)n++, suffix);
    while (shape(s, name, ndim, dim));
    return n - 1;
}

/* The side of a square grid of `positions` minus `more` rows; 0 if it is not square. */
static int64_t grid_of(int64_t positions, int64_t more)
{
    int64_t n = positions - more, edge = n > 0 ? (int64_t)llround(sqrt((double)n)) : 0;
    return edge * edge == n ? edge : 0;
}

/* Width of the MLP's hidden layer; 0: four times the width. */
static int64_t inner_of(const source *s, const char *blocks, int64_t width)
{
    char name[NAME_BYTES];
    int64_t dim[4];
    snprintf(name, sizeof name, "%s0.mlp.c_fc.weight", blocks);
    return shape(s, name, 2, dim) && dim[0] != 4 * width ? dim[0] : 0;
}

static cloob_status infer_vit(cloob_ctx *ctx, const source *s, model_config *c)
{
    static const char blocks[] = "visual.transformer.resblocks.";
    int64_t conv[4], pos[4];
    CLOOB_TRY(need_shape(ctx, s, "visual.conv1.weight", 4, conv));
    CLOOB_TRY(need_shape(ctx, s, "visual.positional_embedding", 2, pos));
    c->family = MODEL_VIT;
    if (s->names.image == IMAGE_NAMES_HAIKU) model_config_set_crowson(c);
    if (has(s, "visual.attn_pool.latent"))
        model_config_set_siglip(c, s->names.image == IMAGE_NAMES_TIMM ? ACT_GELU : ACT_GELU_TANH);
    c->no_ln_pre = !has(s, "visual.ln_pre.weight");
    c->width = conv[0];
    c->patch = conv[3];
    int64_t grid = grid_of(pos[0], !c->no_class_token);
    c->image_size = grid <= 1 << 14 && c->patch <= 1 << 14 ? grid * c->patch : 0;
    c->layers[0] = count_layers(s, blocks, ".ln_1.weight", 1);
    c->image.inner = inner_of(s, blocks, c->width);
    c->image.layer_scale = has(s, "visual.transformer.resblocks.0.ls_1.gamma") ? 1e-4 : 0;
    return CLOOB_OK;
}

static cloob_status infer_resnet(cloob_ctx *ctx, const source *s, model_config *c)
{
    static const char *const stage[4] = { "visual.layer1.", "visual.layer2.", "visual.layer3.", "visual.layer4." };
    int64_t conv[4], pos[4];
    CLOOB_TRY(need_shape(ctx, s, "visual.layer1.0.conv1.weight", 4, conv));
    CLOOB_TRY(need_shape(ctx, s, "visual.attnpool.positional_embedding", 2, pos));
    c->family = MODEL_RESNET;
    c->width = conv[0];
    c->image_size = grid_of(pos[0], 1) <= 1 << 14 ? 32 * grid_of(pos[0], 1) : 0;
    for (int i = 0; i < 4; i++) c->layers[i] = count_layers(s, stage[i], ".conv1.weight", 4);
    return CLOOB_OK;
}

static cloob_status infer_text(cloob_ctx *ctx, const source *s, model_config *c)
{
    int64_t tokens[4], positions[4], projection[4];
    CLOOB_TRY(need_shape(ctx, s, "token_embedding.weight", 2, tokens));
    CLOOB_TRY(need_shape(ctx, s, "positional_embedding", 2, positions));
    c->vocab = tokens[0];
    c->text_width = tokens[1];
    c->context = positions[0];
    c->text_layers = count_layers(s, "transformer.resblocks.", ".ln_1.weight", 1);
    c->text.inner = inner_of(s, "transformer.resblocks.", c->text_width);
    c->text.layer_scale = has(s, "transformer.resblocks.0.ls_1.gamma") ? 1e-4 : 0;
    c->text_projection_bias = shape(s, "text_projection.weight", 2, projection) && has(s, "text_projection.bias");
    c->embed = c->text_projection_bias ? projection[0] : c->text_width;
    c->no_text_projection = !c->text_projection_bias && c->image_pool == IMAGE_POOL_MAP && !has(s, "text_projection");
    if (c->text_projection_bias || c->no_text_projection) return CLOOB_OK;
    CLOOB_TRY(need_shape(ctx, s, "text_projection", 2, projection));
    c->embed = projection[1];
    return CLOOB_OK;
}

/* Heads cannot be inferred from shapes. If the sizes are a built-in model's, takes its configuration; else uses heads
 * of width 64, as OpenAI does, and fails if the widths are not multiples of 64. */
static cloob_status infer_heads(cloob_ctx *ctx, const source *s, model_config *c)
{
    int64_t w = c->width > 0 && c->width < 1 << 20 ? model_config_image_attention_width(c) : 0;
    model_config known;
    if (model_config_match(c, &known)) {
        if (s->names.image == IMAGE_NAMES_HF_SIGLIP)
            model_config_set_act(&known, ACT_GELU_TANH); /* transformers uses it for every SigLIP */
        *c = known;
        return CLOOB_OK;
    }
    if (w % 64 || c->text_width % 64 || !w || c->text_width <= 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%s: the number of heads cannot be inferred: attention widths %lld (image) and %lld (text) are "
                        "not multiples of 64; set `config`",
                        s->path, (long long)w, (long long)c->text_width);
    snprintf(c->name, sizeof c->name, "custom");
    c->image_heads = w / 64;
    c->text_heads = c->text_width / 64;
    return CLOOB_OK;
}

/* ---- unsupported models, recognised by their tensors ---------------------------------------------- */

typedef struct foreign_name {
    const char *begins, *what;
} foreign_name;

/* The first row that matches names the model. */
static const foreign_name foreign_names[] = {
    { "text_decoder.", "a CoCa model, whose text decoder and attentional pooler are not supported" },
    { "visual.attn_pool.query", "a model with CoCa's attentional pooler, which is not supported" },
    { "text.cls_emb", "a model with CoCa's text tower (embed_cls), which is not supported" },
    { "visual.blocks.", "a model with EVA-CLIP's original tensor names, which are not supported" },
    { "visual.trunk.rope", "an EVA model from timm; its sizes need open_clip_config.json next to it" },
    { "visual.trunk.cls_token",
      "a model with timm's EVA or ViT image tower; its sizes need open_clip_config.json next to it" },
    { "visual.trunk.stages.", "a model with timm's ConvNeXt, FastViT or hybrid image tower; ConvNeXt and MobileCLIP's "
                              "FastViT are supported with open_clip_config.json next to the file" },
    { "visual.trunk.layers.", "a model with timm's Swin image tower, which is not supported" },
    { "visual.trunk.", "a model with an image tower from timm; its sizes need open_clip_config.json next to it" },
    { "text.transformer.embeddings.",
      "a model with a BERT or RoBERTa text tower from transformers; its sizes need open_clip_config.json next to it" },
    { "text.transformer.encoder.", "a model with a T5 or NLLB text tower from transformers, which is not supported" },
    { "text.transformer.shared.", "a model with a T5 or NLLB text tower from transformers, which is not supported" },
    { "text_model.encoder.layer.", "a model with a BERT text tower; Chinese-CLIP is supported with config.json next to "
                                   "the file, ALIGN and AltCLIP are not" },
    { "vision_model.encoder.blocks.", "an ALIGN model, whose EfficientNet is not supported" },
    { "qformer.", "a BLIP-2 model, which is not supported" },
    { "diffusion_model.", "a diffusion model; give only its CLIP text and image encoders" },
};

static cloob_status refuse_foreign(cloob_ctx *ctx, const source *s)
{
    bool siglip = has(s, "visual.attn_pool.latent");
    for (size_t k = 0; k < sizeof foreign_names / sizeof *foreign_names; k++)
        for (int64_t i = 0; i < s->count; i++)
            if (!(siglip && strncmp(foreign_names[k].begins, "visual.", 7) == 0) &&
                strncmp(s->sorted[i].name, foreign_names[k].begins, strlen(foreign_names[k].begins)) == 0)
                return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: %s (found %.120s)", s->path, foreign_names[k].what,
                                s->sorted[i].name);
    return CLOOB_OK;
}

cloob_status source_infer(cloob_ctx *ctx, const source *s, model_config *c)
{
    int64_t dim[4];
    model_config_init(c);
    CLOOB_TRY(refuse_foreign(ctx, s));
    if (shape(s, "visual.layer1.0.conv1.weight", 4, dim)) CLOOB_TRY(infer_resnet(ctx, s, c));
    else CLOOB_TRY(infer_vit(ctx, s, c));
    CLOOB_TRY(infer_text(ctx, s, c));
    CLOOB_TRY(infer_heads(ctx, s, c));
    cloob_status status = model_config_check(ctx, c);
    return status == CLOOB_OK ? status
                              : ctx_wrap(ctx, status, "%s: its tensor shapes do not form a valid model", s->path);
}
