/* The passes that rewrite a list of ops, one rule at a time: what becomes of the nodes, and which neighbours stop a
 * rule. That results do not change is what test_graph (small graphs) and test_towers (whole models) compare. */
#include "check.h"

#include "graph/graph.h"

enum { B = 2, S = 4, C = 8, WIDE = 16 };

static cloob_ctx *ctx;

/* ---- building blocks ----------------------------------------------------------------------------- */

static value_id image(graph *g, const char *name) { return graph_input(g, TENSOR(CLOOB_F32, NULL, B, S, S, C), name); }

static value_id vector(graph *g, int param) { return graph_param(g, param, TENSOR(CLOOB_F32, NULL, C), 0, true); }

static value_id conv(graph *g, value_id x, int param, int k)
{
    value_id w = graph_param(g, param, TENSOR(CLOOB_F32, NULL, C, k, k, C), 0, true);
    return graph_op(g, OP_CONV2D, (op_attr){ .stride = 1, .pad = k / 2 }, 2, (value_id[]){ x, w });
}

static value_id batchnorm(graph *g, value_id x, bool train)
{
    op_attr a = { .eps = 1e-5f, .momentum = 0.1f, .keep_stats = true };
    value_id mean = graph_stat(g, 3, TENSOR(CLOOB_F32, NULL, C)), var = graph_stat(g, 4, TENSOR(CLOOB_F32, NULL, C));
    value_id m = train ? graph_op(g, OP_BN_STATS, a, 3, (value_id[]){ x, mean, var })
                       : graph_op(g, OP_BN_RUNNING, a, 2, (value_id[]){ mean, var });
    return graph_op(g, OP_BN_APPLY, a, 5, (value_id[]){ x, m, graph_output(g, m, 1), vector(g, 1), vector(g, 2) });
}

static value_id add(graph *g, value_id a, value_id b)
{
    return graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ a, b });
}

static value_id one(graph *g, op_id op, value_id x) { return graph_op(g, op, (op_attr){ 0 }, 1, &x); }

static int count(const graph *g, op_id op)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++) n += g->node[i].op == op;
    return n;
}

static const node *find(const graph *g, op_id op)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == op) return &g->node[i];
    return NULL;
}

static int place(const graph *g, op_id op) { return (int)(find(g, op) - g->node); }

/* The first member of a group of exactly these ops in this order; NULL: there is none. */
static const node *find_group(const graph *g, int members, const op_id *op)
{
    for (int i = 0; i + members <= g->nodes; i++) {
        const node *n = &g->node[i];
        int same = 0;
        if (!n->group || (i && n[-1].group == n->group)) continue;
        while (same < members && n[same].group == n->group && n[same].op == op[same]) same++;
        if (same == members && (i + members == g->nodes || n[members].group != n->group)) return n;
    }
    return NULL;
}
#define GROUP(g, ...) find_group(g, sizeof((op_id[]){ __VA_ARGS__ }) / sizeof(op_id), (op_id[]){ __VA_ARGS__ })

/* ---- graph_fuse ---------------------------------------------------------------------------------- */

static void batch_norm_takes_add_relu_and_pool(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id x = image(&g, "x"), r = image(&g, "r");
    value_id y = one(&g, OP_RELU, add(&g, batchnorm(&g, x, true), r));
    graph_keep(&g, y, "y");
    graph_fuse(&g);
    CHECK_OK(ctx, graph_status(&g));
    const node *n = find(&g, OP_BN_APPLY);
    CHECK(count(&g, OP_ADD) == 0 && count(&g, OP_RELU) == 0 && count(&g, OP_BN_APPLY) == 1);
    CHECK(n->in[0] == x && n->in[5] == r && n->attr.relu && !n->attr.pool && n->out[0] == y);
    graph_release(&g);

    graph_init(ctx, &g); /* the residual on the other side, and a pool instead of the add */
    y = add(&g, image(&g, "r"), batchnorm(&g, image(&g, "x"), true));
    value_id z = one(&g, OP_AVGPOOL2, one(&g, OP_RELU, batchnorm(&g, y, true)));
    graph_keep(&g, z, "z");
    graph_fuse(&g);
    CHECK(count(&g, OP_BN_APPLY) == 2 && count(&g, OP_ADD) == 0 && count(&g, OP_AVGPOOL2) == 0);
    n = &g.node[graph_producer(&g, z)];
    CHECK(n->op == OP_BN_APPLY && n->attr.relu && n->attr.pool && n->in[5] == NO_VALUE);
    CHECK(g.node[graph_producer(&g, y)].in[5] == graph_find(&g, "r"));
    graph_release(&g);
}

