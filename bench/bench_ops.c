/* Every kernel of a training step on the GPU, at the sizes of RN50 (batch 512) and of the text and vision
 * transformers: time, rate, and the floor (the larger of bytes over copy bandwidth and operations over the
 * rate of a large product, both measured first). Weighted by how often a step calls each.
 *
 *     bench_ops [conv] [bn] [text] [vit] [attention] [pool] [last] [adamw] [log FILE]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "nn/op.h"
#include "optim/adamw.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/gemm.h"

static cloob_ctx *ctx;
static device *dev;
static double copy_bytes_per_ms, flops_per_ms;

typedef struct total {
    const char *name;
    double ms, floor_ms;
} total;
static total totals[64];
static int total_count;

static void add_total(const char *name, double ms, double floor_ms)
{
    int i = 0;
    while (i < total_count && strcmp(totals[i].name, name) != 0) i++;
    if (i == total_count) totals[total_count++].name = name;
    totals[i].ms += ms;
    totals[i].floor_ms += floor_ms;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_ops: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}

/* ---- one call ------------------------------------------------------------------------------------ */

typedef struct call {
    op_env env;
    op_args args;
    const op_kernel *kernel;
} call;

static cloob_status call_run(void *user)
{
    call *c = user;
    return c->kernel->run(&c->env, &c->args);
}

/* Token ids are rows of tokens, half of them padding; a vector of integers holds positions. */
static void fill(tensor *t)
{
    int64_t n = tensor_count(t), bound = t->ndim == 1 ? 77 : 49408;
    if (dev->alloc(ctx, dev, tensor_bytes(t), "a tensor", &t->data) != CLOOB_OK) fail("memory");
    if (t->dtype == CLOOB_F32 || t->dtype == CLOOB_BF16) {
        if (cuda_fill_noise(ctx, dev->stream, t->data, t->dtype, n) != CLOOB_OK) fail("noise");
        return;
    }
    if (t->dtype != CLOOB_I32) return; /* bytes stay 0 */
    int32_t *host = malloc((size_t)n * sizeof *host);
    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)rng_below(1, (uint64_t)i, (uint64_t)bound) * (bound == 77 || i % 77 < 38);
    if (dev->to_device(ctx, dev, t->data, host, tensor_bytes(t)) != CLOOB_OK) fail("copy");
    free(host);
}

static double bytes_of(op_id op, const op_args *a)
{
    double bytes = 0;
    for (int k = 0; k < OP_INPUTS; k++)
        if (a->in[k].ndim >= 0 && !op_lends_shape(op, k) && !(op == OP_EMBED && k == 1))
            bytes += (double)tensor_bytes(&a->in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (a->out[k].ndim >= 0) bytes += (double)tensor_bytes(&a->out[k]);
    return bytes;
}

/* Times the call and prints a line. flops 0: memory alone sets the floor. keep: bit k set when output k is
 * wanted. */
static void bench(const char *family, const char *shape, int count, op_id op, op_args a, double flops, unsigned keep)
{
    call c = { .env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 },
               .kernel = op_find_kernel(BACKEND_CUDA, op) };
    float ms = 0;
    for (int k = 0; k < OP_INPUTS; k++)
        if (a.in[k].ndim == 0) a.in[k].ndim = -1;
    for (int k = 0; k < OP_OUTPUTS; k++) a.out[k].ndim = -1;
    if (op_table[op].shape(ctx, &a) != CLOOB_OK) fail(shape);
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (!(keep & 1u << k)) a.out[k].ndim = -1;
    if (c.kernel->prepare && c.kernel->prepare(&c.env, &a) != CLOOB_OK) fail(shape);
    double bytes = bytes_of(op, &a);
    for (int k = 0; k < OP_INPUTS; k++)
        if (a.in[k].ndim >= 0) fill(&a.in[k]);
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (a.out[k].ndim >= 0) fill(&a.out[k]);
    if (a.scratch_bytes && dev->alloc(ctx, dev, a.scratch_bytes, "scratch", &a.scratch) != CLOOB_OK) fail("memory");
    c.args = a;
    if (cuda_time(ctx, dev, call_run, &c, &ms) != CLOOB_OK) fail(shape);
    double memory_ms = bytes / copy_bytes_per_ms, math_ms = flops / flops_per_ms, floor_ms = fmax(memory_ms, math_ms);
    printf("%-22s %-30s x%-3d %8.4f ms %7.0f GB/s %6.1f TF/s  floor %7.4f (%s) %4.2fx\n", op_table[op].name, shape,
           count, (double)ms, bytes / (double)ms / 1e6, flops / (double)ms / 1e9, floor_ms,
           memory_ms > math_ms ? "bytes" : "math ", (double)ms / floor_ms);
    add_total(family, count * (double)ms, count * floor_ms);
    if (c.kernel->release) c.kernel->release(&c.env, &c.args);
    for (int k = 0; k < OP_INPUTS; k++) dev->free(dev, c.args.in[k].data);
    for (int k = 0; k < OP_OUTPUTS; k++) dev->free(dev, c.args.out[k].data);
    dev->free(dev, a.scratch);
}

