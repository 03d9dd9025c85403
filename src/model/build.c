/* Shared pieces of the towers. */
#include "model/build.h"

#include <stdarg.h>
#include <stdio.h>

static int row_of(build *b, const char *format, va_list args)
{
    char name[160];
    vsnprintf(name, sizeof name, format, args);
    int row = params_find(b->p, name);
    if (row < 0 && b->g->status == CLOOB_OK)
        b->g->status = ctx_fail(b->g->ctx, CLOOB_ERR_ARGUMENT, "no parameter named %s", name);
    return row;
}

value_id build_param(build *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int row = row_of(b, format, args);
    va_end(args);
    if (row < 0) return NO_VALUE;
    if (b->p->row[row].buffer) return graph_stat(b->g, row, b->p->master_view[row]);
    return graph_param(b->g, row, b->p->compute_view[row], 0, b->o->backward);
}

value_id build_param_rows(build *b, int64_t first, int64_t count, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int row = row_of(b, format, args);
    va_end(args);
    if (row < 0) return NO_VALUE;
    tensor t = b->p->compute_view[row];
    int64_t stride = tensor_count(&t) / t.dim[0];
    t.dim[0] = count;
    return graph_param(b->g, row, t, first * stride, b->o->backward);
}

bool build_has(const build *b, const char *name) { return params_find(b->p, name) >= 0; }

value_id build_linear(build *b, value_id x, value_id w, value_id bias)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ 0 }, 3, (value_id[]){ x, w, bias });
}

value_id build_project(build *b, value_id x, value_id w)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ .transposed = true }, 2, (value_id[]){ x, w });
}

value_id build_layernorm(build *b, value_id x, const char *prefix)
{
    value_id gain = build_param(b, "%s.weight", prefix), bias = build_param(b, "%s.bias", prefix);
    return graph_op(b->g, OP_LAYERNORM, (op_attr){ .eps = 1e-5f }, 3, (value_id[]){ x, gain, bias });
}

value_id build_add(build *b, value_id x, value_id y)
{
    return graph_op(b->g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ x, y });
}

/* ---- transformer --------------------------------------------------------------------------------- */

static value_id take(build *b, value_id x, value_id index)
{
    return graph_op(b->g, OP_TAKE_ROWS, (op_attr){ 0 }, 2, (value_id[]){ x, index });
}

static value_id mlp(build *b, value_id x, const char *prefix)
{
    op_act act = b->p->config.act == ACT_GELU ? OP_ACT_GELU : OP_ACT_QUICKGELU;
    char name[120];
    snprintf(name, sizeof name, "%s.ln_2", prefix);
    value_id h = build_layernorm(b, x, name);
    h = build_linear(b, h, build_param(b, "%s.mlp.c_fc.weight", prefix), build_param(b, "%s.mlp.c_fc.bias", prefix));
    h = graph_op(b->g, OP_ACT, (op_attr){ .act = act }, 1, &h);
    h = build_linear(b, h, build_param(b, "%s.mlp.c_proj.weight", prefix),
                     build_param(b, "%s.mlp.c_proj.bias", prefix));
    return build_add(b, h, x);
}

static value_id out_proj(build *b, value_id y, value_id x, const char *prefix)
{
    y = build_linear(b, y, build_param(b, "%s.attn.out_proj.weight", prefix),
                     build_param(b, "%s.attn.out_proj.bias", prefix));
    return build_add(b, y, x);
}

static value_id block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    op_attr attr = { .heads = s->heads, .causal = s->causal, .tokens = s->tokens };
    char name[120];
    snprintf(name, sizeof name, "%s.ln_1", prefix);
    value_id h = build_layernorm(b, x, name);
    h = build_linear(b, h, build_param(b, "%s.attn.in_proj_weight", prefix),
                     build_param(b, "%s.attn.in_proj_bias", prefix));
    h = graph_op(b->g, OP_ATTENTION, attr, 2, (value_id[]){ h, s->start });
    return mlp(b, out_proj(b, h, x, prefix), prefix);
}

/* The last block for one token: keys and values of all tokens, the query of one. */
static value_id last_block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    if (x == NO_VALUE) return NO_VALUE;
    op_attr attr = { .heads = s->heads, .tokens = s->tokens };
    value_id index = s->index,
             seen = s->start == NO_VALUE ? index : NO_VALUE; /* a packed sequence ends with its token */
    int64_t C = tensor_cols(&b->g->value[x].t);
    char name[120];
    snprintf(name, sizeof name, "%s.ln_1", prefix);
    value_id h = build_layernorm(b, x, name);
    value_id q = build_linear(b, take(b, h, index), build_param_rows(b, 0, C, "%s.attn.in_proj_weight", prefix),
                              build_param_rows(b, 0, C, "%s.attn.in_proj_bias", prefix));
    value_id kv = build_linear(b, h, build_param_rows(b, C, 2 * C, "%s.attn.in_proj_weight", prefix),
                               build_param_rows(b, C, 2 * C, "%s.attn.in_proj_bias", prefix));
    value_id y = graph_op(b->g, OP_ATTENTION_ONE, attr, 4, (value_id[]){ q, kv, seen, s->start });
    return mlp(b, out_proj(b, y, take(b, x, index), prefix), prefix);
}

value_id build_transformer(build *b, value_id x, const char *prefix, int64_t layers, const build_sequences *s)
{
    char name[96];
    for (int64_t i = 0; i < layers; i++) {
        graph_segment(b->g);
        snprintf(name, sizeof name, "%s.resblocks.%d", prefix, (int)i);
        x = i + 1 < layers ? block(b, x, name, s) : last_block(b, x, name, s);
    }
    graph_segment(b->g);
    return layers ? x : take(b, x, s->index);
}

/* ---- the end of a tower -------------------------------------------------------------------------- */

cloob_status build_finish(build *b, value_id features, value_id raw)
{
    graph *g = b->g;
    value_id output = graph_op(g, OP_L2NORM, (op_attr){ 0 }, 1, &raw);
    CLOOB_TRY(graph_status(g));
    graph_keep(g, raw, "raw");
    graph_keep(g, output, "output");
    if (b->o->features) graph_keep(g, features, "features");
    graph_fuse(g);
    if (!b->o->train) graph_fold_batchnorm(g);
    if (b->o->backward) graph_differentiate(g, output, &b->o->grad);
    if (b->o->join) graph_join(g);
    return graph_status(g);
}