static void linear_takes_an_add(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id x = graph_input(&g, TENSOR(CLOOB_F32, NULL, B, C), "x");
    value_id w = graph_param(&g, 0, TENSOR(CLOOB_F32, NULL, C, C), 0, true);
    value_id h = graph_op(&g, OP_LINEAR, (op_attr){ 0 }, 3, (value_id[]){ x, w, vector(&g, 1) });
    value_id y = add(&g, x, h);
    graph_keep(&g, y, "y");
    graph_fuse(&g);
    const node *n = find(&g, OP_LINEAR);
    CHECK(count(&g, OP_ADD) == 0 && n->in[3] == x && n->out[0] == y);
    graph_release(&g);
}

/* The host's result is lost by fusion: it must have no other reader and be no output. */
static void results_that_somebody_reads_stay(void)
{
    for (int why = 0; why < 4; why++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = image(&g, "x"), h = batchnorm(&g, x, true);
        if (why == 0) graph_keep(&g, h, "h");
        if (why == 1) graph_keep(&g, one(&g, OP_AVGPOOL2, h), "other reader");
        value_id y = why == 2 ? add(&g, h, h) : why == 3 ? add(&g, one(&g, OP_RELU, h), x) : one(&g, OP_RELU, h);
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = find(&g, OP_BN_APPLY);
        CHECK(n && n->in[5] == NO_VALUE && n->attr.relu == (why == 3)); /* 3: relu fused, so the add may not be */
        CHECK(graph_producer(&g, y) >= 0 && (why == 3 || graph_producer(&g, h) >= 0));
        CHECK(count(&g, OP_ADD) == (why >= 2));
        graph_release(&g);
    }
}

/* ---- graph_fold_batchnorm ------------------------------------------------------------------------- */

static void fixed_statistics_go_into_the_convolution(void)
{
    for (int train = 0; train < 2; train++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = image(&g, "x"), y = one(&g, OP_RELU, add(&g, batchnorm(&g, conv(&g, x, 0, 3), train), x));
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        graph_fold_batchnorm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = find(&g, OP_CONV2D), *fold = find(&g, OP_FOLD_BN);
        if (train) CHECK(count(&g, OP_BN_APPLY) == 1 && !fold); /* statistics of the batch: not known before it */
        else
            CHECK(count(&g, OP_BN_APPLY) == 0 && count(&g, OP_BN_RUNNING) == 0 && fold && n->in[1] == fold->out[0] &&
                  n->in[2] == fold->out[1] && n->in[3] == x && n->attr.relu && n->out[0] == y);
        graph_release(&g);
    }
}

/* ---- fused matrix multiplications ---------------------------------------------------------------- */

/* 1 x 1 convolutions, and 3 x 3 ones of at most 80 channels. */
static void statistics_join_convolutions(void)
{
    for (int way = 0; way < 3; way++) {
        graph g;
        graph_init(ctx, &g);
        int64_t k = way ? 3 : 1, channels = way == 2 ? 88 : C;
        value_id x = graph_input(&g, TENSOR(CLOOB_F32, NULL, B, S, S, channels), "x");
        value_id w = graph_param(&g, 0, TENSOR(CLOOB_F32, NULL, C, k, k, channels), 0, true);
        op_attr attr = { .stride = way == 1 ? 2 : 1, .pad = k / 2 };
        value_id h = graph_op(&g, OP_CONV2D, attr, 2, (value_id[]){ x, w }), y = batchnorm(&g, h, true);
        graph_keep(&g, y, "y");
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_CONV2D, OP_BN_STATS);
        CHECK((n != NULL) == (way < 2) && g.groups == (way < 2));
        if (n) CHECK(n->in[0] == x && n->out[0] == h && n[1].in[0] == h && n[1].out[0] == find(&g, OP_BN_APPLY)->in[1]);
        graph_release(&g);
    }
}

