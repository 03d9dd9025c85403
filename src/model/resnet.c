/* CLIP's modified ResNet: a stem of three convolutions, average pooling instead of strides, and attention pooling. */
#include <math.h>
#include <stdio.h>

#include "model/build.h"

static value_id conv(build *b, value_id x, const char *name, int64_t stride, int64_t pad)
{
    return graph_op(b->g, OP_CONV2D, (op_attr){ .stride = stride, .pad = pad }, 2,
                    (value_id[]){ x, build_param(b, "%s.weight", name) });
}

/* Whether a batch norm is locked: it then uses its running statistics and does not update them. */
static bool is_locked(const build *b, const char *name)
{
    char gain[160];
    snprintf(gain, sizeof gain, "%s.weight", name);
    int row = params_find(b->p, gain);
    return row >= 0 && b->p->row[row].frozen;
}

static value_id batchnorm(build *b, value_id x, const char *name)
{
    value_id mean = build_param(b, "%s.running_mean", name), var = build_param(b, "%s.running_var", name), first;
    value_id gain = build_param(b, "%s.weight", name), bias = build_param(b, "%s.bias", name);
    op_attr attr = { .eps = 1e-5f, .momentum = 0.1f };
    if (b->o->train && !is_locked(b, name)) first = graph_op(b->g, OP_BN_STATS, attr, 3, (value_id[]){ x, mean, var });
    else first = graph_op(b->g, OP_BN_RUNNING, attr, 2, (value_id[]){ mean, var });
    value_id rstd = graph_output(b->g, first, 1);
    return graph_op(b->g, OP_BN_APPLY, attr, 5, (value_id[]){ x, first, rstd, gain, bias });
}

static value_id relu(build *b, value_id x) { return graph_op(b->g, OP_RELU, (op_attr){ 0 }, 1, &x); }

static value_id pool(build *b, value_id x) { return graph_op(b->g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &x); }

static value_id conv_bn(build *b, value_id x, const char *prefix, const char *conv_name, const char *bn_name,
                        int64_t pad)
{
    char name[120];
    snprintf(name, sizeof name, "%s.%s", prefix, conv_name);
    x = conv(b, x, name, 1, pad);
    snprintf(name, sizeof name, "%s.%s", prefix, bn_name);
    return batchnorm(b, x, name);
}

static value_id bottleneck(build *b, value_id x, const char *prefix, bool halve)
{
    char down[120];
    snprintf(down, sizeof down, "%s.downsample.0.weight", prefix);
    value_id skip = x;
    if (build_has(b, down)) skip = conv_bn(b, halve ? pool(b, x) : x, prefix, "downsample.0", "downsample.1", 0);
    value_id h = relu(b, conv_bn(b, x, prefix, "conv1", "bn1", 0));
    h = relu(b, conv_bn(b, h, prefix, "conv2", "bn2", 1));
    if (halve) h = pool(b, h);
    h = conv_bn(b, h, prefix, "conv3", "bn3", 0);
    return relu(b, build_add(b, h, skip));
}

static value_id stem(build *b, value_id x)
{
    static const int64_t stride[] = { 2, 1, 1 };
    for (int i = 0; i < 3; i++) {
        char name[32];
        graph_segment(b->g);
        snprintf(name, sizeof name, "visual.conv%d", i + 1);
        x = conv(b, x, name, stride[i], 1);
        snprintf(name, sizeof name, "visual.bn%d", i + 1);
        x = relu(b, batchnorm(b, x, name));
    }
    return pool(b, x);
}

/* Attention pooling with the mean token t_0 as the query: scores s = (W_k^T q) t; output = W_v (sum of softmax(s) t) +
 * b_v. */
static value_id attention_pool(build *b, value_id x)
{
    const model_config *c = &b->p->config;
    int64_t heads = c->image_heads, width = 32 * c->width;
    value_id pos = build_param(b, "visual.attnpool.positional_embedding");
    value_id t = graph_op(b->g, OP_MEAN_TOKENS, (op_attr){ 0 }, 2, (value_id[]){ x, pos });
    value_id first = graph_op(b->g, OP_TAKE_ROWS, (op_attr){ 0 }, 1, &t);
    value_id q = build_linear(b, first, build_param(b, "visual.attnpool.q_proj.weight"),
                              build_param(b, "visual.attnpool.q_proj.bias"));
    op_attr scaled = { .heads = heads, .scale = 1.0f / sqrtf((float)(width / heads)) },
            plain = { .heads = heads, .scale = 1.0f };
    value_id u =
        graph_op(b->g, OP_HEADS_PROJECT, scaled, 2, (value_id[]){ q, build_param(b, "visual.attnpool.k_proj.weight") });
    value_id s = graph_op(b->g, OP_POOL_ATTENTION, (op_attr){ 0 }, 2, (value_id[]){ t, u });
    return graph_op(b->g, OP_HEADS_COLLECT, plain, 3,
                    (value_id[]){ s, build_param(b, "visual.attnpool.v_proj.weight"),
                                  build_param(b, "visual.attnpool.v_proj.bias") });
}

value_id build_resnet(build *b, value_id images)
{
    const model_config *c = &b->p->config;
    value_id x = stem(b, images);
    for (int stage = 1; stage <= 4; stage++)
        for (int i = 0; i < c->layers[stage - 1]; i++) {
            char name[64];
            graph_segment(b->g);
            snprintf(name, sizeof name, "visual.layer%d.%d", stage, i);
            x = bottleneck(b, x, name, stage > 1 && i == 0);
        }
    graph_segment(b->g);
    return attention_pool(b, x);
}