#define B(...) TENSOR(CLOOB_BF16, NULL, __VA_ARGS__)
#define F(...) TENSOR(CLOOB_F32, NULL, __VA_ARGS__)

/* ---- RN50 ---------------------------------------------------------------------------------------- */

static const int64_t N = 512;

static void conv(int count, int64_t HW, int64_t C, int64_t O, int64_t K, int64_t stride)
{
    char s[64];
    int64_t Ho = HW / stride, c = C == 8 ? 3 : C;
    op_attr at = { .stride = stride, .pad = K / 2 };
    double flops = 2.0 * (double)(N * Ho * Ho) * (double)(O * K * K * c);
    snprintf(s, sizeof s, "%lldx%lld %lld->%lld @%lld", (long long)K, (long long)K, (long long)C, (long long)O,
             (long long)HW);
    tensor x = B(N, HW, HW, C), w = B(O, K, K, c), y = B(N, Ho, Ho, O);
    bench("conv forward", s, count, OP_CONV2D, (op_args){ .in = { x, w }, .attr = at }, flops, 1);
    if (C != 8) bench("conv dx", s, count, OP_CONV2D_DX, (op_args){ .in = { y, w, x }, .attr = at }, flops, 1);
    bench("conv dw", s, count, OP_CONV2D_DW, (op_args){ .in = { y, x, w }, .attr = at }, flops, 1);
}

static void convs(void)
{
    conv(1, 224, 8, 32, 3, 2);
    conv(1, 112, 32, 32, 3, 1);
    conv(1, 112, 32, 64, 3, 1);
    conv(1, 56, 64, 64, 1, 1);
    conv(3, 56, 64, 64, 3, 1);
    conv(4, 56, 64, 256, 1, 1);
    conv(2, 56, 256, 64, 1, 1);
    conv(1, 56, 256, 128, 1, 1);
    conv(1, 56, 128, 128, 3, 1);
    conv(4, 28, 128, 512, 1, 1);
    conv(1, 28, 256, 512, 1, 1);
    conv(3, 28, 512, 128, 1, 1);
    conv(3, 28, 128, 128, 3, 1);
    conv(1, 28, 512, 256, 1, 1);
    conv(1, 28, 256, 256, 3, 1);
    conv(6, 14, 256, 1024, 1, 1);
    conv(1, 14, 512, 1024, 1, 1);
    conv(5, 14, 1024, 256, 1, 1);
    conv(5, 14, 256, 256, 3, 1);
    conv(1, 14, 1024, 512, 1, 1);
    conv(1, 14, 512, 512, 3, 1);
    conv(3, 7, 512, 2048, 1, 1);
    conv(1, 7, 1024, 2048, 1, 1);
    conv(2, 7, 2048, 512, 1, 1);
    conv(2, 7, 512, 512, 3, 1);
}

