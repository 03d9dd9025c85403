/* Pieces shared by the towers: parameters by name, linear layers with adapters, transformer blocks, projections. */
#include "model/build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "model/params.h"

static int find_param(build *b, const char *format, va_list args)
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
    int row = find_param(b, format, args);
    va_end(args);
    if (row < 0) return NO_VALUE;
    if (b->p->row[row].buffer) return graph_stat(b->g, row, b->p->master_view[row]);
    return graph_param(b->g, row, b->p->compute_view[row], 0, b->o->backward && !b->p->row[row].frozen);
}

value_id build_param_point(build *b, const char *name)
{
    int row = params_find(b->p, name);
    if (row < 0) return build_param(b, "%s", name); /* reports that it is missing */
    tensor t = b->p->compute_view[row];
    t.dim[3] *= t.dim[1] * t.dim[2];
    t.dim[1] = t.dim[2] = 1;
    return graph_param(b->g, row, t, 0, b->o->backward && !b->p->row[row].frozen);
}

value_id build_param_rows(build *b, int64_t first, int64_t count, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int row = find_param(b, format, args);
    va_end(args);
    if (row < 0) return NO_VALUE;
    tensor t = b->p->compute_view[row];
    int64_t stride = tensor_count(&t) / t.dim[0];
    t.dim[0] = count;
    return graph_param(b->g, row, t, first * stride, b->o->backward && !b->p->row[row].frozen);
}

value_id build_param_row(build *b, const char *name)
{
    int row = params_find(b->p, name);
    if (row < 0) return build_param(b, "%s", name); /* reports that it is missing */
    tensor t = b->p->compute_view[row];
    return graph_param(b->g, row, TENSOR(t.dtype, t.data, t.dim[1]), 0, b->o->backward && !b->p->row[row].frozen);
}

bool build_has(const build *b, const char *name) { return params_find(b->p, name) >= 0; }

value_id build_linear(build *b, value_id x, value_id w, value_id bias)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ 0 }, 3, (value_id[]){ x, w, bias });
}

/* A linear layer of a transformer block. Only these may run in FP8 (tower_options.fp8). */
static value_id block_linear(build *b, value_id x, value_id w, value_id bias)
{
    return graph_op(b->g, OP_LINEAR, (op_attr){ .fp8 = b->o->fp8 }, 3, (value_id[]){ x, w, bias });
}

/* ---- adapters: W x + scale B (A x), see model/lora.c --------------------------------------- */

/* The adapter matrix A of a weight; NO_VALUE if the weight has no adapters. */
static value_id adapter_of(build *b, const char *weight)
{
    int row = params_find(b->p, weight);
    return row < 0 || b->p->row[row].adapter < 0 ? NO_VALUE : build_param(b, "%s.lora_A", weight);
}

static value_id adapter_scale(build *b, value_id u)
{
    if (b->p->training.lora_scale == 1) return u;
    return graph_op(b->g, OP_SCALE, (op_attr){ 0 }, 2, (value_id[]){ u, build_param(b, LORA_SCALE) });
}

/* scale A x; NO_VALUE if the weight has no adapters. */
static value_id adapter_in(build *b, value_id x, const char *weight)
{
    value_id A = adapter_of(b, weight);
    return A == NO_VALUE ? A : adapter_scale(b, build_linear(b, x, A, NO_VALUE));
}

/* y + rows [first, first + count) of B times u; y unchanged if u is NO_VALUE. y is computed as it is without adapters
 * and added by the GEMM with B, so the result is bitwise identical while B is 0. */
static value_id adapter_out(build *b, value_id y, value_id u, const char *weight, int64_t first, int64_t count)
{
    if (u == NO_VALUE) return y;
    return build_add(b, build_linear(b, u, build_param_rows(b, first, count, "%s.lora_B", weight), NO_VALUE), y);
}

value_id build_adapted(build *b, value_id x, const char *prefix, const char *weight, const char *bias,
                       value_id residual)
{
    char w[160];
    snprintf(w, sizeof w, "%s.%s", prefix, weight);
    value_id y = block_linear(b, x, build_param(b, "%s", w), bias ? build_param(b, "%s.%s", prefix, bias) : NO_VALUE);
    if (y == NO_VALUE) return y;
    if (residual != NO_VALUE) y = build_add(b, y, residual);
    return adapter_out(b, y, adapter_in(b, x, w), w, 0, tensor_cols(&b->g->value[y].t));
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

static value_id take_rows(build *b, value_id x, value_id index)
{
    return graph_op(b->g, OP_TAKE_ROWS, (op_attr){ 0 }, 2, (value_id[]){ x, index });
}

/* y scaled by the gains PREFIX.WHICH.gamma; y unchanged if the blocks have no layer scale. */
static value_id layer_scale(build *b, value_id y, const char *prefix, const char *which, const model_blocks *m)
{
    if (!m->layer_scale) return y;
    return graph_op(b->g, OP_SCALE, (op_attr){ 0 }, 2, (value_id[]){ y, build_param(b, "%s.%s.gamma", prefix, which) });
}

/* x + layer scale of (h times the weight PREFIX.PROJ, plus its bias). */
static value_id add_projected(build *b, value_id x, value_id h, const char *prefix, const char *proj, const char *scale,
                              const model_blocks *m)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", proj);
    snprintf(bias, sizeof bias, "%s.bias", proj);
    if (!m->layer_scale) return build_adapted(b, h, prefix, weight, bias, x);
    return build_add(b, layer_scale(b, build_adapted(b, h, prefix, weight, bias, NO_VALUE), prefix, scale, m), x);
}

