/* Every op: slopes by finite differences on ref, and the other backends against ref. */
#include "check.h"
#include "group_harness.h"

#include "core/rng.h"
#include "core/ctx.h"

static cloob_ctx *ctx;
static int part = 0, parts = 1; /* of the comparisons: every parts-th case, from `part` on */

static double weighted_sum(const op_pass *p)
{
    double sum = 0;
    for (int64_t i = 0, n = tensor_count(&p->g); i < n; i++)
        sum += ((double *)p->g.data)[i] * ((double *)p->forward.out[0].data)[i];
    return sum;
}

/* d/dx of sum(g out0) against what the backward rule says, at up to 24 elements of every input. Everything is double
 * but parameter gradients, which are stored as F32: their rounding of 6e-8 and sums of it set 1e-5. A step of 1e-6
 * leaves about 1e-8 and hardly ever crosses a kink of relu. */
static void check_slope(const op_case *c, op_pass *p, int k)
{
    tensor *x = &p->forward.in[k], *d = &p->d[k];
    int64_t n = tensor_count(x);
    for (int64_t trial = 0; trial < 24 && trial < n; trial++) {
        int64_t i = n <= 24 ? trial : (int64_t)rng_below(rng_key(1, c->name), (uint64_t)trial, (uint64_t)n);
        double *value = (double *)x->data + i, kept = *value, step = 1e-6, got = 0, slope;
        *value = kept + step;
        op_pass_forward(ctx, c, p);
        slope = weighted_sum(p);
        *value = kept - step;
        op_pass_forward(ctx, c, p);
        slope = (slope - weighted_sum(p)) / (2 * step);
        *value = kept;
        dtype_convert(CLOOB_F64, &got, d->dtype, (char *)d->data + (size_t)i * dtype_size(d->dtype), 1);
        if (!(fabs(got - slope) <= 1e-5 * fmax(1, fabs(slope)))) {
            printf("  %s: input %d element %lld: rule %.9g, slope %.9g\n", c->name, k, (long long)i, got, slope);
            check_bad_here_++;
        }
    }
}

static void gradients_are_slopes(void)
{
    for (int i = 0; i < op_case_count; i++) {
        const op_case *c = &op_cases[i];
        op_pass p;
        if (!op_table[c->op].grad) continue;
        CHECK(op_pass_run(ctx, c, CLOOB_F64, 7, &p));
        for (int k = 0; k < OP_INPUTS; k++)
            if (p.d[k].data && p.forward.in[k].dtype == CLOOB_F64) check_slope(c, &p, k);
        op_pass_release(&p);
    }
}

/* ---- one backend against the definition ---------------------------------------------------------- */

/* Where a backend has no kernel of its own, ref runs, and a comparison says nothing. */
static bool has_own_kernel(const device *dev, int op)
{
    return (dev->backend == BACKEND_CUDA ? op_kernels_cuda : op_kernels_cpu)[op].run != NULL;
}

/* compared: (OP_COUNT) calls of the backend's own kernels. */
static void compare_case(device *dev, const op_case *c, cloob_dtype type, uint64_t seed, double tolerance,
                         int *compared)
{
    op_pass p;
    CHECK(op_pass_run(ctx, c, type, seed, &p));
    for (int s = -1; s < p.steps; s++) {
        op_id op = s < 0 ? c->op : p.rule[s].op;
        bool ran;
        if (op == OP_COUNT) continue;
        double error = op_compare(ctx, dev, op, s < 0 ? &p.forward : &p.step[s], s < 0 ? p.before : NULL, &ran);
        compared[op] += ran && has_own_kernel(dev, op);
        if (error >= 0 && error <= tolerance) continue;
        printf("  %s / %s (%s, seed %llu): error %.3g\n", c->name, op_table[op].name, dtype_name(type),
               (unsigned long long)seed, error);
        check_bad_here_++;
    }
    op_pass_release(&p);
}

