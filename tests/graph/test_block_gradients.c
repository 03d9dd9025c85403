/* Bottleneck blocks as wide as those of an RN50's first layer, behind a pooled stem, the last of which halves both
 * sides, and a transformer's MLPs: the gradients of all parameters are the same whether graph_fuse_gemm has joined
 * their ops or not, with every choice of kernels. */
#include "check.h"

#include "core/rng.h"
#include "graph/exec.h"
#include "graph/graph.h"

enum { N = 3, SIDE = 12, NARROW = 64, WIDE = 256, MOST = 80, ROWS = 333 };

static cloob_ctx *ctx;

typedef struct list {
    graph *g;
    tensor param[MOST]; /* shapes in compute precision */
    int count;
} list;

static value_id param(list *l, tensor t, bool stat)
{
    l->param[l->count] = t;
    int k = l->count++;
    return stat ? graph_stat(l->g, k, t) : graph_param(l->g, k, t, 0, true);
}

static value_id conv_norm(list *l, value_id x, int64_t out, int64_t k, bool relu)
{
    op_attr a = { .stride = 1, .pad = k / 2, .eps = 1e-5f, .momentum = 0.1f, .keep_stats = true };
    tensor v = TENSOR(CLOOB_F32, NULL, out);
    value_id w = param(l, TENSOR(CLOOB_BF16, NULL, out, k, k, l->g->value[x].t.dim[3]), false);
    value_id mean = param(l, v, true), var = param(l, v, true), gain = param(l, v, false), bias = param(l, v, false);
    value_id h = graph_op(l->g, OP_CONV2D, a, 2, (value_id[]){ x, w });
    value_id m = graph_op(l->g, OP_BN_STATS, a, 3, (value_id[]){ h, mean, var });
    h = graph_op(l->g, OP_BN_APPLY, a, 5, (value_id[]){ h, m, graph_output(l->g, m, 1), gain, bias });
    return relu ? graph_op(l->g, OP_RELU, (op_attr){ 0 }, 1, &h) : h;
}

static void build(list *l, graph *g, bool join)
{
    *l = (list){ .g = g };
    graph_init(ctx, g);
    value_id x = graph_input(g, TENSOR(CLOOB_BF16, NULL, N, SIDE, SIDE, NARROW), "x");
    x = conv_norm(l, x, NARROW, 3, true);
    x = graph_op(g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &x);
    for (int block = 0; block < 4; block++) {
        value_id h = conv_norm(l, conv_norm(l, x, NARROW, 1, true), NARROW, 3, true), skip = x;
        bool smaller = block == 3;
        if (smaller) h = graph_op(g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &h);
        if (smaller) skip = graph_op(g, OP_AVGPOOL2, (op_attr){ 0 }, 1, &skip);
        h = conv_norm(l, h, WIDE, 1, false);
        if (!block || smaller) {
            skip = conv_norm(l, skip, WIDE, 1, false);
            graph_keep(g, skip, block ? "last" : "skip"); /* applied along with the block's own, it is not rounded */
        }
        x = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ h, skip });
        x = graph_op(g, OP_RELU, (op_attr){ 0 }, 1, &x);
    }
    graph_keep(g, x, "y");
    graph_fuse(g);
    graph_differentiate(g, x, &(graph_grad_options){ .recompute = true });
    if (join) graph_fuse_gemm(g);
    CHECK_OK(ctx, graph_status(g));
}

/* Layer norm, W to 4 W columns, an activation and back, twice. */
static void build_mlp(list *l, graph *g, bool join)
{
    *l = (list){ .g = g };
    graph_init(ctx, g);
    value_id x = graph_input(g, TENSOR(CLOOB_BF16, NULL, ROWS, NARROW), "x");
    for (int layer = 0; layer < 2; layer++) {
        op_attr norm = { .eps = 1e-5f }, act = { .act = layer ? OP_ACT_GELU : OP_ACT_QUICKGELU };
        value_id w1 = param(l, TENSOR(CLOOB_BF16, NULL, WIDE, NARROW), false);
        value_id b1 = param(l, TENSOR(CLOOB_BF16, NULL, WIDE), false);
        value_id gain = param(l, TENSOR(CLOOB_F32, NULL, NARROW), false);
        value_id bias = param(l, TENSOR(CLOOB_F32, NULL, NARROW), false);
        value_id w2 = param(l, TENSOR(CLOOB_BF16, NULL, NARROW, WIDE), false);
        value_id h = graph_op(g, OP_LAYERNORM, norm, 3, (value_id[]){ x, gain, bias });
        h = graph_op(g, OP_LINEAR, (op_attr){ 0 }, 3, (value_id[]){ h, w1, b1 });
        h = graph_op(g, OP_ACT, act, 1, &h);
        h = graph_op(g, OP_LINEAR, (op_attr){ 0 }, 2, (value_id[]){ h, w2 });
        x = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ h, x });
    }
    graph_keep(g, x, "y");
    graph_fuse(g);
    graph_differentiate(g, x, &(graph_grad_options){ .recompute = true });
    if (join) graph_fuse_gemm(g);
    CHECK_OK(ctx, graph_status(g));
}

/* Noise; gains and variances near 1. */
static void fill(device *dev, const tensor *t, uint64_t seed, float amount, float around)
{
    int64_t n = tensor_count(t);
    void *host = malloc(tensor_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        float v = around + amount * (float)rng_normal(seed, (uint64_t)i);
        if (t->dtype == CLOOB_F32) ((float *)host)[i] = v;
        else ((uint16_t *)host)[i] = bf16_from_float(v);
    }
    CHECK_OK(ctx, dev->to_device(ctx, dev, t->data, host, tensor_bytes(t)));
    CHECK_OK(ctx, dev->sync(ctx, dev));
    free(host);
}