static value_id norm(build *b, value_id x, const char *prefix, const char *ln, const model_blocks *m)
{
    char name[120];
    snprintf(name, sizeof name, "%s.%s", prefix, ln);
    return build_layernorm(b, x, name, m->eps);
}

/* Input of a residual branch: x, normalised if the blocks normalise before the branch. */
static value_id begin_branch(build *b, value_id x, const char *prefix, const char *ln, const model_blocks *m)
{
    return m->norm == NORM_BEFORE ? norm(b, x, prefix, ln, m) : x;
}

/* End of a residual branch: projects h and adds it to x. Normalises the projected branch (NORM_BRANCH) or the sum
 * (NORM_AFTER) if the blocks ask for it. */
static value_id end_branch(build *b, value_id x, value_id h, const char *prefix, const char *proj, const char *scale,
                           const char *ln, const model_blocks *m)
{
    char weight[64], bias[64];
    if (m->norm == NORM_BRANCH) {
        snprintf(weight, sizeof weight, "%s.weight", proj);
        snprintf(bias, sizeof bias, "%s.bias", proj);
        return build_add(b, norm(b, build_adapted(b, h, prefix, weight, bias, NO_VALUE), prefix, ln, m), x);
    }
    value_id y = add_projected(b, x, h, prefix, proj, scale, m);
    return m->norm == NORM_AFTER ? norm(b, y, prefix, ln, m) : y;
}

static value_id mlp(build *b, value_id x, const char *prefix, const model_blocks *m)
{
    static const op_act acts[] = { OP_ACT_QUICKGELU, OP_ACT_GELU, OP_ACT_GELU_TANH }; /* indexed by model_act */
    value_id h = begin_branch(b, x, prefix, "ln_2", m);
    h = build_adapted(b, h, prefix, "mlp.c_fc.weight", "mlp.c_fc.bias", NO_VALUE);
    h = m->swiglu ? graph_op(b->g, OP_GATE, (op_attr){ 0 }, 1, &h)
                  : graph_op(b->g, OP_ACT, (op_attr){ .act = acts[m->act] }, 1, &h);
    if (m->inner_norms) h = norm(b, h, prefix, "mlp.ln_inner", m);
    return end_branch(b, x, h, prefix, "mlp.c_proj", "ls_2", "ln_2", m);
}

/* Queries, keys and values of h, concatenated; with the query mask or rotary positions applied. */
static value_id project_in(build *b, value_id h, const char *prefix, const build_sequences *s)
{
    const model_blocks *m = s->blocks;
    if (!m->no_key_bias) h = build_adapted(b, h, prefix, "attn.in_proj_weight", "attn.in_proj_bias", NO_VALUE);
    else {
        h = build_adapted(b, h, prefix, "attn.in_proj_weight", NULL, NO_VALUE);
        h = graph_op(b->g, OP_BIAS, (op_attr){ 0 }, 2, (value_id[]){ h, build_param(b, "%s.attn.qv_bias", prefix) });
    }
    if (s->mask != NO_VALUE) return graph_op(b->g, OP_MASK_QUERIES, (op_attr){ 0 }, 2, (value_id[]){ h, s->mask });
    if (!m->rope_grid) return h;
    op_attr attr = { .heads = s->heads,
                     .rows = s->skip,
                     .tokens = s->side,
                     .scale = (float)(m->rope_grid / (double)s->side),
                     .offset = (float)m->rope_offset,
                     .swapped = m->rope_swapped };
    return graph_op(b->g, OP_ROPE, attr, 1, &h);
}

static value_id block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    op_attr attr = { .heads = s->heads, .causal = s->causal, .tokens = s->tokens };
    value_id h = begin_branch(b, x, prefix, "ln_1", s->blocks);
    h = project_in(b, h, prefix, s);
    h = graph_op(b->g, OP_ATTENTION, attr, 2, (value_id[]){ h, s->start });
    if (s->blocks->inner_norms) h = norm(b, h, prefix, "attn.ln_inner", s->blocks);
    return mlp(b, end_branch(b, x, h, prefix, "attn.out_proj", "ls_1", "ln_1", s->blocks), prefix, s->blocks);
}