/* Bytes go into the first convolution and its weight gradient, floats do not. */
static void images_join_the_first_convolution(void)
{
    for (int bytes = 0; bytes < 2; bytes++) {
        graph g;
        graph_init(ctx, &g);
        tensor floats = TENSOR(CLOOB_F32, NULL, B, 3, S, S), pixels = TENSOR(CLOOB_U8, NULL, B, S, S, 3);
        value_id images = graph_input(&g, bytes ? pixels : floats, "images");
        op_attr attr = { .channels = C, .dtype = CLOOB_F32, .mean = { 1, 2, 3 }, .std = { 4, 5, 6 } };
        value_id x = graph_op(&g, OP_IMAGE_INPUT, attr, 1, &images), y = batchnorm(&g, conv(&g, x, 0, 3), true);
        graph_keep(&g, y, "y");
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = true });
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_IMAGE_INPUT, OP_CONV2D, OP_BN_STATS);
        const node *dw = GROUP(&g, OP_IMAGE_INPUT, OP_CONV2D_DW);
        CHECK((n != NULL) == bytes && (dw != NULL) == bytes && count(&g, OP_IMAGE_INPUT) == 2);
        if (n) CHECK(n->in[0] == images && n->out[0] == x && n[1].in[0] == x);
        if (dw) CHECK(dw->in[0] == images && dw->out[0] != x && dw[1].in[1] == dw->out[0]);
        graph_release(&g);
    }
}

/* Two bottleneck-like branches from one batch norm: its reduction takes the gradient of one with it. */
static void the_reduction_joins_a_gradient(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id x = image(&g, "x"), h = one(&g, OP_RELU, add(&g, batchnorm(&g, conv(&g, x, 0, 1), true), x));
    value_id y = add(&g, conv(&g, h, 5, 1), h);
    graph_keep(&g, y, "y");
    graph_fuse(&g);
    graph_differentiate(&g, y, NULL);
    CHECK_OK(ctx, graph_status(&g));
    CHECK(count(&g, OP_BN_BWD_REDUCE) == 1 && count(&g, OP_CONV2D_DX) >= 1);
    graph_fuse_gemm(&g);
    const node *n = GROUP(&g, OP_CONV2D_DW, OP_CONV2D_DX, OP_BN_BWD_REDUCE);
    CHECK(n != NULL);
    if (n) CHECK(n[2].in[0] == n[1].out[0] || n[2].in[1] == n[1].out[0]);
    if (n) CHECK(n->in[0] == n[1].in[0] && n->in[1] == n[2].in[7]);
    graph_release(&g);
}

/* The end of a bottleneck block in bf16: 3 x 3, batch norm, relu, perhaps a pool, 1 x 1 to `wide` channels, batch
 * norm. */
static value_id block_end(graph *g, value_id x, int64_t wide, bool trainable, bool pool)
{
    op_attr a = { .stride = 1, .eps = 1e-5f, .momentum = 0.1f, .keep_stats = true };
    for (int i = 0; i < 2; i++) {
        int64_t in = g->value[x].t.dim[3], out = i ? wide : in, k = i ? 1 : 3;
        value_id v[4], w = graph_param(g, 10 * i, TENSOR(CLOOB_BF16, NULL, out, k, k, in), 0, i == 0 || trainable);
        for (int n = 0; n < 4; n++)
            v[n] = n < 2 ? graph_stat(g, 10 * i + 1 + n, TENSOR(CLOOB_F32, NULL, out))
                         : graph_param(g, 10 * i + 1 + n, TENSOR(CLOOB_F32, NULL, out), 0, true);
        a.pad = k / 2;
        x = graph_op(g, OP_CONV2D, a, 2, (value_id[]){ x, w });
        value_id mean = graph_op(g, OP_BN_STATS, a, 3, (value_id[]){ x, v[0], v[1] });
        x = graph_op(g, OP_BN_APPLY, (op_attr){ 0 }, 5, (value_id[]){ x, mean, graph_output(g, mean, 1), v[2], v[3] });
        if (i == 0) x = one(g, OP_RELU, x);
        if (i == 0 && pool) x = one(g, OP_AVGPOOL2, x);
    }
    return x;
}

