/* Every op of an inference tower in ONNX's words (opset 17). Images are (N, C, H, W) there; the batch is the dimension
 * that reshapes leave open. */
#include <math.h>
#include <string.h>

#include "model/onnx/graph.h"

#define DIMS(...)            (int64_t[]){ __VA_ARGS__ }, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))
#define RESHAPE(x, a, ...)   onnx_reshape(x, a, DIMS(__VA_ARGS__))
#define TRANSPOSE(x, a, ...) onnx_transpose(x, a, DIMS(__VA_ARGS__))

static const tensor *shape(const onnx_graph *x, value_id v) { return &x->g->value[v].t; }

static onnx_name in(const onnx_graph *x, const node *n, int k) { return x->of[n->in[k]]; }

static onnx_name times(onnx_graph *x, onnx_name a, float v)
{
    return v == 1.0f ? a : onnx_binary(x, "Mul", a, onnx_scalar(x, v));
}

static onnx_name softmax(onnx_graph *x, onnx_name a)
{
    onnx_attrs at = { 0 };
    onnx_attr_int(&at, "axis", -1);
    return onnx_node(x, "Softmax", &a, 1, &at);
}

static onnx_name gather(onnx_graph *x, onnx_name a, int64_t index, int64_t axis)
{
    onnx_attrs at = { 0 };
    onnx_attr_int(&at, "axis", axis);
    return onnx_node(x, "Gather", (onnx_name[]){ a, onnx_int64s(x, &index, NULL, 0) }, 2, &at);
}

static onnx_name one_int(onnx_graph *x, int64_t v) { return onnx_int64s(x, &v, (int64_t[]){ 1 }, 1); }

/* One row for each of `like`'s batch: row (1, ...) constant, of `ndim` dimensions. */
static onnx_name for_batch(onnx_graph *x, onnx_name row, onnx_name like, const int64_t *rest, int n)
{
    onnx_attrs at = { 0 };
    onnx_name first = onnx_node(x, "Gather", (onnx_name[]){ onnx_unary(x, "Shape", like), one_int(x, 0) }, 2, NULL);
    onnx_attr_int(&at, "axis", 0);
    onnx_name to = onnx_node(x, "Concat", (onnx_name[]){ first, onnx_int64s(x, rest, (int64_t[]){ n }, 1) }, 2, &at);
    return onnx_binary(x, "Expand", row, to);
}

static onnx_name concat(onnx_graph *x, onnx_name a, onnx_name b, int64_t axis)
{
    onnx_attrs at = { 0 };
    onnx_attr_int(&at, "axis", axis);
    return onnx_node(x, "Concat", (onnx_name[]){ a, b }, 2, &at);
}

/* ---- images -------------------------------------------------------------------------------------- */

/* (O, k, k, C) of the engine as (O, C, k, k). */
static onnx_name conv_weight(onnx_graph *x, value_id v)
{
    const int64_t *d = shape(x, v)->dim, O = d[0], K = d[1] * d[2], C = d[3];
    const float *from = onnx_data(x, v);
    arena scratch = { 0 };
    float *to = arena_push(&scratch, (size_t)(O * K * C) * sizeof *to);
    onnx_name name = { "" };
    for (int64_t o = 0; to && o < O; o++)
        for (int64_t k = 0; k < K; k++)
            for (int64_t c = 0; c < C; c++) to[(o * C + c) * K + k] = from[(o * K + k) * C + c];
    if (to) name = onnx_floats(x, to, (int64_t[]){ O, C, d[1], d[2] }, 4);
    else x->content.failed = true;
    arena_release(&scratch);
    return name;
}

static onnx_name conv2d(onnx_graph *x, const node *n)
{
    onnx_attrs at = { 0 };
    int64_t s = n->attr.stride, p = n->attr.pad;
    onnx_name operand[3] = { in(x, n, 0), conv_weight(x, n->in[1]) };
    bool bias = n->in[2] != NO_VALUE;
    if (bias) operand[2] = onnx_param(x, n->in[2]);
    onnx_attr_ints(&at, "strides", (int64_t[]){ s, s }, 2);
    onnx_attr_ints(&at, "pads", (int64_t[]){ p, p, p, p }, 4);
    onnx_name y = onnx_node(x, "Conv", operand, 2 + bias, &at);
    if (n->in[3] != NO_VALUE) y = onnx_binary(x, "Add", y, in(x, n, 3));
    return n->attr.relu ? onnx_unary(x, "Relu", y) : y;
}

