/* The two towers from picture or tokens to unit rows. */
#include "model/tower.h"

#include "model/build.h"

value_id build_vit(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    op_attr patch = { .stride = c->patch };
    value_id x = graph_op(b->g, OP_CONV2D, patch, 2, (value_id[]){ images, build_param(b, "visual.conv1.weight") });
    value_id cls = build_param(b, "visual.class_embedding"), pos = build_param(b, "visual.positional_embedding");
    x = graph_op(b->g, OP_CLASS_TOKENS, (op_attr){ 0 }, 3, (value_id[]){ x, cls, pos });
    x = build_layernorm(b, x, "visual.ln_pre");
    build_sequences rows = { .heads = c->image_heads, .index = NO_VALUE, .start = NO_VALUE };
    x = build_transformer(b, x, "visual.transformer", c->layers[0], &rows);
    return build_layernorm(b, x, "visual.ln_post");
}

static value_id image_input(build *b)
{
    const model_config *c = &b->p->config;
    int64_t B = b->o->batch, S = c->image_size;
    op_attr attr = { .channels = b->o->padded_input && c->family == MODEL_RESNET ? 8 : 3, .dtype = b->p->compute };
    for (int i = 0; i < 3; i++) attr.mean[i] = (float)c->image_mean[i], attr.std[i] = (float)c->image_std[i];
    tensor bytes = TENSOR(CLOOB_U8, NULL, B, S, S, 3), floats = TENSOR(CLOOB_F32, NULL, B, 3, S, S);
    value_id x = graph_input(b->g, b->o->float_images ? floats : bytes, "images");
    return graph_op(b->g, OP_IMAGE_INPUT, attr, 1, &x);
}

cloob_status tower_image(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g)
{
    build b = { g, p, o };
    graph_init(ctx, g);
    value_id x = image_input(&b), features, raw;
    if (p->config.family == MODEL_RESNET) {
        features = build_resnet(&b, x);
        raw = build_linear(&b, features, build_param(&b, "visual.attnpool.c_proj.weight"),
                           build_param(&b, "visual.attnpool.c_proj.bias"));
    } else {
        features = build_vit(&b, x);
        raw = build_project(&b, features, build_param(&b, "visual.proj"));
    }
    return build_finish(&b, features, raw);
}

int64_t tower_image_features(const model_config *c) { return c->family == MODEL_RESNET ? 32 * c->width : c->width; }

int64_t tower_text_length(const int32_t *token, int64_t T)
{
    int64_t end = 0;
    for (int64_t t = 1; t < T; t++)
        if (token[t] > token[end]) end = t;
    return end + 1;
}

/* Where the texts lie in `rows` packed rows, for s; returns which token each row holds, or NO_VALUE where they are not packed. */
static value_id pack_texts(build *b, value_id tokens, int64_t T, build_sequences *s)
{
    s->start = NO_VALUE;
    s->index = graph_op(b->g, OP_EOT_INDEX, (op_attr){ 0 }, 1, &tokens);
    if (b->o->rows < 1) return NO_VALUE;
    s->start = graph_op(b->g, OP_PACK_TEXTS, (op_attr){ .rows = b->o->rows }, 2, (value_id[]){ s->index, tokens });
    s->index = graph_output(b->g, s->start, 2);
    s->tokens = T;
    return graph_output(b->g, s->start, 1);
}

cloob_status tower_text(cloob_ctx *ctx, const params *p, const tower_options *o, graph *g)
{
    build b = { g, p, o };
    const model_config *c = &p->config;
    graph_init(ctx, g);
    int64_t T = o->tokens ? o->tokens : c->context;
    value_id tokens = graph_input(g, TENSOR(CLOOB_I32, NULL, o->batch, T), "tokens");
    build_sequences s = { .heads = c->text_heads, .causal = true };
    value_id row = pack_texts(&b, tokens, T, &s);
    value_id table = build_param(&b, "token_embedding.weight"),
             pos = build_param_rows(&b, 0, T, "positional_embedding");
    value_id x = graph_op(g, OP_EMBED, (op_attr){ .dtype = p->compute }, 4, (value_id[]){ tokens, table, pos, row });
    x = build_transformer(&b, x, "transformer", c->text_layers, &s);
    value_id features = build_layernorm(&b, x, "ln_final");
    return build_finish(&b, features, build_project(&b, features, build_param(&b, "text_projection")));
}