/* Arguments of attention with one query per sequence: query (B, C), over x (B, T, C) or packed rows. */
typedef struct pool_query {
    value_id query, x;
    bool from_x;       /* the query is computed from token `index` of x */
    value_id index;    /* see build_sequences */
    value_id last_key; /* position of the last key that each query attends to; NO_VALUE: all keys */
    value_id start;
    int64_t heads, tokens;
} pool_query;

/* Whether attention of one query is computed without forming keys and values (docs/explanation/attention-pool.md). Not
 * used for inference on the CPU, where only linear layers support 8-bit weights and results that do not depend on the
 * batch. */
static bool folds_keys(const build *b) { return b->o->train || b->p->dev->backend == BACKEND_CUDA; }

/* Each head of q times the key weights of that head: (B, H, C). The key bias cancels in the softmax: it is left out,
 * and its gradient is not written and stays 0. */
static value_id fold_keys(build *b, value_id q, const char *w, value_id A, const pool_query *o)
{
    int64_t C = tensor_cols(&b->g->value[o->x].t);
    op_attr attr = { .heads = o->heads, .scale = 1.0f / sqrtf((float)(C / o->heads)) };
    value_id u = graph_op(b->g, OP_HEADS_PROJECT, attr, 2, (value_id[]){ q, build_param_rows(b, C, C, "%s", w) });
    if (A == NO_VALUE) return u;
    value_id B = build_param_rows(b, C, C, "%s.lora_B", w);
    value_id v = adapter_scale(b, graph_op(b->g, OP_HEADS_PROJECT, attr, 2, (value_id[]){ q, B }));
    return build_add(b, build_project(b, v, A), u);
}

/* The weighted sums of the tokens, (B, H, C), times the value weights of each head, plus the value bias: (B, C). */
static value_id fold_values(build *b, value_id s, const char *w, const char *c, value_id A, const pool_query *o)
{
    int64_t C = tensor_cols(&b->g->value[o->x].t);
    op_attr attr = { .heads = o->heads, .scale = 1.0f };
    value_id weight = build_param_rows(b, 2 * C, C, "%s", w), bias = build_param_rows(b, 2 * C, C, "%s", c);
    value_id y = graph_op(b->g, OP_HEADS_COLLECT, attr, 3, (value_id[]){ s, weight, bias });
    if (A == NO_VALUE) return y;
    value_id v = adapter_scale(b, build_linear(b, s, A, NO_VALUE));
    value_id B = build_param_rows(b, 2 * C, C, "%s.lora_B", w);
    return build_add(b, graph_op(b->g, OP_HEADS_COLLECT, attr, 2, (value_id[]){ v, B }), y);
}

/* Attention of one query without keys and values: scores and weighted sums use the tokens themselves. Adapters add B A
 * to each weight that is read; while B is 0 they add 0. */
static value_id attend_folded(build *b, value_id q, const char *w, const char *c, const pool_query *o)
{
    int64_t C = tensor_cols(&b->g->value[o->x].t);
    value_id A = adapter_of(b, w);
    if (A != NO_VALUE) q = adapter_out(b, q, adapter_scale(b, build_linear(b, o->query, A, NO_VALUE)), w, 0, C);
    value_id u = fold_keys(b, q, w, A, o);
    value_id s = graph_op(b->g, OP_POOL_ATTENTION, (op_attr){ .tokens = o->tokens }, 4,
                          (value_id[]){ o->x, u, o->last_key, o->start });
    return fold_values(b, s, w, c, A, o);
}

/* Attention of the query over all tokens, before the output projection. When keys and values are formed, A x of the
 * adapters is computed once for all tokens, and the query uses its row. */
static value_id attend_one(build *b, const char *prefix, const pool_query *o)
{
    if (o->x == NO_VALUE) return NO_VALUE;
    op_attr attr = { .heads = o->heads, .tokens = o->tokens };
    int64_t C = tensor_cols(&b->g->value[o->x].t);
    char w[160], c[160];
    snprintf(w, sizeof w, "%s.attn.in_proj_weight", prefix);
    snprintf(c, sizeof c, "%s.attn.in_proj_bias", prefix);
    value_id q = block_linear(b, o->query, build_param_rows(b, 0, C, "%s", w), build_param_rows(b, 0, C, "%s", c));
    if (folds_keys(b)) return attend_folded(b, q, w, c, o);
    value_id u = o->from_x ? adapter_in(b, o->x, w) : NO_VALUE;
    value_id kv = block_linear(b, o->x, build_param_rows(b, C, 2 * C, "%s", w), build_param_rows(b, C, 2 * C, "%s", c));
    if (u != NO_VALUE) q = adapter_out(b, q, take_rows(b, u, o->index), w, 0, C);
    kv = adapter_out(b, kv, u, w, C, 2 * C);
    return graph_op(b->g, OP_ATTENTION_ONE, attr, 4, (value_id[]){ q, kv, o->last_key, o->start });
}