/* The weight's gradient, where it is wanted, goes with the gradient that the reduction took along. */
static void the_first_weight_gradient_joins_too(void)
{
    enum { wide = 256 };
    for (int trainable = 0; trainable < 2; trainable++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = graph_input(&g, TENSOR(CLOOB_BF16, NULL, B, S, S, 64), "x"),
                 r = graph_input(&g, TENSOR(CLOOB_BF16, NULL, B, S, S, wide), "r");
        value_id h = one(&g, OP_RELU, add(&g, block_end(&g, x, wide, true, false), r));
        value_id w = graph_param(&g, 20, TENSOR(CLOOB_BF16, NULL, 64, 1, 1, wide), 0, trainable);
        value_id back = graph_param(&g, 21, TENSOR(CLOOB_BF16, NULL, wide, 1, 1, 64), 0, true);
        value_id y = graph_op(&g, OP_CONV2D, (op_attr){ .stride = 1 }, 2, (value_id[]){ h, w });
        y = add(&g, graph_op(&g, OP_CONV2D, (op_attr){ .stride = 1 }, 2, (value_id[]){ y, back }), h);
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = true });
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_CONV2D_DW, OP_CONV2D_DX, OP_BN_BWD_REDUCE);
        CHECK((n != NULL) == trainable && (GROUP(&g, OP_CONV2D_DX, OP_BN_BWD_REDUCE) != NULL) == !trainable);
        if (n) CHECK(g.value[n->out[0]].param == 20 && n->in[1] == h);
        graph_release(&g);
    }
}

/* A downsampling shortcut, a pool before its convolution: the reduction reads its gradient as the pool's backward pass
 * would and pools y for the weight's gradient, which comes behind it, unless sides are odd, somebody else wants what
 * the pool's backward pass makes, or there are no tiles for such lines. */
static void the_reduction_spreads_a_pooled_gradient(void)
{
    enum { wide = 64, EVEN = 0, ODD, KEPT, NO_TILES, WAYS };
    for (int way = EVEN; way < WAYS; way++) {
        graph g;
        graph_init(ctx, &g);
        int64_t H = way == ODD ? 5 : 4, W = way == NO_TILES ? 34 : 6;
        value_id x = graph_input(&g, TENSOR(CLOOB_BF16, NULL, B, H, W, 16), "x"),
                 r = graph_input(&g, TENSOR(CLOOB_BF16, NULL, B, H, W, wide), "r"), w[2];
        value_id h = one(&g, OP_RELU, add(&g, block_end(&g, x, wide, true, false), r));
        for (int k = 0; k < 2; k++) w[k] = graph_param(&g, 20 + k, TENSOR(CLOOB_BF16, NULL, 16, 1, 1, wide), 0, true);
        value_id first = graph_op(&g, OP_CONV2D, (op_attr){ .stride = 1 }, 2, (value_id[]){ h, w[0] });
        value_id shortcut =
            graph_op(&g, OP_CONV2D, (op_attr){ .stride = 1 }, 2, (value_id[]){ one(&g, OP_AVGPOOL2, h), w[1] });
        value_id y = add(&g, one(&g, OP_AVGPOOL2, first), shortcut);
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = true });
        const node *pool = NULL;
        for (int i = 0; i < g.nodes; i++)
            if (g.node[i].op == OP_AVGPOOL2_BWD && g.value[g.node[i].out[0]].t.dim[3] == wide) pool = &g.node[i];
        value_id spread = pool ? pool->out[0] : NO_VALUE;
        if (way == KEPT) graph_keep(&g, spread, "dh");
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_AVGPOOL2, OP_CONV2D_DW, OP_AVGPOOL2_BWD, OP_CONV2D_DX, OP_BN_BWD_REDUCE);
        const node *apart = GROUP(&g, OP_CONV2D_DW, OP_CONV2D_DX, OP_BN_BWD_REDUCE);
        CHECK((n != NULL) == (way == EVEN) && (apart != NULL) == (way != EVEN));
        if (n) CHECK(n->in[0] == n[4].in[7] && n[2].out[0] == spread);
        if (n) CHECK(n[4].in[0] == spread || n[4].in[1] == spread);
        for (int i = 0; i < g.nodes && n; i++)
            if (g.node[i].op == OP_CONV2D_DW && g.value[g.node[i].out[0]].param == 21)
                CHECK(g.node[i].in[1] == n->out[0] && &g.node[i] > n);
        graph_release(&g);
    }
}

/* Batch norm and relu go into the 1 x 1 convolution that reads them, unless there is a pool between. */
static void batch_norm_joins_the_convolution_behind_it(void)
{
    for (int pool = 0; pool < 2; pool++)
        for (int others = 0; others < 2; others++) {
            graph g;
            graph_init(ctx, &g);
            value_id x = image(&g, "x"), r = image(&g, "r"), h = one(&g, OP_RELU, add(&g, batchnorm(&g, x, true), r));
            value_id between = pool ? one(&g, OP_AVGPOOL2, h) : h, c = conv(&g, between, 0, 1);
            graph_keep(&g, batchnorm(&g, c, true), "y");
            if (others) graph_keep(&g, h, "h");
            graph_fuse(&g);
            graph_fuse_gemm(&g);
            CHECK_OK(ctx, graph_status(&g));
            const node *n = GROUP(&g, OP_BN_APPLY, OP_CONV2D, OP_BN_STATS);
            CHECK((n != NULL) == !pool && (GROUP(&g, OP_CONV2D, OP_BN_STATS) != NULL) == pool);
            if (n) CHECK(n->in[0] == x && n->in[5] == r && n->out[0] == h && n->attr.relu && n[1].out[0] == c);
            graph_release(&g);
        }
}