/* relu: 0 none, 1 relu, 2 relu and pool, 3 residual and relu. */
static void norm(int count, int64_t HW, int64_t C, int kind)
{
    char s[64];
    op_attr at = { .eps = 1e-5f, .momentum = 0.1f, .relu = kind > 0, .pool = kind == 2 };
    int64_t Ho = kind == 2 ? HW / 2 : HW;
    tensor x = B(N, HW, HW, C), y = B(N, Ho, Ho, C), v = F(C), sums = F(2, C);
    snprintf(s, sizeof s, "%lld @%lld%s", (long long)C, (long long)HW,
             kind == 0   ? ""
             : kind == 1 ? " relu"
             : kind == 2 ? " relu pool"
                         : " res relu");
    bench("bn stats", s, count, OP_BN_STATS, (op_args){ .in = { x, v, v }, .attr = at }, 0, 3);
    op_args apply = { .in = { x, v, v, v, v }, .attr = at },
            reduce = { .in = { y, { .ndim = 0 }, x, v, v, v, v }, .attr = at };
    op_args dx = { .in = { y, x, v, v, v, v, sums }, .attr = at };
    if (kind == 3) apply.in[5] = x, reduce.in[7] = y, dx.attr.relu = false;
    bench("bn apply", s, count, OP_BN_APPLY, apply, 0, 1);
    bench("bn backward reduce", s, count, OP_BN_BWD_REDUCE, reduce, 0, kind == 3 ? 15 : 7);
    bench("bn backward apply", s, count, OP_BN_BWD_APPLY, dx, 0, 1);
}

static void norms(void)
{
    norm(2, 112, 32, 1);
    norm(1, 112, 64, 2);
    norm(6, 56, 64, 1);
    norm(3, 56, 256, 3);
    norm(1, 56, 256, 0);
    norm(1, 56, 128, 1);
    norm(1, 56, 128, 2);
    norm(6, 28, 128, 1);
    norm(4, 28, 512, 3);
    norm(1, 28, 512, 0);
    norm(1, 28, 256, 1);
    norm(1, 28, 256, 2);
    norm(10, 14, 256, 1);
    norm(6, 14, 1024, 3);
    norm(1, 14, 1024, 0);
    norm(1, 14, 512, 1);
    norm(1, 14, 512, 2);
    norm(4, 7, 512, 1);
    norm(3, 7, 2048, 3);
    norm(1, 7, 2048, 0);
    bench("pools", "256 @56", 1, OP_AVGPOOL2, (op_args){ .in = { B(N, 56, 56, 256) } }, 0, 1);
    bench("pools", "256 @56", 1, OP_AVGPOOL2_BWD, (op_args){ .in = { B(N, 28, 28, 256), B(N, 56, 56, 256) } }, 0, 1);
    bench("images", "bytes 224", 1, OP_IMAGE_INPUT,
          (op_args){ .in = { TENSOR(CLOOB_U8, NULL, N, 224, 224, 3) },
                     .attr = { .channels = 8, .dtype = CLOOB_BF16, .std = { 1, 1, 1 } } },
          0, 1);
}

/* ---- transformers -------------------------------------------------------------------------------- */

static void linear(const char *family, int count, int64_t R, int64_t K, int64_t O, bool res)
{
    char s[64];
    double flops = 2.0 * (double)R * (double)(K * O);
    tensor x = B(R, K), w = B(O, K), y = B(R, O);
    snprintf(s, sizeof s, "%lld: %lld->%lld%s", (long long)R, (long long)K, (long long)O, res ? " + res" : "");
    op_args a = { .in = { x, w, F(O) } };
    if (res) a.in[3] = y;
    bench(family, s, count, OP_LINEAR, a, flops, 1);
    bench(family, s, count, OP_LINEAR_DX, (op_args){ .in = { y, w, x } }, flops, 1);
    bench(family, s, count, OP_LINEAR_DW, (op_args){ .in = { y, x, w } }, flops, 3);
}

