/* The image and the text tower, from images or tokens to unit rows. */
#include "model/tower.h"

#include "model/build.h"

/* Whether the images arrive with patches as rows, so that the patch embedding is a 1 x 1 convolution and thus a GEMM.
 * This requires lines of a window to be multiples of 16 bytes. */
static bool patches_as_rows(const build *b)
{
    const model_config *c = &b->p->config;
    return b->o->gpu_input && c->family == MODEL_VIT && !c->patch_stem && c->image_size % c->patch == 0 &&
           c->patch % 8 == 0;
}

/* Patch embeddings plus positions, after the class token if there is one. */
static value_id embed_patches(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    bool rows = patches_as_rows(b);
    op_attr conv = { .stride = rows ? 1 : c->patch_stem ? 2 : c->patch }, none = { 0 };
    if (c->patch_stem) images = build_patch_stem(b, images);
    value_id w = rows ? build_param_point(b, "visual.conv1.weight") : build_param(b, "visual.conv1.weight");
    value_id x = graph_op(b->g, OP_CONV2D, conv, 2, (value_id[]){ images, w });
    value_id pos = build_param(b, "visual.positional_embedding");
    value_id bias = c->patch_bias ? build_param(b, "visual.conv1.bias") : NO_VALUE;
    if (c->no_class_token) return graph_op(b->g, OP_GRID_TOKENS, none, 3, (value_id[]){ x, bias, pos });
    if (c->patch_bias) x = graph_op(b->g, OP_BIAS, none, 2, (value_id[]){ x, bias });
    return graph_op(b->g, OP_CLASS_TOKENS, none, 3, (value_id[]){ x, build_param(b, "visual.class_embedding"), pos });
}

static void set_channels(const model_config *c, op_attr *attr)
{
    for (int i = 0; i < 3; i++) attr->mean[i] = (float)c->image_mean[i], attr->std[i] = (float)c->image_std[i];
}

/* NaFlex: the patches of all images, packed, plus positions resampled to each image's grid. */
static value_id embed_records(build *b, value_id records, build_sequences *s)
{
    const model_config *c = &b->p->config;
    op_attr attr = { .rows = c->view.patches, .patch = c->patch, .dtype = b->p->compute };
    set_channels(c, &attr);
    value_id x = graph_op(b->g, OP_PATCH_ROWS, attr, 1, &records), grid = graph_output(b->g, x, 2);
    s->start = graph_output(b->g, x, 1);
    s->tokens = c->view.patches;
    x = build_linear(b, x, build_param(b, "visual.conv1.weight"), build_param(b, "visual.conv1.bias"));
    value_id pos = build_param(b, "visual.positional_embedding");
    return graph_op(b->g, OP_GRID_POSITIONS, (op_attr){ 0 }, 4, (value_id[]){ x, pos, s->start, grid });
}

/* The mean of the patches, without the class token. */
static value_id mean_patches(build *b, value_id x)
{
    op_attr attr = { .rows = !b->p->config.no_class_token };
    return graph_op(b->g, OP_MEAN_ROWS, attr, 1, &x);
}

/* Patch dropout: selects the tokens given by the input "kept", after positions were added. */
static value_id drop_patches(build *b, value_id x)
{
    int64_t K = b->o->kept + !b->p->config.no_class_token;
    if (b->o->kept < 1) return x;
    value_id kept = graph_input(b->g, TENSOR(CLOOB_I32, NULL, b->o->batch, K), "kept");
    return graph_op(b->g, OP_TAKE_ROWS, (op_attr){ 0 }, 2, (value_id[]){ x, kept });
}

