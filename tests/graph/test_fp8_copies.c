/* 8-bit copies that are written by the op that writes a GEMM's factor: which ops get them, and that nothing changes,
 * to the byte, against GEMMs that round for themselves (whose definition is nn/ref/linear.c, see test_gpu_ops). */
#include "check.h"

#include "graph/exec.h"

enum { BLOCKS = 2, PER_BLOCK = 12, PARAMS = BLOCKS * PER_BLOCK, ROUNDS = 4 };

static cloob_ctx *ctx;

typedef struct sizes {
    int64_t N, T, C;
    bool packed; /* sequences of 1 to T rows, one after the other, and dead rows behind them */
} sizes;

static tensor param_shape(sizes s, int param, cloob_dtype matrices)
{
    switch (param % PER_BLOCK) {
    case 2: return TENSOR(matrices, NULL, 4 * s.C, s.C);
    case 3: return TENSOR(CLOOB_F32, NULL, 4 * s.C);
    case 4: return TENSOR(matrices, NULL, s.C, 4 * s.C);
    case 8: return TENSOR(matrices, NULL, 3 * s.C, s.C);
    case 9: return TENSOR(CLOOB_F32, NULL, 3 * s.C);
    case 10: return TENSOR(matrices, NULL, s.C, s.C);
    default: return TENSOR(CLOOB_F32, NULL, s.C); /* 0, 1, 6, 7: gain, bias */
    }
}

static value_id param(graph *g, sizes s, int k) { return graph_param(g, k, param_shape(s, k, CLOOB_BF16), 0, true); }

static bool is_matrix(int k)
{
    return k % PER_BLOCK == 2 || k % PER_BLOCK == 4 || k % PER_BLOCK == 8 || k % PER_BLOCK == 10;
}

static value_id norm(graph *g, sizes s, value_id x, int k)
{
    return graph_op(g, OP_LAYERNORM, (op_attr){ .eps = 1e-5f }, 3,
                    (value_id[]){ x, param(g, s, k), param(g, s, k + 1) });
}

static value_id linear(graph *g, sizes s, op_fp8 fp8, value_id x, int k)
{
    return graph_op(g, OP_LINEAR, (op_attr){ .fp8 = fp8 }, 3, (value_id[]){ x, param(g, s, k), param(g, s, k + 1) });
}

/* Two blocks of a transformer, differentiated. */
static void build(graph *g, sizes s, op_fp8 fp8, op_act act, bool recompute)
{
    graph_init(ctx, g);
    tensor even = TENSOR(CLOOB_BF16, NULL, s.N, s.T, s.C), rows = TENSOR(CLOOB_BF16, NULL, s.N * s.T, s.C);
    value_id x = graph_input(g, s.packed ? rows : even, "x");
    value_id start = s.packed ? graph_input(g, TENSOR(CLOOB_I32, NULL, s.N + 1), "start") : NO_VALUE;
    for (int b = 0; b < BLOCKS; b++) {
        int k = b * PER_BLOCK;
        op_attr heads = { .heads = s.C / 64, .causal = b == 0, .tokens = s.packed ? s.T : 0 };
        value_id qkv = linear(g, s, fp8, norm(g, s, x, k + 6), k + 8);
        value_id y =
            linear(g, s, fp8, graph_op(g, OP_ATTENTION, heads, s.packed ? 2 : 1, (value_id[]){ qkv, start }), k + 10);
        x = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ x, y });
        value_id h = linear(g, s, fp8, norm(g, s, x, k), k + 2);
        y = linear(g, s, fp8, graph_op(g, OP_ACT, (op_attr){ .act = act }, 1, &h), k + 4);
        x = graph_op(g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ x, y });
    }
    graph_keep(g, x, "y");
    graph_fuse(g);
    graph_differentiate(g, x, &(graph_grad_options){ .recompute = recompute });
    graph_fuse_gemm(g);
    CHECK_OK(ctx, graph_status(g));
}

static int readers(const graph *g, op_id op)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++) n += g->node[i].op == op && g->node[i].in[OP_ROUNDED_IN] != NO_VALUE;
    return n;
}

static void factors_come_rounded(void)
{
    sizes s = { 16, 2, 64, false };
    graph g;
    build(&g, s, OP_FP8_ALWAYS, OP_ACT_GELU, false);
    /* the last block's fc2 gets the gradient that was given, which no op writes */
    CHECK(readers(&g, OP_LINEAR) == 3 * BLOCKS && readers(&g, OP_LINEAR_DX) == 4 * BLOCKS - 1);
    for (int i = 0; i < g.nodes; i++) {
        const node *n = &g.node[i];
        if ((n->op != OP_LINEAR && n->op != OP_LINEAR_DX) || n->in[OP_ROUNDED_IN] == NO_VALUE) continue;
        const node *maker = &g.node[graph_producer(&g, n->in[OP_ROUNDED_IN])];
        CHECK(maker->out[0] == n->in[0] && maker->out[OP_ROUNDED_OUT] == n->in[OP_ROUNDED_IN]);
        CHECK(tensor_bytes(&g.value[n->in[OP_ROUNDED_IN]].t) ==
              (size_t)tensor_count(&g.value[n->in[0]].t) + OP_ROUNDED_TAIL);
    }
    graph_release(&g);
    build(&g, s, OP_FP8_NEVER, OP_ACT_GELU, false);
    CHECK(readers(&g, OP_LINEAR) == 0 && readers(&g, OP_LINEAR_DX) == 0);
    graph_release(&g);
}

/* ---- on a GPU ------------------------------------------------------------------------------------ */