static onnx_name avgpool2(onnx_graph *x, onnx_name a)
{
    onnx_attrs at = { 0 };
    onnx_attr_ints(&at, "kernel_shape", (int64_t[]){ 2, 2 }, 2);
    onnx_attr_ints(&at, "strides", (int64_t[]){ 2, 2 }, 2);
    return onnx_node(x, "AveragePool", &a, 1, &at);
}

/* w2 = w gain / sqrt(var + eps), b2 = bias - mean gain / sqrt(var + eps): known here, so constants. */
static cloob_status fold_bn(onnx_graph *x, const node *n)
{
    const tensor *w = shape(x, n->in[0]);
    const float *part[5];
    int64_t O = w->dim[0], each = tensor_count(w) / O;
    float *w2 = arena_push(&x->memory, (size_t)(O * each) * sizeof *w2),
          *b2 = arena_push(&x->memory, (size_t)O * sizeof *b2);
    if (!w2 || !b2) return ctx_no_memory(x->ctx, (size_t)(O * each) * sizeof *w2, "folded weights");
    for (int k = 0; k < 5; k++) part[k] = onnx_data(x, n->in[k]); /* w, gain, bias, mean, var */
    for (int64_t o = 0; o < O; o++) {
        double f = (double)part[1][o] / sqrt((double)part[4][o] + (double)n->attr.eps);
        for (int64_t i = 0; i < each; i++) w2[o * each + i] = (float)(f * (double)part[0][o * each + i]);
        b2[o] = (float)((double)part[2][o] - f * (double)part[3][o]);
    }
    x->constant[n->out[0]] = w2, x->constant[n->out[1]] = b2;
    return CLOOB_OK;
}

/* Batch norm with running statistics that no convolution took along. */
static onnx_name bn_apply(onnx_graph *x, const node *n)
{
    int i = graph_producer(x->g, n->in[1]);
    const node *running = &x->g->node[i];
    onnx_attrs at = { 0 };
    onnx_attr_float(&at, "epsilon", running->attr.eps);
    onnx_name operand[] = { in(x, n, 0), onnx_param(x, n->in[3]), onnx_param(x, n->in[4]),
                            onnx_param(x, running->in[0]), onnx_param(x, running->in[1]) };
    onnx_name y = onnx_node(x, "BatchNormalization", operand, 5, &at);
    if (n->in[5] != NO_VALUE) y = onnx_binary(x, "Add", y, in(x, n, 5));
    if (n->attr.relu) y = onnx_unary(x, "Relu", y);
    return n->attr.pool ? avgpool2(x, y) : y;
}

/* (N, C, h, w) as (N, h w, C). */
static onnx_name grid(onnx_graph *x, const node *n)
{
    const tensor *t = shape(x, n->in[0]);
    return TRANSPOSE(x, RESHAPE(x, in(x, n, 0), -1, t->dim[3], t->dim[1] * t->dim[2]), 0, 2, 1);
}

static onnx_name class_tokens(onnx_graph *x, const node *n)
{
    int64_t C = shape(x, n->in[0])->dim[3];
    onnx_name t = grid(x, n), cls = onnx_floats(x, onnx_data(x, n->in[1]), (int64_t[]){ 1, 1, C }, 3);
    cls = for_batch(x, cls, t, (int64_t[]){ 1, C }, 2);
    return onnx_binary(x, "Add", concat(x, cls, t, 1), onnx_param(x, n->in[2]));
}

static onnx_name grid_tokens(onnx_graph *x, const node *n)
{
    onnx_name t = grid(x, n);
    if (n->in[1] != NO_VALUE) t = onnx_binary(x, "Add", t, onnx_param(x, n->in[1]));
    return onnx_binary(x, "Add", t, onnx_param(x, n->in[2]));
}

static onnx_name mean_of(onnx_graph *x, onnx_name a, bool keep)
{
    onnx_attrs at = { 0 };
    onnx_attr_ints(&at, "axes", (int64_t[]){ 1 }, 1);
    onnx_attr_int(&at, "keepdims", keep);
    return onnx_node(x, "ReduceMean", &a, 1, &at);
}