value_id build_vit(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    build_sequences rows = { .blocks = &c->image,
                             .heads = c->image_heads,
                             .side = c->image_size / c->patch,
                             .skip = !c->no_class_token,
                             .whole = c->image_pool != IMAGE_POOL_CLASS,
                             .index = NO_VALUE,
                             .mask = NO_VALUE,
                             .start = NO_VALUE };
    value_id x = c->position_side ? embed_records(b, images, &rows) : drop_patches(b, embed_patches(b, images));
    if (!c->no_ln_pre) x = build_layernorm(b, x, "visual.ln_pre", c->image.eps);
    x = build_transformer(b, x, "visual.transformer", c->layers[0], &rows);
    if (c->image_pool == IMAGE_POOL_MEAN && c->norm_after_pool) x = mean_patches(b, x);
    if (!c->no_ln_post) x = build_layernorm(b, x, "visual.ln_post", c->image.eps);
    if (c->image_pool == IMAGE_POOL_MEAN && !c->norm_after_pool) x = mean_patches(b, x);
    if (c->image_pool == IMAGE_POOL_MAP)
        x = build_map_pool(b, x, "visual.attn_pool", c->pool_heads ? c->pool_heads : c->image_heads, &rows);
    return x;
}

static value_id image_input(build *b)
{
    const model_config *c = &b->p->config;
    int64_t B = b->o->batch, S = c->image_size;
    op_attr attr = { .channels = b->o->gpu_input && c->family == MODEL_RESNET ? 8 : 3,
                     .patch = patches_as_rows(b) ? c->patch : 0,
                     .dtype = b->p->compute };
    set_channels(c, &attr);
    tensor bytes = TENSOR(CLOOB_U8, NULL, B, S, S, 3), floats = TENSOR(CLOOB_F32, NULL, B, 3, S, S);
    value_id x = graph_input(b->g, b->o->float_images ? floats : bytes, "images");
    if (c->position_side) return x; /* OP_PATCH_ROWS reads the bytes */
    return graph_op(b->g, OP_IMAGE_INPUT, attr, 1, &x);
}

cloob_status tower_image(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g)
{
    build b = { g, p, o };
    graph_init(ctx, g);
    CLOOB_TRY(model_config_need(ctx, &p->config, false));
    if (p->config.position_side && o->float_images)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "%s is a SigLIP 2 NaFlex model, whose images vary in size: normalised pixels are not "
                        "supported; give images",
                        p->config.name);
    value_id x = image_input(&b), features, raw;
    if (p->config.family == MODEL_RESNET) {
        features = build_resnet(&b, x);
        raw = build_linear(&b, features, build_param(&b, "visual.attnpool.c_proj.weight"),
                           build_param(&b, "visual.attnpool.c_proj.bias"));
    } else {
        const model_config *c = &p->config;
        features = c->family == MODEL_CONVNEXT  ? build_convnext(&b, x)
                   : c->family == MODEL_FASTVIT ? build_fastvit(&b, x)
                                                : build_vit(&b, x);
        raw = c->no_image_projection
                  ? features
                  : build_projection(&b, features, "visual.proj", c->image_projection_hidden, c->image_projection_bias);
    }
    return build_finish(&b, features, raw);
}

int64_t tower_text_length(const model_config *c, const int32_t *token, int64_t T)
{
    int64_t end = 0;
    if (!model_config_text_ends(c)) return T;
    for (int64_t t = T - 1; c->bert.positions && t > 0; t--)
        if (token[t] != c->bert.pad) return t + 1;
    if (c->bert.positions) return 1;
    for (int64_t t = 1; c->text_pool == TEXT_POOL_ARGMAX && t < T; t++)
        if (token[t] > token[end]) end = t;
    for (int64_t t = T - 1; c->text_pool == TEXT_POOL_EOS && t >= 0; t--)
        if (token[t] == c->eos) end = t;
    return end + 1;
}