/* A bias in front of an activation is added there, forward and backward, unless somebody else reads the GEMM's
 * result. */
static void the_activation_adds_the_bias(void)
{
    for (int why = 0; why < 3; why++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = graph_input(&g, TENSOR(CLOOB_F32, NULL, 6, 8), "x");
        value_id w = graph_param(&g, 0, TENSOR(CLOOB_F32, NULL, 16, 8), 0, true);
        value_id bias = graph_param(&g, 1, TENSOR(CLOOB_F32, NULL, 16), 0, true);
        value_id h = graph_op(&g, OP_LINEAR, (op_attr){ 0 }, 3, (value_id[]){ x, w, bias }), y = one(&g, OP_ACT, h);
        if (why == 1) graph_keep(&g, h, "h");
        if (why == 2) y = add(&g, y, h);
        graph_keep(&g, y, "y");
        graph_differentiate(&g, y, NULL);
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        value_id moved = why == 0 ? bias : NO_VALUE, stays = why == 0 ? NO_VALUE : bias;
        CHECK(find(&g, OP_LINEAR)->in[2] == stays && find(&g, OP_ACT)->in[1] == moved);
        CHECK(find(&g, OP_ACT_BWD)->in[2] == moved && find(&g, OP_ACT_BWD)->in[1] == h);
        graph_release(&g);
    }
}

/* A transformer's MLP with biases, W to O columns and back. */
static value_id whole_mlp(graph *g, cloob_dtype type, int64_t W, int64_t O, op_fp8 fp8, bool keep)
{
    op_attr linear = { .fp8 = fp8 }, act = { .act = OP_ACT_GELU };
    value_id x = graph_input(g, TENSOR(type, NULL, 6, W), "x"), v[4];
    for (int i = 0; i < 2; i++) {
        v[2 * i] = graph_param(g, 2 * i, TENSOR(type, NULL, i ? W : O, i ? O : W), 0, true);
        v[2 * i + 1] = graph_param(g, 2 * i + 1, TENSOR(type, NULL, i ? W : O), 0, true);
    }
    value_id first = graph_param(g, 4, TENSOR(type, NULL, W, W), 0, true); /* so that x's gradient is wanted */
    x = graph_op(g, OP_LINEAR, linear, 2, (value_id[]){ x, first });
    value_id pre = graph_op(g, OP_LINEAR, linear, 3, (value_id[]){ x, v[0], v[1] });
    value_id y = graph_op(g, OP_LINEAR, linear, 3, (value_id[]){ graph_op(g, OP_ACT, act, 1, &pre), v[2], v[3] });
    if (keep) graph_keep(g, pre, "pre");
    graph_keep(g, y, "y");
    return y;
}

/* What the fused ops read and write: bias and pre of the same layer, the sums that are the bias's gradient. */
static void check_mlp(const graph *g, bool recompute)
{
    const node *n = GROUP(g, OP_LINEAR, OP_ACT), *d = GROUP(g, OP_LINEAR_DX, OP_ACT_BWD);
    value_id bias = n[1].in[1];
    CHECK(g->value[n->in[1]].param == 0 && g->value[bias].param == 1 && g->value[d->in[1]].param == 2);
    CHECK(n[1].in[0] == n->out[0] && d[1].in[0] == d->out[0] && d[1].attr.sums);
    CHECK(n->out[0] == d[1].in[1] && d[1].in[2] == bias && (d[1].out[1] != NO_VALUE) == recompute);
    CHECK(g->value[d[1].out[2]].kind == VALUE_GRAD && g->value[d[1].out[2]].param == 1);
    for (int i = 0; i < g->nodes; i++) { /* the second weight's gradient reads the activation once it is there */
        const node *dw = &g->node[i];
        if (dw->op != OP_LINEAR_DW || g->value[dw->out[0]].param != 2) continue;
        CHECK(dw->in[1] == (recompute ? d[1].out[1] : n[1].out[0]));
        CHECK((i > place(g, OP_ACT_BWD)) == recompute);
    }
}