static void forget_copies(graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        node *n = &g->node[i];
        if (n->op == OP_LINEAR || n->op == OP_LINEAR_DX) n->in[OP_ROUNDED_IN] = NO_VALUE;
        n->out[OP_ROUNDED_OUT] = NO_VALUE;
    }
}

/* Noise of size `amount`, the same for the same seed. */
static void fill(device *dev, const tensor *t, uint64_t seed, float amount)
{
    int64_t n = tensor_count(t);
    void *host = malloc(tensor_bytes(t));
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float v = amount * ((float)(state >> 40) / 8388608.0f - 1.0f);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (t->dtype == CLOOB_F32) ((float *)host)[i] = v;
        else ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
    }
    CHECK_OK(ctx, dev->to_device(ctx, dev, t->data, host, tensor_bytes(t)));
    CHECK_OK(ctx, dev->sync(ctx, dev));
    free(host);
}

static void fill_starts(device *dev, const tensor *t)
{
    int32_t start[1024] = { 0 };
    for (int64_t i = 1; i < t->dim[0]; i++) start[i] = start[i - 1] + 1 + (int32_t)(i % 3);
    CHECK_OK(ctx, dev->to_device(ctx, dev, t->data, start, tensor_bytes(t)));
    CHECK_OK(ctx, dev->sync(ctx, dev));
}

typedef struct setup {
    device *dev;
    tensor param[PARAMS], grad[PARAMS];
} setup;

static void setup_open(setup *u, sizes s)
{
    CHECK_OK(ctx, device_open(ctx, "cuda", &u->dev));
    for (int k = 0; k < PARAMS; k++) {
        u->param[k] = param_shape(s, k, CLOOB_BF16), u->grad[k] = param_shape(s, k, CLOOB_F32);
        CHECK_OK(ctx, u->dev->alloc(ctx, u->dev, tensor_bytes(&u->param[k]), "a parameter", &u->param[k].data));
        CHECK_OK(ctx, u->dev->alloc(ctx, u->dev, tensor_bytes(&u->grad[k]), "a gradient", &u->grad[k].data));
        fill(u->dev, &u->param[k], (uint64_t)k + 1, k % PER_BLOCK == 0 || k % PER_BLOCK == 6 ? 2.0f : 0.1f);
    }
}

static void setup_close(setup *u)
{
    for (int k = 0; k < PARAMS; k++) u->dev->free(u->dev, u->param[k].data), u->dev->free(u->dev, u->grad[k].data);
    device_close(u->dev);
}

/* Output and weight gradients of all rounds, one after the other; scales grow and shrink on the way. */
static char *results(setup *u, const graph *g, size_t *bytes)
{
    static const float amount[ROUNDS] = { 1.0f, 40.0f, 0.02f, 1.0f };
    exec_bindings b = { .param = u->param, .master = u->param, .grad = u->grad };
    exec *e = NULL;
    char *all = NULL;
    *bytes = 0;
    CHECK_OK(ctx, exec_create(ctx, g, u->dev, &b, &e));
    if (e && exec_tensor(e, "start")) fill_starts(u->dev, exec_tensor(e, "start"));
    for (int round = 0; e && round < ROUNDS; round++) {
        fill(u->dev, exec_tensor(e, "x"), 100 + (uint64_t)round, amount[round]);
        fill(u->dev, exec_tensor(e, "doutput"), 200 + (uint64_t)round, amount[ROUNDS - 1 - round]);
        CHECK_OK(ctx, exec_forward(e));
        CHECK_OK(ctx, exec_backward(e));
        CHECK_OK(ctx, u->dev->sync(ctx, u->dev));
        for (int k = -1; k < PARAMS; k++) {
            const tensor *t = k < 0 ? exec_tensor(e, "y") : &u->grad[k];
            if (k >= 0 && !is_matrix(k)) continue;
            all = realloc(all, *bytes + tensor_bytes(t));
            CHECK_OK(ctx, u->dev->to_host(ctx, u->dev, all + *bytes, t->data, tensor_bytes(t)));
            *bytes += tensor_bytes(t);
        }
    }
    exec_destroy(e);
    return all;
}

static void compare(sizes s, op_act act, bool recompute)
{
    setup u;
    graph along, apart;
    size_t n, m;
    setup_open(&u, s);
    build(&along, s, OP_FP8_ALWAYS, act, recompute);
    build(&apart, s, OP_FP8_ALWAYS, act, recompute);
    forget_copies(&apart);
    char *a = results(&u, &along, &n), *b = results(&u, &apart, &m);
    CHECK(n == m && n > 0 && memcmp(a, b, n) == 0);
    bool flat = true;
    for (size_t i = 1; i < n && flat; i++) flat = a[i] == a[0];
    CHECK(!flat);
    free(a);
    free(b);
    graph_release(&along);
    graph_release(&apart);
    setup_close(&u);
}

static void copies_change_nothing(void)
{
    static const int64_t widths[] = { 256, 384, 512, 768, 1024 };
    if (device_cuda_count() == 0) SKIP("no GPU here");
    device *dev = NULL;
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    bool fp8 = dev && dev->fp8;
    device_close(dev);
    if (!fp8) SKIP("no 8-bit GEMMs on this GPU");
    for (int i = 0; i < 5; i++) compare((sizes){ 16, 37, widths[i], false }, OP_ACT_QUICKGELU, i % 2 == 0);
    compare((sizes){ 16, 2, 256, false }, OP_ACT_GELU, true);
    compare((sizes){ 64, 4, 256, true }, OP_ACT_QUICKGELU, true);
    compare((sizes){ 192, 50, 256, false }, OP_ACT_GELU_TANH, false);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(factors_come_rounded);
    RUN(copies_change_nothing);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