static void tower(const char *family, int layers, int64_t rows, int64_t T, int64_t C, bool causal)
{
    char s[64];
    int64_t R = rows * T, H = C / 64;
    op_attr at = { .heads = H, .causal = causal, .eps = 1e-5f, .act = OP_ACT_QUICKGELU };
    double flops = 4.0 * (double)(rows * H) * (double)(T * T) * 64.0 * (causal ? 0.5 : 1.0);
    linear(family, layers, R, C, 3 * C, false);
    linear(family, layers, R, C, C, true);
    linear(family, layers, R, C, 4 * C, false);
    linear(family, layers, R, 4 * C, C, true);
    snprintf(s, sizeof s, "%lld x %lld, %lld heads%s", (long long)rows, (long long)T, (long long)H,
             causal ? ", causal" : "");
    tensor qkv = B(rows, T, 3 * C), y = B(rows, T, C), lse = F(rows, H, T);
    bench(family, s, layers, OP_ATTENTION, (op_args){ .in = { qkv }, .attr = at }, flops, 3);
    bench(family, s, layers, OP_ATTENTION_BWD, (op_args){ .in = { y, qkv, y, lse }, .attr = at }, 2.5 * flops, 1);
    snprintf(s, sizeof s, "%lld x %lld", (long long)R, (long long)C);
    tensor x = B(R, C), v = F(C), row = F(R), wide = B(R, 4 * C);
    bench(family, s, 2 * layers, OP_LAYERNORM, (op_args){ .in = { x, v, v }, .attr = at }, 0, 7);
    bench(family, s, 2 * layers, OP_LAYERNORM_BWD, (op_args){ .in = { x, x, row, row, v, x }, .attr = at }, 0, 7);
    snprintf(s, sizeof s, "%lld x %lld", (long long)R, (long long)(4 * C));
    bench(family, s, layers, OP_ACT, (op_args){ .in = { wide }, .attr = at }, 0, 1);
    bench(family, s, layers, OP_ACT_BWD, (op_args){ .in = { wide, wide }, .attr = at }, 0, 1);
}

static void text(void)
{
    tensor tokens = TENSOR(CLOOB_I32, NULL, N, 77), table = F(49408, 512), pos = F(77, 512), y = B(N, 77, 512),
           index = TENSOR(CLOOB_I32, NULL, N);
    op_attr at = { .dtype = CLOOB_BF16, .heads = 8 };
    tower("text tower", 12, N, 77, 512, true);
    bench("text ends", "512 x 77", 1, OP_EMBED, (op_args){ .in = { tokens, table, pos }, .attr = at }, 0, 1);
    bench("text ends", "512 x 77", 1, OP_EMBED_BWD, (op_args){ .in = { y, tokens, table, pos }, .attr = at }, 0, 3);
    tensor q = B(N, 512);
    bench("text ends", "512 x 77", 1, OP_TAKE_ROWS_BWD, (op_args){ .in = { q, index, y, y }, .attr = at }, 0, 1);
}

/* Attention alone, its backward pass without and with a bias's gradient. */
static void attention_alone(const char *name, int layers, int64_t rows, int64_t T, int64_t H, bool causal)
{
    int64_t C = 64 * H;
    op_attr at = { .heads = H, .causal = causal };
    tensor qkv = B(rows, T, 3 * C), y = B(rows, T, C), lse = F(rows, H, T);
    bench(name, name, layers, OP_ATTENTION, (op_args){ .in = { qkv }, .attr = at }, 0, 3);
    bench(name, name, layers, OP_ATTENTION_BWD, (op_args){ .in = { y, qkv, y, lse }, .attr = at }, 0, 1);
    at.sums = true;
    bench(name, name, layers, OP_ATTENTION_BWD, (op_args){ .in = { y, qkv, y, lse }, .attr = at }, 0, 3);
}

static void attention(void)
{
    attention_alone("512 x 77", 11, 512, 77, 8, true);
    attention_alone("1024 x 77", 11, 1024, 77, 8, true);
    attention_alone("1024 x 50", 12, 1024, 50, 12, false);
    attention_alone("128 x 197", 12, 128, 197, 12, false);
    attention_alone("64 x 257", 24, 64, 257, 16, false);
    attention_alone("16 x 577", 24, 16, 577, 16, false);
    attention_alone("8 x 1025", 24, 8, 1025, 16, false);
    attention_alone("512 x 14", 11, 512, 14, 8, true);
}