/* The MLP's GEMMs take the activation along, forward and backward, in bf16 and at widths that their kernels know. */
static void the_mlp_fuses_its_activation(void)
{
    enum { PLAIN, RECOMPUTE, F32, FP8, NARROW, KEPT, WAYS };
    for (int way = 0; way < WAYS; way++) {
        graph g;
        graph_init(ctx, &g);
        value_id y = whole_mlp(&g, way == F32 ? CLOOB_F32 : CLOOB_BF16, 64, way == NARROW ? 192 : 256,
                               way == FP8 ? OP_FP8_ALWAYS : OP_FP8_NEVER, way == KEPT);
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = way == RECOMPUTE });
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        bool forward = way < F32, backward = way < F32 || way == KEPT;
        CHECK((GROUP(&g, OP_LINEAR, OP_ACT) != NULL) == forward && g.groups == forward + backward);
        CHECK((GROUP(&g, OP_LINEAR_DX, OP_ACT_BWD) != NULL) == backward);
        if (forward) check_mlp(&g, way == RECOMPUTE);
        graph_release(&g);
    }
}

/* The same for the 3 x 3 convolutions of a stem, where nobody else reads the result. */
static void batch_norm_joins_a_stem_convolution_behind_it(void)
{
    for (int others = 0; others < 2; others++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = image(&g, "x"), h = one(&g, OP_RELU, batchnorm(&g, x, true)), c = conv(&g, h, 0, 3);
        graph_keep(&g, batchnorm(&g, c, true), "y");
        if (others) graph_keep(&g, h, "h");
        graph_fuse(&g);
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_BN_APPLY, OP_CONV2D, OP_BN_STATS);
        CHECK((n != NULL) == !others && (GROUP(&g, OP_CONV2D, OP_BN_STATS) != NULL) == others);
        if (n) CHECK(n->in[0] == x && n->out[0] == h && n[1].in[0] == h && n[1].out[0] == c);
        graph_release(&g);
    }
}

/* The first convolution's weight gradient begins with bytes. */
static void the_first_weight_gradient_reads_bytes(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id images = graph_input(&g, TENSOR(CLOOB_U8, NULL, B, S, S, 3), "images");
    op_attr attr = { .channels = C, .dtype = CLOOB_F32, .mean = { 1, 2, 3 }, .std = { 4, 5, 6 } };
    value_id c1 = conv(&g, graph_op(&g, OP_IMAGE_INPUT, attr, 1, &images), 0, 3);
    value_id c2 = conv(&g, one(&g, OP_RELU, batchnorm(&g, c1, true)), 5, 3), y = batchnorm(&g, c2, true);
    graph_keep(&g, y, "y");
    graph_fuse(&g);
    graph_differentiate(&g, y, &(graph_grad_options){ .recompute = true });
    CHECK_OK(ctx, graph_status(&g));
    graph_fuse_gemm(&g);
    CHECK_OK(ctx, graph_status(&g));
    const node *n = GROUP(&g, OP_IMAGE_INPUT, OP_CONV2D_DW);
    CHECK(n && n->in[0] == images && n[1].in[1] == n->out[0]);
    graph_release(&g);
}

/* A shortcut that is batch norm alone is applied along with the block's own, unless somebody else reads it. */
static void batch_norm_takes_the_shortcut_with_it(void)
{
    for (int others = 0; others < 2; others++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = image(&g, "x"), r = image(&g, "r"), skip = batchnorm(&g, r, true);
        value_id y = one(&g, OP_RELU, add(&g, batchnorm(&g, x, true), skip));
        graph_keep(&g, y, "y");
        if (others) graph_keep(&g, skip, "skip");
        graph_fuse(&g);
        graph_fuse_gemm(&g);
        CHECK_OK(ctx, graph_status(&g));
        const node *n = GROUP(&g, OP_BN_APPLY, OP_BN_APPLY);
        CHECK((n != NULL) == !others && g.groups == !others);
        if (n) CHECK(n->in[0] == r && n->out[0] == skip && n[1].in[0] == x && n[1].in[5] == skip && n[1].out[0] == y);
        graph_release(&g);
    }
}

