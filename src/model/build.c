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

/* Inside a transformer, where 8 bits may do. */
static value_id block_linear(build *b, value_id x, value_id w, value_id bias)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ .fp8 = b->o->fp8 }, 3, (value_id[]){ x, w, bias });
}

value_id build_project(build *b, value_id x, value_id w)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ .transposed = true }, 2, (value_id[]){ x, w });
}

value_id build_layernorm(build *b, value_id x, const char *prefix, double eps)
{
    value_id gain = build_param(b, "%s.weight", prefix), bias = build_param(b, "%s.bias", prefix);
    return graph_op(b->g, OP_LAYERNORM, (op_attr){ .eps = (float)eps }, 3, (value_id[]){ x, gain, bias });
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

/* y times the gains PREFIX.gamma, where the blocks have layer scale. */
static value_id layer_scale(build *b, value_id y, const char *prefix, const char *which, const model_blocks *m)
{
    if (!m->layer_scale) return y;
    return graph_op(b->g, OP_SCALE, (op_attr){ 0 }, 2, (value_id[]){ y, build_param(b, "%s.%s.gamma", prefix, which) });
}

static value_id mlp(build *b, value_id x, const char *prefix, const model_blocks *m)
{
    static const op_act acts[] = { OP_ACT_QUICKGELU, OP_ACT_GELU, OP_ACT_GELU_TANH }; /* as in model_act */
    char name[120];
    snprintf(name, sizeof name, "%s.ln_2", prefix);
    value_id h = build_layernorm(b, x, name, m->eps);
    h = block_linear(b, h, build_param(b, "%s.mlp.c_fc.weight", prefix), build_param(b, "%s.mlp.c_fc.bias", prefix));
    h = graph_op(b->g, OP_ACT, (op_attr){ .act = acts[m->act] }, 1, &h);
    h = block_linear(b, h, build_param(b, "%s.mlp.c_proj.weight", prefix),
                     build_param(b, "%s.mlp.c_proj.bias", prefix));
    return build_add(b, layer_scale(b, h, prefix, "ls_2", m), x);
}

static value_id out_proj(build *b, value_id y, const char *prefix)
{
    return block_linear(b, y, build_param(b, "%s.attn.out_proj.weight", prefix),
                        build_param(b, "%s.attn.out_proj.bias", prefix));
}

static value_id block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    op_attr attr = { .heads = s->heads, .causal = s->causal, .tokens = s->tokens };
    char name[120];
    snprintf(name, sizeof name, "%s.ln_1", prefix);
    value_id h = build_layernorm(b, x, name, s->blocks->eps);
    h = block_linear(b, h, build_param(b, "%s.attn.in_proj_weight", prefix),
                     build_param(b, "%s.attn.in_proj_bias", prefix));
    h = graph_op(b->g, OP_ATTENTION, attr, 2, (value_id[]){ h, s->start });
    h = layer_scale(b, out_proj(b, h, prefix), prefix, "ls_1", s->blocks);
    return mlp(b, build_add(b, h, x), prefix, s->blocks);
}

/* Attention of a query per sequence: q from `query` (B, C), keys and values from x (B, T, C) or packed. */
static value_id attend_one(build *b, value_id query, value_id x, const char *prefix, int64_t heads, int64_t tokens,
                           value_id seen, value_id start)
{
    if (x == NO_VALUE) return NO_VALUE;
    op_attr attr = { .heads = heads, .tokens = tokens };
    int64_t C = tensor_cols(&b->g->value[x].t);
    value_id q = block_linear(b, query, build_param_rows(b, 0, C, "%s.attn.in_proj_weight", prefix),
                              build_param_rows(b, 0, C, "%s.attn.in_proj_bias", prefix));
    value_id kv = block_linear(b, x, build_param_rows(b, C, 2 * C, "%s.attn.in_proj_weight", prefix),
                               build_param_rows(b, C, 2 * C, "%s.attn.in_proj_bias", prefix));
    value_id y = graph_op(b->g, OP_ATTENTION_ONE, attr, 4, (value_id[]){ q, kv, seen, start });
    return out_proj(b, y, prefix);
}

/* The last block for one token: keys and values of all tokens, the query of one. */
static value_id last_block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    /* a packed sequence ends with its token; without a mask the query sees all */
    value_id seen = s->start == NO_VALUE && s->causal ? s->index : NO_VALUE;
    char name[120];
    snprintf(name, sizeof name, "%s.ln_1", prefix);
    value_id h = build_layernorm(b, x, name, s->blocks->eps);
    value_id y = attend_one(b, take(b, h, s->index), h, prefix, s->heads, s->tokens, seen, s->start);
    y = layer_scale(b, y, prefix, "ls_1", s->blocks);
    return mlp(b, build_add(b, y, take(b, x, s->index)), prefix, s->blocks);
}

value_id build_transformer(build *b, value_id x, const char *prefix, int64_t layers, const build_sequences *s)
{
    char name[96];
    for (int64_t i = 0; i < layers; i++) {
        graph_segment(b->g);
        snprintf(name, sizeof name, "%s.resblocks.%d", prefix, (int)i);
        x = i + 1 < layers || s->whole ? block(b, x, name, s) : last_block(b, x, name, s);
    }
    graph_segment(b->g);
    return layers || s->whole ? x : take(b, x, s->index);
}

value_id build_map_pool(build *b, value_id x, const char *prefix, int64_t heads, const model_blocks *blocks)
{
    value_id latent = build_param(b, "%s.latent", prefix);
    op_attr attr = { .rows = b->o->batch, .dtype = b->p->compute };
    value_id query = graph_op(b->g, OP_REPEAT_ROW, attr, 1, &latent);
    return mlp(b, attend_one(b, query, x, prefix, heads, 0, NO_VALUE, NO_VALUE), prefix, blocks);
}

/* ---- the end of a tower -------------------------------------------------------------------------- */

cloob_status build_finish(build *b, value_id features, value_id raw)
{
    graph *g = b->g;
    value_id output = graph_op(g, OP_L2NORM, (op_attr){ 0 }, 1, &raw);
    CLOOB_TRY(graph_status(g));
    graph_keep(g, raw, "raw");
    graph_keep(g, output, "output");
    if (b->o->features && features != raw) graph_keep(g, features, "features"); /* without a projection they are raw */
    graph_fuse(g);
    if (!b->o->train) graph_fold_batchnorm(g);
    if (b->o->backward) graph_differentiate(g, output, &b->o->grad);
    if (b->o->join) graph_join(g);
    return graph_status(g);
}
