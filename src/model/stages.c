/* timm's image towers with stages. Norms and MLPs treat pixels as rows and are the same ops as in transformers.
 *
 * ConvNeXt: a block is a depthwise convolution, a layer norm over the channels and an MLP; between stages there are a
 * layer norm and a 2 x 2 convolution. FastViT, the image towers of MobileCLIP: depthwise convolutions and MLPs, with
 * attention in the last of four or the last two of five stages. The tower is folded (model/fold.c): it has no branches,
 * batch norms or layer scale. */
#include <stdio.h>

#include "model/build.h"

static value_id linear(build *b, value_id x, const char *prefix, const char *name)
{
    return build_linear(b, x, build_param(b, "%s%s.weight", prefix, name), build_param(b, "%s%s.bias", prefix, name));
}

static value_id depthwise(build *b, value_id x, const char *prefix, const char *name, int64_t stride)
{
    value_id w = build_param(b, "%s%s.weight", prefix, name), bias = build_param(b, "%s%s.bias", prefix, name);
    return graph_op(b->g, OP_DWCONV, (op_attr){ .stride = stride }, 3, (value_id[]){ x, w, bias });
}

static value_id gelu(build *b, value_id x) { return graph_op(b->g, OP_ACT, (op_attr){ .act = OP_ACT_GELU }, 1, &x); }

/* A convolution with a bias. */
static value_id conv(build *b, value_id x, const char *prefix, const char *name, op_attr attr)
{
    value_id w = build_param(b, "%s%s.weight", prefix, name), bias = build_param(b, "%s%s.bias", prefix, name);
    x = graph_op(b->g, OP_CONV2D, attr, 2, (value_id[]){ x, w });
    return graph_op(b->g, OP_BIAS, (op_attr){ 0 }, 2, (value_id[]){ x, bias });
}

static value_id layernorm(build *b, value_id x, const char *prefix, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return build_layernorm(b, x, full, b->p->config.image.eps);
}

/* ---- ConvNeXt ------------------------------------------------------------------------------------ */

static value_id convnext_block(build *b, value_id x, const char *prefix)
{
    value_id h = layernorm(b, depthwise(b, x, prefix, "conv_dw", 1), prefix, "norm");
    h = linear(b, gelu(b, linear(b, h, prefix, "mlp.fc1")), prefix, "mlp.fc2");
    if (b->p->config.image.layer_scale)
        h = graph_op(b->g, OP_SCALE, (op_attr){ 0 }, 2, (value_id[]){ h, build_param(b, "%sgamma", prefix) });
    return build_add(b, h, x);
}

/* Returns the features: the mean of all positions, normalised by a layer norm. */
value_id build_convnext(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    char name[64];
    graph_segment(b->g);
    value_id x = conv(b, images, "visual.", "stem.0", (op_attr){ .stride = c->patch });
    x = layernorm(b, x, "visual.", "stem.1");
    for (int stage = 0; stage < 4; stage++) {
        snprintf(name, sizeof name, "visual.stages.%d.", stage);
        if (stage) {
            graph_segment(b->g);
            x = layernorm(b, x, name, "downsample.0");
            x = conv(b, x, name, "downsample.1", (op_attr){ .stride = 2 });
        }
        for (int64_t i = 0; i < c->layers[stage]; i++) {
            graph_segment(b->g);
            snprintf(name, sizeof name, "visual.stages.%d.blocks.%d.", stage, (int)i);
            x = convnext_block(b, x, name);
        }
    }
    graph_segment(b->g);
    x = graph_op(b->g, OP_MEAN_ROWS, (op_attr){ 0 }, 1, &x);
    return layernorm(b, x, "visual.", "head.norm");
}

/* ---- FastViT ------------------------------------------------------------------------------------- */

/* Squeeze and excitation: channels are scaled by an MLP of their means. */
static value_id excite(build *b, value_id x, const char *prefix)
{
    value_id h = graph_op(b->g, OP_MEAN_ROWS, (op_attr){ 0 }, 1, &x);
    h = linear(b, h, prefix, ".se.fc1");
    h = linear(b, graph_op(b->g, OP_RELU, (op_attr){ 0 }, 1, &h), prefix, ".se.fc2");
    return graph_op(b->g, OP_EXCITE, (op_attr){ 0 }, 2, (value_id[]){ x, h });
}

static value_id fastvit_stem(build *b, value_id x)
{
    x = conv(b, x, "visual.", "stem.0", (op_attr){ .stride = 2, .pad = 1 });
    x = gelu(b, depthwise(b, gelu(b, x), "visual.stem.1", "", 2));
    return gelu(b, linear(b, x, "visual.stem.2", ""));
}

static value_id downsample(build *b, value_id x, const char *stage)
{
    char first[64], se[96];
    snprintf(first, sizeof first, "%sdownsample.proj.0", stage);
    snprintf(se, sizeof se, "%s.se.fc1.weight", first);
    x = depthwise(b, x, first, "", 2);
    if (build_has(b, se)) x = excite(b, x, first);
    return gelu(b, linear(b, gelu(b, x), stage, "downsample.proj.1"));
}

static value_id attention(build *b, value_id x, const char *prefix)
{
    value_id h = x;
    if (fastvit_layer_norms(&b->p->config)) {
        h = layernorm(b, x, prefix, "norm");
        h = build_linear(b, h, build_param(b, "%stoken_mixer.qkv.weight", prefix), NO_VALUE);
    } else h = linear(b, x, prefix, "token_mixer.qkv");
    op_attr heads = { .heads = tensor_cols(&b->g->value[x].t) / FASTVIT_HEAD };
    h = graph_op(b->g, OP_ATTENTION, heads, 1, &h);
    return build_add(b, linear(b, h, prefix, "token_mixer.proj"), x);
}

static value_id fastvit_block(build *b, value_id x, const char *prefix, bool attends)
{
    x = attends ? attention(b, x, prefix) : depthwise(b, x, prefix, "token_mixer", 1);
    value_id h = depthwise(b, x, prefix, "mlp.conv", 1);
    h = linear(b, gelu(b, linear(b, h, prefix, "mlp.fc1")), prefix, "mlp.fc2");
    return build_add(b, h, x);
}

value_id build_fastvit(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    char name[64];
    graph_segment(b->g);
    value_id x = fastvit_stem(b, images);
    for (int stage = 0; stage < fastvit_stages(c) && x != NO_VALUE; stage++) {
        bool attends = fastvit_attends(stage);
        snprintf(name, sizeof name, "visual.stages.%d.", stage);
        graph_segment(b->g);
        if (stage) x = downsample(b, x, name);
        if (attends) x = depthwise(b, x, name, "pos_emb", 1);
        for (int64_t i = 0; i < c->layers[stage] && x != NO_VALUE; i++) {
            graph_segment(b->g);
            snprintf(name, sizeof name, "visual.stages.%d.blocks.%d.", stage, (int)i);
            x = fastvit_block(b, x, name, attends);
        }
    }
    graph_segment(b->g);
    x = gelu(b, excite(b, depthwise(b, x, "visual.final_conv", "", 1), "visual.final_conv"));
    return graph_op(b->g, OP_MEAN_ROWS, (op_attr){ 0 }, 1, &x);
}

value_id build_patch_stem(build *b, value_id x)
{
    x = gelu(b, conv(b, x, "visual.", "stem.0", (op_attr){ .stride = b->p->config.patch / 4 }));
    return gelu(b, conv(b, x, "visual.", "stem.1", (op_attr){ .stride = 2 }));
}