/* A transformer's last block without keys and values, by its calls: sequences that are seen whole, and with index. */
static void last_block(const char *name, int64_t rows, int64_t T, int64_t H, bool ends)
{
    int64_t C = 64 * H;
    op_attr at = { .heads = H, .scale = 0.125f };
    tensor t = B(rows, T, C), u = B(rows, H, C), q = B(rows, C), w = B(C, C), p = F(rows, H, T),
           index = TENSOR(CLOOB_I32, NULL, rows);
    bench("last block", name, 1, OP_POOL_ATTENTION, (op_args){ .in = { t, u } }, 0, 3);
    bench("last block", name, 1, OP_POOL_ATTENTION_BWD, (op_args){ .in = { u, t, u, p } }, 0, 3);
    if (ends) bench("last block, index", name, 1, OP_POOL_ATTENTION, (op_args){ .in = { t, u, index } }, 0, 3);
    if (ends)
        bench("last block, index", name, 1, OP_POOL_ATTENTION_BWD, (op_args){ .in = { u, t, u, p, index } }, 0, 3);
    bench("last block", name, 2, OP_HEADS_PROJECT, (op_args){ .in = { q, w }, .attr = at }, 0, 1);
    bench("last block", name, 2, OP_HEADS_COLLECT, (op_args){ .in = { u, w }, .attr = at }, 0, 1);
    bench("last block", name, 2, OP_HEADS_DW, (op_args){ .in = { q, u, w }, .attr = at }, 0, 1);
}

static void last_blocks(void)
{
    last_block("1024 x 50, 12 heads", 1024, 50, 12, false);
    last_block("1024 x 77, 8 heads", 1024, 77, 8, true);
    last_block("512 x 77, 8 heads", 512, 77, 8, true);
    last_block("128 x 197, 12 heads", 128, 197, 12, false);
    last_block("64 x 257, 16 heads", 64, 257, 16, false);
}

static void pool(void)
{
    int64_t T = 50, C = 2048, H = 32;
    op_attr at = { .heads = H, .scale = 0.125f };
    tensor x = B(N, 7, 7, C), t = B(N, T, C), u = B(N, H, C), q = B(N, C), w = B(C, C), pos = F(T, C), p = F(N, H, T);
    double flops = 4.0 * (double)(N * H * T) * (double)C, project = 2.0 * (double)N * (double)(C * C);
    bench("attention pool", "7x7x2048", 1, OP_MEAN_TOKENS, (op_args){ .in = { x, pos } }, 0, 1);
    bench("attention pool", "7x7x2048", 1, OP_MEAN_TOKENS_BWD, (op_args){ .in = { t, x, pos } }, 0, 3);
    bench("attention pool", "32 heads", 1, OP_POOL_ATTENTION, (op_args){ .in = { t, u } }, flops, 3);
    bench("attention pool", "32 heads", 1, OP_POOL_ATTENTION_BWD, (op_args){ .in = { u, t, u, p } }, 2 * flops, 3);
    bench("attention pool", "2048", 2, OP_HEADS_PROJECT, (op_args){ .in = { q, w }, .attr = at }, project, 1);
    bench("attention pool", "2048", 2, OP_HEADS_COLLECT, (op_args){ .in = { u, w, F(C) }, .attr = at }, project, 1);
    bench("attention pool", "2048", 2, OP_HEADS_DW, (op_args){ .in = { q, u, w }, .attr = at }, project, 3);
}

/* ---- ceilings and the optimizer ------------------------------------------------------------------ */

static void *buffer_a, *buffer_b;
static const size_t COPY = (size_t)2 << 30;

static cloob_status copy_run(void *user)
{
    (void)user;
    return dev->copy(ctx, dev, buffer_b, buffer_a, COPY);
}

static void ceilings(void)
{
    float ms = 0;
    gemm_plan *p;
    gemm_shape g = { .m = 8192, .n = 8192, .k = 8192, .tb = true, .in = CLOOB_BF16, .out = CLOOB_BF16, .alpha = 1 };
    if (dev->alloc(ctx, dev, COPY, "copy", &buffer_a) != CLOOB_OK ||
        dev->alloc(ctx, dev, COPY, "copy", &buffer_b) != CLOOB_OK)
        fail("memory");
    if (cuda_fill_noise(ctx, dev->stream, buffer_a, CLOOB_F32, (int64_t)COPY / 4) != CLOOB_OK ||
        cuda_time(ctx, dev, copy_run, NULL, &ms) != CLOOB_OK)
        fail("copy");
    copy_bytes_per_ms = 2.0 * (double)COPY / (double)ms;
    if (gemm_plan_create(ctx, dev, &g, &p) != CLOOB_OK) fail("product");
    flops_per_ms = 2.0 * 8192.0 * 8192.0 * 8192.0 / (double)gemm_plan_ms(p);
    gemm_plan_destroy(p);
    dev->free(dev, buffer_a);
    dev->free(dev, buffer_b);
    printf("%s: copy %.0f GB/s, bf16 product of 8192 %.0f TFLOP/s\n", dev->name, copy_bytes_per_ms / 1e6,
           flops_per_ms / 1e9);
}