static void the_backward_apply_joins_the_gradient_before_it(void)
{
    for (int relu = 0; relu < 2; relu++) {
        graph g;
        graph_init(ctx, &g);
        value_id x = conv(&g, image(&g, "x"), 6, 3), h = batchnorm(&g, conv(&g, x, 0, 1), true);
        value_id y = relu ? one(&g, OP_RELU, h) : h;
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        graph_differentiate(&g, y, NULL);
        CHECK_OK(ctx, graph_status(&g));
        CHECK(count(&g, OP_BN_BWD_APPLY) == 1 && count(&g, OP_CONV2D_DX) == 1);
        value_id dx = find(&g, OP_CONV2D_DX)->out[0], made = find(&g, OP_BN_BWD_APPLY)->out[0];
        graph_fuse_gemm(&g);
        const node *n = GROUP(&g, OP_BN_BWD_APPLY, OP_CONV2D_DX);
        CHECK((n != NULL) == !relu);
        if (n) CHECK(n->out[0] == made && n[1].in[0] == made && n[1].out[0] == dx);
        graph_release(&g);
    }
}

/* The gradient of the last weight joins that of its x, and the activation it saw is not written for it any more: it is
 * made from x again. Then nothing is left of the reduction before it but its sums, which join, too. */
static void the_last_weight_gradient_joins_too(void)
{
    /* as it should be; another width; a frozen weight; behind a pool; the widths of RN50x4 */
    for (int kind = 0; kind < 5; kind++) {
        bool joins = kind == 0 || kind >= 3;
        int narrow = kind == 4 ? 80 : 64;
        graph g;
        graph_init(ctx, &g);
        value_id y = block_end(&g, graph_input(&g, TENSOR(CLOOB_BF16, NULL, B, S, S, narrow), "x"),
                               kind == 1 ? 128 : 4 * narrow, kind != 2, kind == 3);
        graph_keep(&g, y, "y");
        graph_fuse(&g);
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = true });
        CHECK_OK(ctx, graph_status(&g));
        const node *reduce = NULL;
        int weights = count(&g, OP_CONV2D_DW);
        for (int i = 0; i < g.nodes; i++)
            if (g.node[i].op == OP_BN_BWD_REDUCE && g.node[i].attr.relu) reduce = &g.node[i];
        CHECK(weights == (kind == 2 ? 1 : 2) && reduce && (reduce->out[4] == NO_VALUE) == (kind == 2));
        value_id a2 = reduce->out[4], x2 = reduce->in[2], bias = reduce->in[6], sums = reduce->out[2];
        graph_fuse_gemm(&g);
        const node *n = kind == 3 ? GROUP(&g, OP_BN_BWD_APPLY, OP_CONV2D_DX, OP_CONV2D_DW)
                        : joins ? GROUP(&g, OP_BN_BWD_APPLY, OP_CONV2D_DX, OP_BN_APPLY, OP_BN_BWD_REDUCE, OP_CONV2D_DW)
                                : GROUP(&g, OP_BN_BWD_APPLY, OP_CONV2D_DX);
        CHECK(n != NULL && count(&g, OP_CONV2D_DW) == weights);
        for (int i = 0; i < g.nodes && joins; i++)
            CHECK(g.node[i].op != OP_BN_BWD_REDUCE || g.node[i].out[4] == NO_VALUE);
        if (n && joins) {
            const node *dw = &n[kind == 3 ? 2 : 4], *apply = &n[kind == 3 ? -1 : 2]; /* pooled: by a pass before */
            CHECK(g.value[dw->out[0]].kind == VALUE_GRAD && g.value[dw->out[0]].param == 10);
            CHECK(dw->in[0] == n->out[0] && dw->in[1] == a2);
            CHECK(apply->op == OP_BN_APPLY && apply->in[0] == x2 && apply->in[4] == bias && apply->out[0] == a2 &&
                  apply->attr.pool == (kind == 3) && apply->attr.relu);
        }
        if (n && joins && kind != 3) CHECK(n[3].out[2] == sums && n[3].in[0] == n[1].out[0]);
        graph_release(&g);
    }
}

/* ---- recomputation ------------------------------------------------------------------------------- */