static void compare_group(device *dev, const group_case *c, cloob_dtype type, double tolerance)
{
    group_pass p;
    int claimed;
    CHECK(group_pass_run(ctx, c, type, false, &p));
    double error = group_compare(ctx, dev, group_table_of(dev->backend), c, &p, &claimed, NULL);
    if (!(error >= 0 && error <= tolerance)) {
        printf("  group %s (%s): error %.3g\n", c->name, dtype_name(type), error);
        check_bad_here_++;
    }
    group_pass_release(&p);
}

/* Every kernel of the backend was compared at least once; of a part of the cases, some were. */
static void compare_backend(const char *name, cloob_dtype type, double tolerance)
{
    device *dev = NULL;
    int compared[OP_COUNT] = { 0 }, calls = 0;
    CHECK_OK(ctx, device_open(ctx, name, &dev));
    for (int i = part; dev && i < op_case_count; i += parts)
        for (uint64_t seed = 1; seed < 3; seed++) compare_case(dev, &op_cases[i], type, seed, tolerance, compared);
    for (int i = part; dev && i < group_case_count; i += parts) {
        compare_group(dev, &group_cases[i], type, tolerance);
        calls++;
    }
    for (int op = 0; dev && op < OP_COUNT; op++) {
        calls += compared[op];
        if (parts > 1 || compared[op] || !has_own_kernel(dev, op)) continue;
        printf("  %s: no case compares its kernel on %s\n", op_table[op].name, name);
        check_bad_here_++;
    }
    printf("  %s %s: %d calls compared with ref\n", name, dtype_name(type), calls);
    CHECK(calls > 0 || part >= op_case_count);
    device_close(dev);
}

/* fp32 kernels sum in another order: 1e-5 norm-wise leaves room for the longest sums here. bf16: rounding of inputs
 * that ref sees too, then of outputs (2^-9) and of intermediate tensors. */
static void cpu_agrees_with_ref(void) { compare_backend("cpu", CLOOB_F32, 1e-5); }
static void cpu_agrees_with_ref_in_bf16(void) { compare_backend("cpu", CLOOB_BF16, 1e-2); }

static void cuda_agrees_with_ref(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare_backend("cuda", CLOOB_F32, 1e-5);
}

static void cuda_agrees_with_ref_in_bf16(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare_backend("cuda", CLOOB_BF16, 1e-2);
}

/* (1, 0.3) under a scale of its own: 1 becomes 448, 0.3 becomes 134.75 (0.30078 in bf16), which e4m3 rounds to 128. A
 * row next to it that is ten times as large changes nothing. */
static void rows_in_8_bits_have_scales_of_their_own(void)
{
    double from[] = { 1.0, 0.3, 10.0, 0.3 }, weight[] = { 0.0, 1.0 }, got[2], expected = 128.0 / 448.0;
    uint16_t x[4], w[2], y[2] = { 0 }, want;
    device dev = { .backend = BACKEND_REF };
    op_env env = { .ctx = ctx, .dev = &dev, .ranks = 1 };
    op_args a = { .attr = { .fp8 = OP_FP8_ALWAYS } };
    for (int k = 0; k < OP_INPUTS; k++) a.in[k] = ABSENT;
    for (int k = 0; k < OP_OUTPUTS; k++) a.out[k] = ABSENT;
    dtype_convert(CLOOB_BF16, x, CLOOB_F64, from, 4);
    dtype_convert(CLOOB_BF16, w, CLOOB_F64, weight, 2);
    dtype_convert(CLOOB_BF16, &want, CLOOB_F64, &expected, 1);
    a.in[0] = TENSOR(CLOOB_BF16, x, 2, 2);
    a.in[1] = TENSOR(CLOOB_BF16, w, 1, 2);
    a.out[0] = TENSOR(CLOOB_BF16, y, 2, 1);
    CHECK_OK(ctx, op_kernels_ref[OP_LINEAR].run(&env, &a));
    dtype_convert(CLOOB_F64, got, CLOOB_BF16, y, 2);
    dtype_convert(CLOOB_F64, &expected, CLOOB_BF16, &want, 1);
    CHECK_NEAR(got[0], expected, 0);
    CHECK(got[1] > 0.27 && got[1] < 0.33);
}