typedef struct adamw_call {
    adamw_blocks b;
    adamw_settings s;
} adamw_call;

static cloob_status adamw_run(void *user)
{
    adamw_call *c = user;
    return adamw_step(ctx, dev, NULL, &c->b, &c->s);
}

static void adamw(void)
{
    enum { RANGES = 300 };
    static adamw_range range[RANGES];
    int64_t each = 340 * 1024, n = RANGES * each;
    adamw_call c = { .s = { 1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0, 1 } };
    float ms = 0;
    for (int i = 0; i < RANGES; i++) range[i] = (adamw_range){ i * each, each, i % 2 == 0, false };
    void *block[5];
    for (int k = 0; k < 5; k++)
        if (dev->alloc(ctx, dev, (size_t)n * (k < 4 ? 4 : 2), "parameters", &block[k]) != CLOOB_OK) fail("memory");
    void *table;
    if (dev->alloc(ctx, dev, sizeof range, "ranges", &table) != CLOOB_OK ||
        dev->to_device(ctx, dev, table, range, sizeof range) != CLOOB_OK)
        fail("memory");
    cuda_fill_noise(ctx, dev->stream, block[0], CLOOB_F32, n);
    cuda_fill_noise(ctx, dev->stream, block[3], CLOOB_F32, n);
    c.b = (adamw_blocks){ .param = block[0],
                          .m = block[1],
                          .v = block[2],
                          .grad = block[3],
                          .shadow = block[4],
                          .range = range,
                          .range_device = table,
                          .ranges = RANGES };
    if (cuda_time(ctx, dev, adamw_run, &c, &ms) != CLOOB_OK) fail("adamw");
    double bytes = 30.0 * (double)n;
    printf("%-22s %-30s x1   %8.4f ms %7.0f GB/s\n", "adamw", "104 million", (double)ms, bytes / (double)ms / 1e6);
    add_total("adamw", (double)ms, bytes / copy_bytes_per_ms);
    for (int k = 0; k < 5; k++) dev->free(dev, block[k]);
    dev->free(dev, table);
}

static void log_line(void *user, cloob_log_level level, const char *line)
{
    (void)level;
    fprintf(user, "%s\n", line);
}

int main(int argc, char **argv)
{
    struct {
        const char *name;
        void (*run)(void);
    } part[] = { { "conv", convs }, { "bn", norms },         { "text", text },  { "attention", attention },
                 { "pool", pool },  { "last", last_blocks }, { "adamw", adamw } };
    cloob_ctx_options o;
    bool any = false;
    cloob_ctx_options_init(&o);
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "log") == 0)
            o.log_user = fopen(argv[i + 1], "w"), o.log = o.log_user ? log_line : NULL, o.log_level = CLOOB_LOG_DEBUG;
    ctx = cloob_ctx_create(&o);
    if (device_open(ctx, "cuda", &dev) != CLOOB_OK) fail("device");
    ceilings();
    for (int i = 1; i < argc; i++) {
        for (size_t k = 0; k < sizeof part / sizeof *part; k++)
            if (strcmp(argv[i], part[k].name) == 0) part[k].run(), any = true;
        if (strcmp(argv[i], "vit") == 0)
            tower("ViT-B-32, 1024", 12, 1024, 50, 768, false), tower("ViT-B-16, 256", 12, 256, 197, 768, false),
                any = true;
    }
    for (size_t k = 0; !any && k < sizeof part / sizeof *part; k++) part[k].run();
    printf("\n%-22s %9s %9s\n", "per step", "ms", "floor ms");
    for (int i = 0; i < total_count; i++)
        printf("%-22s %9.3f %9.3f  %4.2fx\n", totals[i].name, totals[i].ms, totals[i].floor_ms,
               totals[i].ms / totals[i].floor_ms);
    device_close(dev);
    cloob_ctx_destroy(ctx);
    if (o.log_user) fclose(o.log_user);
    return 0;
}