static void mlp(graph *g, value_id *y)
{
    value_id x = graph_input(g, TENSOR(CLOOB_F32, NULL, B, C), "x");
    value_id w1 = graph_param(g, 0, TENSOR(CLOOB_F32, NULL, WIDE, C), 0, true);
    value_id w2 = graph_param(g, 5, TENSOR(CLOOB_F32, NULL, C, WIDE), 0, true);
    value_id n = graph_op(g, OP_LAYERNORM, (op_attr){ .eps = 1e-5f }, 3, (value_id[]){ x, vector(g, 1), vector(g, 2) });
    value_id h = graph_op(g, OP_LINEAR, (op_attr){ 0 }, 2, (value_id[]){ n, w1 });
    *y = graph_op(g, OP_LINEAR, (op_attr){ 0 }, 2, (value_id[]){ one(g, OP_ACT, h), w2 });
    graph_keep(g, *y, "y");
}

/* Whether a node of the backward pass reads a result of the forward op: then it is kept in memory until there. */
static bool kept_for_backward(const graph *g, op_id op)
{
    value_id v = NO_VALUE;
    for (int i = 0; i < g->forward_nodes; i++)
        if (g->node[i].op == op) v = g->node[i].out[0];
    for (int i = g->forward_nodes; i < g->nodes; i++)
        for (int k = 0; k < OP_INPUTS && g->node[i].op != OP_COUNT; k++)
            if (g->node[i].in[k] == v && !op_lends_shape(g->node[i].op, k)) return true;
    return false;
}

static void cheap_results_are_recomputed_by_their_own_backward(void)
{
    for (int recompute = 0; recompute < 2; recompute++) {
        graph g;
        value_id y;
        graph_init(ctx, &g);
        mlp(&g, &y);
        graph_differentiate(&g, y, &(graph_grad_options){ .recompute = recompute });
        CHECK_OK(ctx, graph_status(&g));
        CHECK(kept_for_backward(&g, OP_ACT) == !recompute && kept_for_backward(&g, OP_LAYERNORM) == !recompute);
        /* once in the forward pass; the second time on the side of the backward op, which reads x anyway */
        CHECK(count(&g, OP_ACT) == 1 && count(&g, OP_LAYERNORM) <= 2);
        const node *act = find(&g, OP_ACT_BWD);
        CHECK((act->out[1] != NO_VALUE) == recompute);
        if (recompute) /* the weight's gradient reads what the backward op wrote, so it stands behind it */
            for (int i = 0; i < g.nodes; i++)
                if (g.node[i].op == OP_LINEAR_DW && g.node[i].in[1] == act->out[1]) CHECK(i > place(&g, OP_ACT_BWD));
        graph_release(&g);
    }
}

static void checkpoints_repeat_whole_segments(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id x = graph_input(&g, TENSOR(CLOOB_F32, NULL, B, C), "x"), h = x;
    for (int layer = 0; layer < 3; layer++) {
        graph_segment(&g);
        value_id w = graph_param(&g, 10 + layer, TENSOR(CLOOB_F32, NULL, C, C), 0, true);
        h = one(&g, OP_ACT, graph_op(&g, OP_LINEAR, (op_attr){ 0 }, 2, (value_id[]){ h, w }));
    }
    graph_keep(&g, h, "y");
    int forward = g.nodes, linears = count(&g, OP_LINEAR);
    graph_differentiate(&g, h, &(graph_grad_options){ .checkpoint = true });
    CHECK_OK(ctx, graph_status(&g));
    CHECK(g.forward_nodes == forward && count(&g, OP_LINEAR) > linears && count(&g, OP_LINEAR_DW) == 3);
    CHECK(!kept_for_backward(&g, OP_LINEAR) || count(&g, OP_LINEAR) >= 2 * linears - 1); /* the last may stay */
    graph_release(&g);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(batch_norm_takes_add_relu_and_pool);
    RUN(linear_takes_an_add);
    RUN(results_that_somebody_reads_stay);
    RUN(fixed_statistics_go_into_the_convolution);
    RUN(statistics_join_convolutions);
    RUN(images_join_the_first_convolution);
    RUN(the_reduction_joins_a_gradient);
    RUN(the_first_weight_gradient_joins_too);
    RUN(the_reduction_spreads_a_pooled_gradient);
    RUN(batch_norm_joins_the_convolution_behind_it);
    RUN(the_activation_adds_the_bias);
    RUN(the_mlp_fuses_its_activation);
    RUN(batch_norm_joins_a_stem_convolution_behind_it);
    RUN(the_first_weight_gradient_reads_bytes);
    RUN(batch_norm_takes_the_shortcut_with_it);
    RUN(the_backward_apply_joins_the_gradient_before_it);
    RUN(the_last_weight_gradient_joins_too);
    RUN(cheap_results_are_recomputed_by_their_own_backward);
    RUN(checkpoints_repeat_whole_segments);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