static onnx_name mean_tokens(onnx_graph *x, const node *n)
{
    onnx_name t = grid(x, n);
    return onnx_binary(x, "Add", concat(x, mean_of(x, t, true), t, 1), onnx_param(x, n->in[1]));
}

static onnx_name mean_rows(onnx_graph *x, const node *n)
{
    onnx_name a = in(x, n, 0);
    int64_t T = shape(x, n->in[0])->dim[1];
    if (n->attr.rows > 0)
        a = onnx_node(x, "Slice", (onnx_name[]){ a, one_int(x, n->attr.rows), one_int(x, T), one_int(x, 1) }, 4, NULL);
    return mean_of(x, a, false);
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static onnx_name linear(onnx_graph *x, const node *n)
{
    onnx_name w = n->attr.transposed ? onnx_param(x, n->in[1]) : onnx_param_transposed(x, n->in[1]);
    onnx_name y = onnx_binary(x, "MatMul", in(x, n, 0), w);
    if (n->in[2] != NO_VALUE) y = onnx_binary(x, "Add", y, onnx_param(x, n->in[2]));
    return n->in[3] != NO_VALUE ? onnx_binary(x, "Add", y, in(x, n, 3)) : y;
}

static onnx_name activation(onnx_graph *x, const node *n)
{
    onnx_name a = in(x, n, 0);
    if (n->attr.act == OP_ACT_QUICKGELU) return onnx_binary(x, "Mul", a, onnx_unary(x, "Sigmoid", times(x, a, 1.702f)));
    if (n->attr.act == OP_ACT_GELU) {
        onnx_name e = onnx_unary(x, "Erf", times(x, a, 0.70710678118654752f));
        return onnx_binary(x, "Mul", times(x, a, 0.5f), onnx_binary(x, "Add", e, onnx_scalar(x, 1)));
    }
    onnx_name cube = onnx_binary(x, "Mul", onnx_binary(x, "Mul", a, a), times(x, a, 0.044715f));
    onnx_name s = onnx_unary(x, "Sigmoid", times(x, onnx_binary(x, "Add", a, cube), 1.5957691216057308f));
    return onnx_binary(x, "Mul", a, s);
}

static onnx_name layernorm(onnx_graph *x, const node *n)
{
    onnx_attrs at = { 0 };
    onnx_attr_int(&at, "axis", -1);
    onnx_attr_float(&at, "epsilon", n->attr.eps);
    return onnx_node(x, "LayerNormalization",
                     (onnx_name[]){ in(x, n, 0), onnx_param(x, n->in[1]), onnx_param(x, n->in[2]) }, 3, &at);
}

static onnx_name l2norm(onnx_graph *x, onnx_name a)
{
    onnx_attrs at = { 0 };
    onnx_attr_ints(&at, "axes", (int64_t[]){ -1 }, 1);
    onnx_attr_int(&at, "keepdims", 1);
    return onnx_binary(x, "Div", a, onnx_node(x, "ReduceL2", &a, 1, &at));
}

static onnx_name take_rows(onnx_graph *x, const node *n)
{
    onnx_attrs at = { 0 };
    if (n->in[1] == NO_VALUE) return gather(x, in(x, n, 0), 0, 1);
    onnx_attr_int(&at, "batch_dims", 1);
    return onnx_node(x, "GatherND", (onnx_name[]){ in(x, n, 0), RESHAPE(x, in(x, n, 1), -1, 1) }, 2, &at);
}

static onnx_name repeat_row(onnx_graph *x, const node *n)
{
    int64_t C = shape(x, n->in[0])->dim[0];
    onnx_name row = onnx_floats(x, onnx_data(x, n->in[0]), (int64_t[]){ 1, C }, 2);
    return for_batch(x, row, x->of[graph_find(x->g, "images")], &C, 1);
}

/* ---- texts --------------------------------------------------------------------------------------- */

static onnx_name embed(onnx_graph *x, const node *n)
{
    onnx_name rows = onnx_binary(x, "Gather", onnx_param(x, n->in[1]), in(x, n, 0));
    return onnx_binary(x, "Add", rows, onnx_param(x, n->in[2]));
}

static onnx_name argmax(onnx_graph *x, onnx_name a)
{
    onnx_attrs at = { 0 };
    onnx_attr_int(&at, "axis", 1);
    onnx_attr_int(&at, "keepdims", 0);
    return onnx_node(x, "ArgMax", &a, 1, &at);
}

static onnx_name text_position(onnx_graph *x, const node *n)
{
    onnx_attrs at = { 0 };
    if (!n->attr.token) { /* the same place in every text */
        onnx_name none = onnx_binary(x, "Mul", gather(x, in(x, n, 0), 0, 1), one_int(x, 0));
        return onnx_binary(x, "Add", none, one_int(x, n->attr.tokens));
    }
    onnx_attr_int(&at, "to", 1);
    onnx_name hit = onnx_binary(x, "Equal", in(x, n, 0), one_int(x, n->attr.token));
    return argmax(x, onnx_node(x, "Cast", &hit, 1, &at));
}

/* ---- attention ----------------------------------------------------------------------------------- */

static onnx_name causal_mask(onnx_graph *x, int64_t T)
{
    float *m = arena_push(&x->memory, (size_t)(T * T) * sizeof *m);
    for (int64_t i = 0; m && i < T * T; i++) m[i] = i % T > i / T ? -INFINITY : 0;
    x->content.failed |= !m;
    return m ? onnx_floats(x, m, (int64_t[]){ T, T }, 2) : (onnx_name){ "" };
}

static onnx_name attention(onnx_graph *x, const node *n)
{
    int64_t T = shape(x, n->in[0])->dim[1], C = shape(x, n->in[0])->dim[2] / 3, H = n->attr.heads, d = C / H;
    onnx_name all = TRANSPOSE(x, RESHAPE(x, in(x, n, 0), -1, T, 3, H, d), 2, 0, 3, 1, 4);
    onnx_name q = gather(x, all, 0, 0), k = gather(x, all, 1, 0), v = gather(x, all, 2, 0);
    onnx_name s = onnx_binary(x, "MatMul", times(x, q, 1.0f / sqrtf((float)d)), TRANSPOSE(x, k, 0, 1, 3, 2));
    if (n->attr.causal) s = onnx_binary(x, "Add", s, causal_mask(x, T));
    onnx_name y = onnx_binary(x, "MatMul", softmax(x, s), v);
    return RESHAPE(x, TRANSPOSE(x, y, 0, 2, 1, 3), -1, T, C);
}

/* Keys behind the one that index names are not seen; scores of `ndim` dimensions, the first of them the batch. */
static onnx_name hide(onnx_graph *x, onnx_name s, int ndim, onnx_name index, int64_t T)
{
    int64_t *place = arena_push(&x->memory, (size_t)T * sizeof *place);
    x->content.failed |= !place;
    for (int64_t t = 0; place && t < T; t++) place[t] = t;
    if (!place) return s;
    onnx_name last = ndim == 4 ? RESHAPE(x, index, -1, 1, 1, 1) : RESHAPE(x, index, -1, 1, 1);
    onnx_name seen =
        onnx_binary(x, "LessOrEqual", onnx_int64s(x, place, (int64_t[]){ 1, 1, 1, T } + 4 - ndim, ndim), last);
    return onnx_node(x, "Where", (onnx_name[]){ seen, s, onnx_scalar(x, -INFINITY) }, 3, NULL);
}

static onnx_name attention_one(onnx_graph *x, const node *n)
{
    int64_t T = shape(x, n->in[1])->dim[1], C = shape(x, n->in[1])->dim[2] / 2, H = n->attr.heads, d = C / H;
    onnx_name kv = TRANSPOSE(x, RESHAPE(x, in(x, n, 1), -1, T, 2, H, d), 2, 0, 3, 1, 4);
    onnx_name q = RESHAPE(x, times(x, in(x, n, 0), 1.0f / sqrtf((float)d)), -1, H, 1, d);
    onnx_name s = onnx_binary(x, "MatMul", q, TRANSPOSE(x, gather(x, kv, 0, 0), 0, 1, 3, 2));
    if (n->in[2] != NO_VALUE) s = hide(x, s, 4, in(x, n, 2), T);
    return RESHAPE(x, onnx_binary(x, "MatMul", softmax(x, s), gather(x, kv, 1, 0)), -1, C);
}

static onnx_name heads_project(onnx_graph *x, const node *n)
{
    int64_t H = n->attr.heads, He = shape(x, n->in[1])->dim[0], C = shape(x, n->in[1])->dim[1];
    onnx_name a = RESHAPE(x, in(x, n, 0), -1, H, 1, He / H);
    onnx_name w = onnx_floats(x, onnx_data(x, n->in[1]), (int64_t[]){ H, He / H, C }, 3);
    return RESHAPE(x, onnx_binary(x, "MatMul", times(x, a, n->attr.scale), w), -1, H, C);
}

static onnx_name pool_attention(onnx_graph *x, const node *n)
{
    onnx_name t = in(x, n, 0), u = in(x, n, 1);
    onnx_name s = onnx_binary(x, "MatMul", u, TRANSPOSE(x, t, 0, 2, 1));
    if (n->in[2] != NO_VALUE) s = hide(x, s, 3, in(x, n, 2), shape(x, n->in[0])->dim[1]);
    return onnx_binary(x, "MatMul", softmax(x, s), t);
}

static onnx_name heads_collect(onnx_graph *x, const node *n)
{
    int64_t H = n->attr.heads, He = shape(x, n->in[1])->dim[0], C = shape(x, n->in[1])->dim[1];
    onnx_name w = onnx_floats(x, onnx_data(x, n->in[1]), (int64_t[]){ H, He / H, C }, 3);
    onnx_name o = onnx_binary(x, "MatMul", RESHAPE(x, in(x, n, 0), -1, H, 1, C), TRANSPOSE(x, w, 0, 2, 1));
    o = times(x, RESHAPE(x, o, -1, He), n->attr.scale);
    return n->in[2] != NO_VALUE ? onnx_binary(x, "Add", o, onnx_param(x, n->in[2])) : o;
}

/* ---- the table ----------------------------------------------------------------------------------- */

cloob_status onnx_op(onnx_graph *x, const node *n)
{
    onnx_name *out = &x->of[n->out[0]];
    switch (n->op) {
    case OP_COUNT: return CLOOB_OK; /* removed */
    case OP_IMAGE_INPUT: *out = in(x, n, 0); break;
    case OP_EMBED: *out = embed(x, n); break;
    case OP_EOT_INDEX: *out = argmax(x, in(x, n, 0)); break;
    case OP_TEXT_POSITION: *out = text_position(x, n); break;
    case OP_TAKE_ROWS: *out = take_rows(x, n); break;
    case OP_CLASS_TOKENS: *out = class_tokens(x, n); break;
    case OP_GRID_TOKENS: *out = grid_tokens(x, n); break;
    case OP_MEAN_ROWS: *out = mean_rows(x, n); break;
    case OP_REPEAT_ROW: *out = repeat_row(x, n); break;
    case OP_MEAN_TOKENS: *out = mean_tokens(x, n); break;
    case OP_CONV2D: *out = conv2d(x, n); break;
    case OP_BN_RUNNING: break; /* read by those that apply it */
    case OP_BN_APPLY: *out = bn_apply(x, n); break;
    case OP_FOLD_BN: return fold_bn(x, n);
    case OP_RELU: *out = onnx_unary(x, "Relu", in(x, n, 0)); break;
    case OP_AVGPOOL2: *out = avgpool2(x, in(x, n, 0)); break;
    case OP_ADD: *out = onnx_binary(x, "Add", in(x, n, 0), in(x, n, 1)); break;
    case OP_LINEAR: *out = linear(x, n); break;
    case OP_ACT: *out = activation(x, n); break;
    case OP_SCALE: *out = onnx_binary(x, "Mul", in(x, n, 0), onnx_param(x, n->in[1])); break;
    case OP_LAYERNORM: *out = layernorm(x, n); break;
    case OP_L2NORM: *out = l2norm(x, in(x, n, 0)); break;
    case OP_ATTENTION: *out = attention(x, n); break;
    case OP_ATTENTION_ONE: *out = attention_one(x, n); break;
    case OP_HEADS_PROJECT: *out = heads_project(x, n); break;
    case OP_HEADS_COLLECT: *out = heads_collect(x, n); break;
    case OP_POOL_ATTENTION: *out = pool_attention(x, n); break;
    default: return ctx_fail(x->ctx, CLOOB_ERR_UNSUPPORTED, "%s: no ONNX for this op", op_table[n->op].name);
    }
    return CLOOB_OK;
}