/* What may lie in place gives the same bytes there, for every length of a vector's rest. */
static void activations_work_in_place(void)
{
    enum { N = 1003 };
    static float x[N], apart[N], here[N];
    static const op_act acts[] = { OP_ACT_QUICKGELU, OP_ACT_GELU, OP_ACT_GELU_TANH };
    device dev = { .backend = BACKEND_CPU };
    op_env env = { .ctx = ctx, .dev = &dev, .ranks = 1 };
    for (int i = 0; i < N; i++) x[i] = -100.0f + 0.2f * (float)i;
    for (int k = 0; k < 3 * 17; k++) {
        int64_t n = N - k / 3;
        op_args a = { .attr = { .act = acts[k % 3] } };
        for (int i = 0; i < OP_INPUTS; i++) a.in[i] = ABSENT;
        for (int i = 0; i < OP_OUTPUTS; i++) a.out[i] = ABSENT;
        a.in[0] = TENSOR(CLOOB_F32, x, 1, n);
        a.out[0] = TENSOR(CLOOB_F32, apart, 1, n);
        CHECK_OK(ctx, op_kernels_cpu[OP_ACT].run(&env, &a));
        memcpy(here, x, sizeof x);
        a.in[0] = a.out[0] = TENSOR(CLOOB_F32, here, 1, n);
        CHECK_OK(ctx, op_kernels_cpu[OP_ACT].run(&env, &a));
        CHECK(memcmp(here, apart, (size_t)n * sizeof *here) == 0);
    }
}

/* Rows added onto the other gradient where that lies: the same bytes as apart. */
static void rows_add_in_place_on(const char *name)
{
    enum { N = 3, T = 5, C = 24 };
    float dy[N * C], extra[N * T * C], apart[N * T * C], here[N * T * C];
    int32_t index[N] = { 4, 0, 2 };
    device *dev = NULL;
    void *at[4] = { NULL };
    const void *from[] = { dy, index, extra, extra };
    size_t bytes[] = { sizeof dy, sizeof index, sizeof extra, sizeof extra };
    for (int i = 0; i < N * C; i++) dy[i] = (float)rng_normal(1, (uint64_t)i);
    for (int i = 0; i < N * T * C; i++) extra[i] = (float)rng_normal(2, (uint64_t)i);
    CHECK_OK(ctx, device_open(ctx, name, &dev));
    for (int k = 0; k < 4; k++) {
        CHECK_OK(ctx, dev->alloc(ctx, dev, bytes[k], "a tensor", &at[k]));
        CHECK_OK(ctx, dev->to_device(ctx, dev, at[k], from[k], bytes[k]));
    }
    op_env env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 };
    const op_kernel *kernel = op_find_kernel(dev->backend, OP_TAKE_ROWS_BWD);
    CHECK(kernel->adds_in_place);
    for (int named = 0; named < 2; named++) {
        op_args a = { .attr = { 0 } };
        for (int i = 0; i < OP_INPUTS; i++) a.in[i] = ABSENT;
        for (int i = 0; i < OP_OUTPUTS; i++) a.out[i] = ABSENT;
        a.in[0] = TENSOR(CLOOB_F32, at[0], N, C);
        if (named) a.in[1] = TENSOR(CLOOB_I32, at[1], N);
        a.in[2] = a.in[OP_RESIDUAL] = TENSOR(CLOOB_F32, at[2], N, T, C);
        a.out[0] = TENSOR(CLOOB_F32, at[3], N, T, C);
        CHECK_OK(ctx, kernel->run(&env, &a));
        CHECK_OK(ctx, dev->to_host(ctx, dev, apart, at[3], sizeof apart));
        a.out[0].data = at[2];
        CHECK_OK(ctx, kernel->run(&env, &a));
        CHECK_OK(ctx, dev->to_host(ctx, dev, here, at[2], sizeof here));
        CHECK(memcmp(here, apart, sizeof here) == 0);
        CHECK(memcmp(here, extra, sizeof here) != 0);
        CHECK_OK(ctx, dev->to_device(ctx, dev, at[2], extra, sizeof extra));
    }
    for (int k = 0; k < 4; k++) dev->free(dev, at[k]);
    device_close(dev);
}

