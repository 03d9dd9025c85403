/* timm's ConvNeXt: four stages of blocks, each a depthwise convolution, layer norm over the channels and an MLP;
 * between stages a layer norm and a convolution of 2 x 2. Positions are rows: norms and MLPs are those of
 * transformers. */
#include <stdio.h>

#include "model/build.h"

/* A convolution of windows that do not overlap, with a bias. */
static value_id patches(build *b, value_id x, const char *name, int64_t stride)
{
    x = graph_op(b->g, OP_CONV2D, (op_attr){ .stride = stride }, 2,
                 (value_id[]){ x, build_param(b, "%s.weight", name) });
    return graph_op(b->g, OP_BIAS, (op_attr){ 0 }, 2, (value_id[]){ x, build_param(b, "%s.bias", name) });
}

static value_id linear(build *b, value_id x, const char *prefix, const char *name)
{
    return build_linear(b, x, build_param(b, "%s.%s.weight", prefix, name), build_param(b, "%s.%s.bias", prefix, name));
}

static value_id block(build *b, value_id x, const char *prefix)
{
    const model_blocks *m = &b->p->config.image;
    char norm[96];
    value_id w = build_param(b, "%s.conv_dw.weight", prefix), bias = build_param(b, "%s.conv_dw.bias", prefix);
    value_id h = graph_op(b->g, OP_DWCONV, (op_attr){ .stride = 1 }, 3, (value_id[]){ x, w, bias });
    snprintf(norm, sizeof norm, "%s.norm", prefix);
    h = linear(b, build_layernorm(b, h, norm, m->eps), prefix, "mlp.fc1");
    h = graph_op(b->g, OP_ACT, (op_attr){ .act = OP_ACT_GELU }, 1, &h);
    h = linear(b, h, prefix, "mlp.fc2");
    if (m->layer_scale)
        h = graph_op(b->g, OP_SCALE, (op_attr){ 0 }, 2, (value_id[]){ h, build_param(b, "%s.gamma", prefix) });
    return build_add(b, h, x);
}

/* The layer norm of the result sees the mean of all positions. */
value_id build_convnext(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    char name[64];
    graph_segment(b->g);
    value_id x = build_layernorm(b, patches(b, images, "visual.stem.0", c->patch), "visual.stem.1", c->image.eps);
    for (int stage = 0; stage < 4; stage++) {
        if (stage) {
            graph_segment(b->g);
            snprintf(name, sizeof name, "visual.stages.%d.downsample.0", stage);
            x = build_layernorm(b, x, name, c->image.eps);
            snprintf(name, sizeof name, "visual.stages.%d.downsample.1", stage);
            x = patches(b, x, name, 2);
        }
        for (int64_t i = 0; i < c->layers[stage]; i++) {
            graph_segment(b->g);
            snprintf(name, sizeof name, "visual.stages.%d.blocks.%d", stage, (int)i);
            x = block(b, x, name);
        }
    }
    graph_segment(b->g);
    x = graph_op(b->g, OP_MEAN_ROWS, (op_attr){ 0 }, 1, &x);
    return build_layernorm(b, x, "visual.head.norm", c->image.eps);
}
