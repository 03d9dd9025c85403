/* The planner and the passes: nothing overlaps, fusion and folding change nothing but the number of ops. */
#include "check.h"

#include "core/rng.h"
#include "graph/exec.h"
#include "graph/graph.h"

static cloob_ctx *ctx;

static void values_alive_together_never_overlap(void)
{
    enum { N = 300, NODES = 100 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        plan_item item[N];
        size_t bytes;
        uint64_t key = rng_key(seed, "plan");
        for (int i = 0; i < N; i++) {
            int first = (int)rng_below(key, (uint64_t)(3 * i), NODES),
                last = first + (int)rng_below(key, (uint64_t)(3 * i + 1), 12);
            item[i] = (plan_item){ .bytes = (size_t)rng_below(key, (uint64_t)(3 * i + 2), 5000),
                                   .first = first,
                                   .last = last };
        }
        CHECK_OK(ctx, plan_offsets(ctx, item, N, &bytes));
        for (int i = 0; i < N; i++)
            for (int j = 0; j < i; j++) {
                bool in_time = item[i].first <= item[j].last && item[j].first <= item[i].last;
                bool in_space =
                    item[i].offset < item[j].offset + item[j].bytes && item[j].offset < item[i].offset + item[i].bytes;
                if (in_time && in_space && item[i].bytes && item[j].bytes) CHECK(!"overlap");
            }
        size_t least = plan_lower_bound(item, N, NODES + 12);
        CHECK(bytes >= least && bytes < 2 * least);
    }
}

/* ---- a small tower: conv, batch norm, add, relu, pool -------------------------------------------- */

enum { B = 2, S = 8, C = 32 };

typedef struct weights_of {
    float w[C * 9 * C], gain[C], bias[C], mean[C], var[C], dw[C * 9 * C], dgain[C], dbias[C];
} weights_of;

static void build(graph *g, bool residual, bool train, bool backward)
{
    graph_init(ctx, g);
    value_id x = graph_input(g, TENSOR(CLOOB_F32, NULL, B, S, S, C), "x");
    value_id w = graph_param(g, 0, TENSOR(CLOOB_F32, NULL, C, 3, 3, C), 0, backward);
    value_id gain = graph_param(g, 1, TENSOR(CLOOB_F32, NULL, C), 0, backward),
             bias = graph_param(g, 2, TENSOR(CLOOB_F32, NULL, C), 0, backward);
    value_id mean = graph_stat(g, 3, TENSOR(CLOOB_F32, NULL, C)), var = graph_stat(g, 4, TENSOR(CLOOB_F32, NULL, C));
    value_id h = graph_op(g, OP_CONV2D, (op_attr){ .stride = 1, .pad = 1 }, 2, (value_id[]){ x, w });
    op_attr bn = { .eps = 1e-5f, .momentum = 0.1f, .keep_stats = true };
    value_id m = train ? graph_op(g, OP_BN_STATS, bn, 3, (value_id[]){ h, mean, var })
                       : graph_op(g, OP_BN_RUNNING, bn, 2, (value_id[]){ mean, var });
    h = graph_op(g, OP_BN_APPLY, bn, 5, (value_id[]){ h, m, graph_output(g, m, 1), gain, bias });
    if (residual) h = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ h, x });
    h = graph_op(g, OP_RELU, (op_attr){ 0 }, 1, &h);
    if (!residual) h = graph_op(g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &h);
    graph_keep(g, h, "y");
}

static int count_nodes(const graph *g)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++) n += g->node[i].op != OP_COUNT;
    return n;
}

static int run_graph(graph *g, weights_of *p, bool backward, float *y)
{
    device *dev;
    exec *e;
    tensor t[5] = { TENSOR(CLOOB_F32, p->w, C, 3, 3, C), TENSOR(CLOOB_F32, p->gain, C), TENSOR(CLOOB_F32, p->bias, C),
                    TENSOR(CLOOB_F32, p->mean, C), TENSOR(CLOOB_F32, p->var, C) };
    tensor d[5] = { TENSOR(CLOOB_F32, p->dw, C, 3, 3, C), TENSOR(CLOOB_F32, p->dgain, C),
                    TENSOR(CLOOB_F32, p->dbias, C) };
    exec_bindings b = { .param = t, .master = t, .grad = d };
    CHECK_OK(ctx, graph_status(g));
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    CHECK_OK(ctx, exec_create(ctx, g, dev, &b, &e));
    float *x = exec_tensor(e, "x")->data;
    for (int i = 0; i < B * S * S * C; i++) x[i] = (float)rng_normal(5, (uint64_t)i);
    CHECK_OK(ctx, exec_forward(e));
    const tensor *out = exec_tensor(e, "y");
    memcpy(y, out->data, tensor_bytes(out));
    if (backward) {
        float *dy = exec_tensor(e, "doutput")->data;
        for (int64_t i = 0; i < tensor_count(out); i++) dy[i] = (float)rng_normal(6, (uint64_t)i);
        CHECK_OK(ctx, exec_backward(e));
    }
    exec_destroy(e);
    device_close(dev);
    int nodes = count_nodes(g);
    graph_release(g);
    return nodes;
}