static void rows_add_in_place(void)
{
    rows_add_in_place_on("cpu");
    if (device_cuda_count() > 0) rows_add_in_place_on("cuda");
}

/* A made-up kernel for groups on the CPU, right or with one sign flipped: the comparison tells them apart. */
static bool flips;

static cloob_status claim(const op_env *env, op_group *g, bool *claims)
{
    (void)env, (void)g;
    *claims = true;
    return CLOOB_OK;
}

static cloob_status run_by_ref(const op_env *env, const op_group *g)
{
    for (int i = 0; i < g->members; i++) CLOOB_TRY(op_kernels_ref[g->member[i]->op].run(env, g->member[i]));
    const tensor *y = &g->member[0]->out[0], *mean = &g->member[1]->out[0];
    if (flips) ((float *)mean->data)[3] *= -1.0f;
    CHECK(y->data && mean->data);
    return CLOOB_OK;
}

static float no_ms(const op_args *a) { return (void)a, 0.0f; }

static void a_flipped_sign_is_found(void)
{
    const group_kernel kernel = {
        .name = "made up", GROUP_PATTERN(OP_CONV2D, OP_BN_STATS), .prepare = claim, .run = run_by_ref
    };
    const group_table table = { &kernel, 1, no_ms };
    const group_case *c = &group_cases[0];
    device *dev = NULL;
    group_pass p;
    int claimed, used = 0;
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    CHECK(c->kind == CONV_STATS && group_pass_run(ctx, c, CLOOB_F32, false, &p));
    CHECK(group_compare(ctx, dev, &table, c, &p, &claimed, &used) == 0 && claimed == 2 && used == 1);
    flips = true;
    CHECK(group_compare(ctx, dev, &table, c, &p, &claimed, &used) > 1e-2);
    group_pass_release(&p);
    device_close(dev);
}

static void ref_has_every_op(void)
{
    for (int op = 0; op < OP_COUNT; op++) CHECK(op_find_kernel(BACKEND_REF, (op_id)op) != NULL);
}

/* test_ops [cuda [I/N]]: the GPU's part alone, or the I-th of N parts of it (from 0), for compute-sanitizer */
int main(int argc, char **argv)
{
    bool all = argc < 2 || strcmp(argv[1], "cuda") != 0;
    if (argc > 2) CHECK(sscanf(argv[2], "%d/%d", &part, &parts) == 2 && part >= 0 && parts > 0);
    ctx = cloob_ctx_create(NULL);
    ctx->kernels.fused_gemm = FUSED_GEMM_4_CONSUMERS; /* groups by one GEMM, whatever timing says */
    if (all) RUN(ref_has_every_op);
    if (all) RUN(rows_in_8_bits_have_scales_of_their_own);
    if (all) RUN(activations_work_in_place);
    if (all) RUN(rows_add_in_place);
    if (all) RUN(gradients_are_slopes);
    if (all) RUN(a_flipped_sign_is_found);
    if (all) RUN(cpu_agrees_with_ref);
    if (all) RUN(cpu_agrees_with_ref_in_bf16);
    RUN(cuda_agrees_with_ref);
    RUN(cuda_agrees_with_ref_in_bf16);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