/* The last block, computed for one token per sequence: its query attends to all tokens. */
static value_id last_block(build *b, value_id x, const char *prefix, const build_sequences *s)
{
    /* a packed sequence ends with its token, and without a causal mask the query attends to all tokens */
    value_id last_key = s->start == NO_VALUE && s->causal ? s->index : NO_VALUE;
    value_id h = begin_branch(b, x, prefix, "ln_1", s->blocks);
    value_id y = attend_one(b, prefix,
                            &(pool_query){ .query = take_rows(b, h, s->index),
                                           .x = h,
                                           .from_x = true,
                                           .index = s->index,
                                           .last_key = last_key,
                                           .start = s->start,
                                           .heads = s->heads,
                                           .tokens = s->tokens });
    y = end_branch(b, take_rows(b, x, s->index), y, prefix, "attn.out_proj", "ls_1", "ln_1", s->blocks);
    return mlp(b, y, prefix, s->blocks);
}

value_id build_transformer(build *b, value_id x, const char *prefix, int64_t layers, const build_sequences *s)
{
    /* attend_one supports neither rotary positions nor a missing key bias */
    bool whole = s->whole || s->blocks->no_key_bias || s->blocks->rope_grid;
    char name[96];
    for (int64_t i = 0; i < layers; i++) {
        graph_segment(b->g);
        snprintf(name, sizeof name, "%s.resblocks.%d", prefix, (int)i);
        x = i + 1 < layers || whole ? block(b, x, name, s) : last_block(b, x, name, s);
    }
    graph_segment(b->g);
    return s->whole || (layers && !whole) ? x : take_rows(b, x, s->index);
}

value_id build_map_pool(build *b, value_id x, const char *prefix, int64_t heads, const build_sequences *s)
{
    value_id latent = build_param(b, "%s.latent", prefix);
    op_attr attr = { .rows = b->o->batch, .dtype = b->p->compute };
    value_id query = graph_op(b->g, OP_REPEAT_ROW, attr, 1, &latent);
    pool_query o = { .query = query,
                     .x = x,
                     .index = NO_VALUE,
                     .last_key = NO_VALUE,
                     .start = s->start,
                     .heads = heads,
                     .tokens = s->tokens };
    value_id y = attend_one(b, prefix, &o);
    y = build_adapted(b, y, prefix, "attn.out_proj.weight", "attn.out_proj.bias", NO_VALUE);
    model_blocks plain = { .act = s->blocks->act, .eps = s->blocks->eps };
    return mlp(b, y, prefix, &plain);
}

/* ---- projection and outputs of a tower ----------------------------------------------------------- */

value_id build_projection(build *b, value_id features, const char *name, int64_t hidden, bool bias)
{
    char first[64];
    if (!hidden && !bias) return build_project(b, features, build_param(b, "%s", name));
    if (!hidden) return build_linear(b, features, build_param(b, "%s.weight", name), build_param(b, "%s.bias", name));
    snprintf(first, sizeof first, "%s.0.bias", name);
    value_id c = build_has(b, first) ? build_param(b, "%s", first) : NO_VALUE;
    value_id h = build_linear(b, features, build_param(b, "%s.0.weight", name), c);
    h = graph_op(b->g, OP_ACT, (op_attr){ .act = OP_ACT_GELU }, 1, &h);
    return build_linear(b, h, build_param(b, "%s.2.weight", name), NO_VALUE);
}

cloob_status build_finish(build *b, value_id features, value_id raw)
{
    graph *g = b->g;
    value_id output = graph_op(g, OP_L2NORM, (op_attr){ 0 }, 1, &raw);
    CLOOB_TRY(graph_status(g));
    graph_keep(g, raw, "raw");
    graph_keep(g, output, "output");
    /* without a projection, "raw" holds the features */
    if (b->o->features && features != raw) graph_keep(g, features, "features");
    g->plain_pools = !b->o->train && b->p->dev->backend == BACKEND_CPU;
    graph_fuse(g);
    if (!b->o->train) graph_fold_batchnorm(g);
    if (b->o->backward) graph_differentiate(g, output, &b->o->grad);
    if (b->o->fuse_gemm) graph_fuse_gemm(g);
    return graph_status(g);
}