/* (B): the position of the token to pool in each text. */
static value_id text_index(build *b, value_id tokens, int64_t T)
{
    const model_config *c = &b->p->config;
    op_attr attr = { .token = c->text_pool == TEXT_POOL_EOS ? c->eos : 0,
                     .tokens = c->text_pool == TEXT_POOL_LAST ? T - 1 : 0 };
    if (b->o->index_given) return graph_input(b->g, TENSOR(CLOOB_I32, NULL, b->o->batch), "index");
    if (c->bert.positions) attr = (op_attr){ .token = c->bert.pad, .unlike = true };
    if (c->text_pool == TEXT_POOL_ARGMAX) return graph_op(b->g, OP_EOT_INDEX, (op_attr){ 0 }, 1, &tokens);
    return graph_op(b->g, OP_TEXT_POSITION, attr, 1, &tokens);
}

/* Packs the texts into b->o->rows rows and sets start, index and tokens of s. Returns the token of each row; NO_VALUE
 * if texts are not packed. */
static value_id pack_texts(build *b, value_id tokens, int64_t T, build_sequences *s)
{
    bool bert = b->p->config.bert.positions > 0;
    int64_t rows = bert && b->o->rows < 1 ? b->o->batch * T : b->o->rows; /* a BERT is always packed, since that
                                                                           * excludes padding from attention */
    s->start = NO_VALUE;
    s->index = text_index(b, tokens, T);
    if (rows < 1) return NO_VALUE;
    s->start = graph_op(b->g, OP_PACK_TEXTS, (op_attr){ .rows = rows }, 2, (value_id[]){ s->index, tokens });
    s->index = graph_output(b->g, s->start, bert ? 3 : 2);
    s->tokens = T;
    return graph_output(b->g, s->start, 1);
}

/* Pools and normalises the output x of the last block. */
static value_id pool_text(build *b, value_id x, const build_sequences *s)
{
    const model_config *c = &b->p->config;
    if (c->no_ln_final) return x;
    if (!c->bert.positions) return build_layernorm(b, x, "ln_final", c->text.eps);
    if (s->whole) x = graph_op(b->g, OP_MEAN_ROWS, (op_attr){ .tokens = s->tokens }, 2, (value_id[]){ x, s->start });
    if (!c->bert.pooler) return x;
    x = build_linear(b, x, build_param(b, "pooler.weight"), build_param(b, "pooler.bias"));
    return graph_op(b->g, OP_TANH, (op_attr){ 0 }, 1, &x);
}

cloob_status tower_text(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g)
{
    build b = { g, p, o };
    const model_config *c = &p->config;
    graph_init(ctx, g);
    CLOOB_TRY(model_config_need(ctx, c, true));
    int64_t T = o->tokens ? o->tokens : c->context;
    value_id tokens = graph_input(g, TENSOR(CLOOB_I32, NULL, o->batch, T), "tokens");
    build_sequences s = { .blocks = &c->text,
                          .heads = c->text_heads,
                          .causal = !c->no_causal_mask,
                          .mask = c->mask_queries ? graph_op(g, OP_EOT_INDEX, (op_attr){ 0 }, 1, &tokens) : NO_VALUE,
                          .whole = c->text_pool == TEXT_POOL_MEAN };
    value_id row = pack_texts(&b, tokens, T, &s);
    value_id table = build_param(&b, "token_embedding.weight"),
             pos = build_param_rows(&b, c->bert.first, T, "positional_embedding");
    value_id x = graph_op(g, OP_EMBED, (op_attr){ .dtype = p->compute }, 4, (value_id[]){ tokens, table, pos, row });
    if (c->bert.positions) {
        x = graph_op(g, OP_BIAS, (op_attr){ 0 }, 2, (value_id[]){ x, build_param_row(&b, "token_type_embedding") });
        x = build_layernorm(&b, x, "ln_pre", c->text.eps);
    }
    x = build_transformer(&b, x, "transformer", c->text_layers, &s);
    value_id features = pool_text(&b, x, &s);
    if (c->no_text_projection) return build_finish(&b, features, features);
    return build_finish(&b, features,
                        build_projection(&b, features, "text_projection", c->text_projection_hidden,
                                         c->text_projection_bias));
}