static void fill(weights_of *p)
{
    for (int i = 0; i < C * 9 * C; i++) p->w[i] = 0.1f * (float)rng_normal(1, (uint64_t)i);
    for (int i = 0; i < C; i++)
        p->gain[i] = 1 + 0.1f * (float)i, p->bias[i] = 0.05f * (float)i, p->mean[i] = 0.02f * (float)i,
        p->var[i] = 1 + 0.1f * (float)i;
}

static void fusion_changes_only_the_number_of_ops(void)
{
    for (int residual = 0; residual < 2; residual++) {
        static weights_of plain, fused;
        float y0[B * S * S * C], y1[B * S * S * C];
        graph g;
        fill(&plain), fill(&fused);
        build(&g, residual, true, true);
        graph_differentiate(&g, graph_find(&g, "y"), NULL);
        int before = run_graph(&g, &plain, true, y0);
        build(&g, residual, true, true);
        graph_fuse(&g);
        graph_differentiate(&g, graph_find(&g, "y"), NULL);
        int after = run_graph(&g, &fused, true, y1);
        CHECK(after < before);
        CHECK(relative_error(y1, y0, residual ? B * S * S * C : B * S * S * C / 4, 1e-6) < 1e-5);
        CHECK(relative_error(fused.dw, plain.dw, C * 9 * C, 1e-6) < 1e-5);
        CHECK(relative_error(fused.dgain, plain.dgain, C, 1e-6) < 1e-5 &&
              relative_error(fused.dbias, plain.dbias, C, 1e-6) < 1e-5);
    }
}

static void folding_batchnorm_changes_nothing(void)
{
    static weights_of p;
    float y0[B * S * S * C], y1[B * S * S * C];
    graph g;
    fill(&p);
    build(&g, true, false, false);
    int before = run_graph(&g, &p, false, y0);
    build(&g, true, false, false);
    graph_fuse(&g);
    graph_fold_batchnorm(&g);
    int after = run_graph(&g, &p, false, y1);
    CHECK(before == 5 && after == 2); /* conv, running, apply, add, relu; then fold and conv */
    CHECK(relative_error(y1, y0, B * S * S * C, 1e-6) < 1e-5);
}

/* A block as a residual network has it: two convolutions, and the second adds to what the first one read. */
static void build_block(graph *g)
{
    op_attr bn = { .eps = 1e-5f }, conv = { .stride = 1, .pad = 1 };
    graph_init(ctx, g);
    value_id x = graph_input(g, TENSOR(CLOOB_F32, NULL, B, S, S, C), "x");
    value_id w = graph_param(g, 0, TENSOR(CLOOB_F32, NULL, C, 3, 3, C), 0, false);
    value_id gain = graph_param(g, 1, TENSOR(CLOOB_F32, NULL, C), 0, false),
             bias = graph_param(g, 2, TENSOR(CLOOB_F32, NULL, C), 0, false);
    value_id stat[] = { graph_stat(g, 3, TENSOR(CLOOB_F32, NULL, C)), graph_stat(g, 4, TENSOR(CLOOB_F32, NULL, C)) };
    value_id h = x, before = x;
    for (int i = 0; i < 3; i++) {
        if (i == 1) before = h;
        h = graph_op(g, OP_CONV2D, conv, 2, (value_id[]){ h, w });
        value_id m = graph_op(g, OP_BN_RUNNING, bn, 2, stat);
        h = graph_op(g, OP_BN_APPLY, bn, 5, (value_id[]){ h, m, graph_output(g, m, 1), gain, bias });
        if (i == 2) h = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ h, before });
        h = graph_op(g, OP_RELU, (op_attr){ 0 }, 1, &h);
    }
    h = graph_op(g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &h); /* so that the sum is no output of the graph */
    graph_keep(g, h, "y");
}

static void a_folded_convolution_adds_the_residual(void)
{
    static weights_of p;
    float y0[B * S * S * C / 4], y1[B * S * S * C / 4];
    graph g;
    fill(&p);
    build_block(&g);
    run_graph(&g, &p, false, y0);
    build_block(&g);
    graph_fuse(&g);
    graph_fold_batchnorm(&g);
    run_graph(&g, &p, false, y1);
    CHECK(relative_error(y1, y0, B * S * S * C / 4, 1e-6) < 1e-5);
}

static void errors_are_reported_when_asked(void)
{
    graph g;
    graph_init(ctx, &g);
    value_id x = graph_input(&g, TENSOR(CLOOB_F32, NULL, 2, 3), "x"),
             w = graph_param(&g, 0, TENSOR(CLOOB_F32, NULL, 4, 5), 0, true);
    value_id y = graph_op(&g, OP_LINEAR, (op_attr){ 0 }, 2, (value_id[]){ x, w });
    graph_op(&g, OP_RELU, (op_attr){ 0 }, 1, &y);
    CHECK(y == NO_VALUE && graph_status(&g) == CLOOB_ERR_ARGUMENT);
    CHECK(strstr(cloob_error(ctx), "(2, 3)") && strstr(cloob_error(ctx), "(4, 5)"));
    graph_release(&g);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(values_alive_together_never_overlap);
    RUN(fusion_changes_only_the_number_of_ops);
    RUN(folding_batchnorm_changes_nothing);
    RUN(a_folded_convolution_adds_the_residual);
    RUN(errors_are_reported_when_asked);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