/* The gradients of all parameters, one after the other; those of statistics stay 0. */
static float *gradients(device *dev, const list *l, int64_t *total)
{
    tensor weight[MOST], grad[MOST];
    exec *e = NULL;
    *total = 0;
    for (int k = 0; k < l->count; k++) {
        weight[k] = grad[k] = l->param[k];
        grad[k].dtype = CLOOB_F32;
        *total += tensor_count(&grad[k]);
        CHECK_OK(ctx, dev->alloc(ctx, dev, tensor_bytes(&weight[k]), "a parameter", &weight[k].data));
        CHECK_OK(ctx, dev->alloc(ctx, dev, tensor_bytes(&grad[k]), "a gradient", &grad[k].data));
        bool near_one = k % 5 == 2 || k % 5 == 3;
        fill(dev, &weight[k], (uint64_t)k + 1, 0.1f, near_one ? 1.0f : 0.0f);
        fill(dev, &grad[k], 1, 0.0f, 0.0f);
    }
    float *all = calloc((size_t)*total, sizeof *all);
    exec_bindings b = { .param = weight, .master = weight, .grad = grad };
    CHECK_OK(ctx, exec_create(ctx, l->g, dev, &b, &e));
    if (e) {
        fill(dev, exec_tensor(e, "x"), 100, 1.0f, 0.0f);
        fill(dev, exec_tensor(e, "doutput"), 200, 1.0f, 0.0f);
        CHECK_OK(ctx, exec_forward(e));
        CHECK_OK(ctx, exec_backward(e));
        CHECK_OK(ctx, dev->sync(ctx, dev));
    }
    float *to = all;
    for (int k = 0; k < l->count; k++) {
        CHECK_OK(ctx, dev->to_host(ctx, dev, to, grad[k].data, tensor_bytes(&grad[k])));
        to += tensor_count(&grad[k]);
        dev->free(dev, weight[k].data), dev->free(dev, grad[k].data);
    }
    exec_destroy(e);
    return all;
}

/* How many groups have both ops as members. */
static int groups_with(const graph *g, op_id a, op_id b)
{
    int n = 0;
    for (int group = 1; group <= g->groups; group++) {
        bool first = false, second = false;
        for (int i = 0; i < g->nodes; i++) {
            if (g->node[i].group != group) continue;
            first = first || g->node[i].op == a, second = second || g->node[i].op == b;
        }
        n += first && second;
    }
    return n;
}

static void blocks_are_joined(const graph *g)
{
    CHECK(groups_with(g, OP_CONV2D_DX, OP_CONV2D_DW) == 8); /* four last, one shortcut's, the first of three blocks */
    CHECK(groups_with(g, OP_AVGPOOL2_BWD, OP_AVGPOOL2) == 1);
    CHECK(groups_with(g, OP_BN_BWD_APPLY, OP_BN_BWD_REDUCE) == 3);
}

static void mlps_are_joined(const graph *g)
{
    CHECK(groups_with(g, OP_LINEAR, OP_ACT) == 2 && groups_with(g, OP_LINEAR_DX, OP_ACT_BWD) == 2);
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == OP_ACT_BWD) CHECK(g->node[i].out[1] != NO_VALUE && g->node[i].attr.sums);
}

typedef struct subject {
    void (*build)(list *l, graph *g, bool join);
    void (*check)(const graph *g);
} subject;
static const subject blocks = { build, blocks_are_joined }, mlps = { build_mlp, mlps_are_joined };

static void compare(const subject *of, const char *name, const kernel_choices *kernels, int count, double tolerance)
{
    device *dev = NULL;
    graph g;
    list l;
    int64_t n, m;
    CHECK_OK(ctx, device_open(ctx, name, &dev));
    of->build(&l, &g, false);
    float *apart = gradients(dev, &l, &n);
    graph_release(&g);
    of->build(&l, &g, true);
    of->check(&g);
    for (int w = 0; w < count; w++) {
        ctx->kernels = kernels[w];
        float *together = gradients(dev, &l, &m), *p = apart, *q = together;
        for (int k = 0; k < l.count && m == n; k++) {
            int64_t size = tensor_count(&l.param[k]);
            double error = relative_error(q, p, (int)size, 1e-3);
            CHECK(error <= tolerance);
            if (!(error <= tolerance)) printf("  parameter %d on %s, choice %d: %.3g\n", k, name, w, error);
            p += size, q += size;
        }
        free(together);
    }
    ctx->kernels = (kernel_choices){ 0 };
    free(apart);
    graph_release(&g);
    device_close(dev);
}

static const kernel_choices all[] = { { .fused_gemm = FUSED_GEMM_AUTO },
                                      { .fused_gemm = FUSED_GEMM_4_CONSUMERS },
                                      { .fused_gemm = FUSED_GEMM_2_CONSUMERS },
                                      { .fused_gemm = FUSED_GEMM_NEVER } };

/* By definition, one after the other: to the bit. The MLP's bias moves from the GEMM to the activation, which is
 * another rounding to 8 bits of mantissa. */
static void gradients_stay_by_definition(void)
{
    compare(&blocks, "ref", all, 1, 0.0);
    compare(&mlps, "ref", all, 1, 0.02);
}

static void gradients_stay_on_a_gpu(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(&blocks, "cuda", all, 4, 0.3); /* other sums round otherwise, which opens or closes some of relu's gates */
    compare(&mlps, "cuda", all, 4, 0.02);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(gradients_stay_by_definition);
    RUN(gradients_stay_on_a_gpu);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
