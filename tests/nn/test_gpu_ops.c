/* GPU kernels at sizes that fill the chip: grids that go around several times, every tile of attention,
 * tokens that repeat often. The small odd sizes are in test_ops.
 *
 * CHECK_SMALL=1 in the environment makes every case small, for compute-sanitizer, and lets kernels take the GPU for one
 * with three multiprocessors, so that their blocks still go around several times. Groups then run in bf16
 * alone. */
#include "check.h"
#include "group_harness.h"

#ifdef HAVE_CUDA
#    include "tensor/cuda/cuda.h"
#endif

static cloob_ctx *ctx;
static const char *word;        /* cases whose names hold it; NULL: all */
static int part = 0, parts = 1; /* every parts-th case, from `part` on */
static bool small;
static device *cpu; /* computes what large calls are compared with */

static cloob_status open_device(device **dev)
{
    cloob_status status = device_open(ctx, "cuda", dev);
#ifdef HAVE_CUDA
    if (status == CLOOB_OK && small) ((cuda_state *)(*dev)->state)->sms = 3;
#endif
    return status;
}

static void compare_call(device *dev, const op_case *c, op_pass *p, int step, cloob_dtype type, double tolerance)
{
    op_id op = step < 0 ? c->op : p->rule[step].op;
    bool ran;
    if (op == OP_COUNT) return;
    double error = op_compare(ctx, dev, op, step < 0 ? &p->forward : &p->step[step], step < 0 ? p->before : NULL, &ran);
    if (ran && error >= 0 && error <= tolerance) return;
    printf("  %s / %s (%s): error %.3g\n", c->name, op_table[op].name, dtype_name(type), error);
    CHECK(!"agrees");
}

static void compare(cloob_dtype type, double tolerance)
{
    device *dev = NULL;
    CHECK_OK(ctx, open_device(&dev));
    for (int i = 0; dev && i < gpu_op_case_count; i++) {
        op_case reduced = op_case_small(&gpu_op_cases[i]);
        const op_case *c = small ? &reduced : &gpu_op_cases[i];
        op_pass p;
        if (i % parts != part || (word && !strstr(c->name, word))) continue;
        if (parts > 1) printf("  %s, %s\n", c->name, dtype_name(type)); /* for the list of what a tool has seen */
        bool ran = op_pass_run(ctx, c, type, 3, &p);
        CHECK(ran);
        if (!ran) continue;
        for (int s = -1; s < p.steps; s++) compare_call(dev, c, &p, s, type, tolerance);
        op_pass_release(&p);
    }
    device_close(dev);
}

static const kernel_choices fused[] = { { .fused_gemm = FUSED_GEMM_4_CONSUMERS },
                                        { .fused_gemm = FUSED_GEMM_2_CONSUMERS },
                                        { .fused_gemm = FUSED_GEMM_NEVER } };

static void compare_group(device *dev, const group_case *c, cloob_dtype type, double tolerance, int ways, int *used)
{
    group_pass p;
    int claimed;
    bool ran = group_pass_run(ctx, c, type, small, &p);
    CHECK(ran);
    for (int w = 0; ran && w < ways; w++) {
        ctx->kernels = fused[w];
        double error = group_compare(ctx, dev, &group_kernels_cuda, c, &p, &claimed, used);
        if (error >= 0 && error <= tolerance) continue;
        printf("  group %s (%s, choice %d): error %.3g\n", c->name, dtype_name(type), w, error);
        CHECK(!"agrees");
    }
    group_pass_release(&p);
}

/* Every kernel for groups claims at least one case where the GPU has them all. Sizes that send a bf16 kernel around
 * several times are left out in F32: nothing else looks different there, and the definition takes seconds. */
static void compare_groups(cloob_dtype type, double tolerance, int ways)
{
    enum { KERNELS = 64 };
    device *dev = NULL;
    int used[KERNELS] = { 0 };
    CHECK_OK(ctx, open_device(&dev));
    for (int i = 0; dev && i < gpu_group_case_count; i++) {
        const group_case *c = &gpu_group_cases[i];
        if (i % parts != part || (word && !strstr(c->name, word))) continue;
        if (type == CLOOB_F32 && (small || strstr(c->name, " long"))) continue;
        if (parts > 1) printf("  %s, %s\n", c->name, dtype_name(type));
        compare_group(dev, c, type, tolerance, ways, used);
    }
#ifdef HAVE_CUDA
    bool all = dev && type == CLOOB_BF16 && !word && parts == 1 && cuda_has_hopper(dev);
    for (int k = 0; all && k < group_kernels_cuda.count; k++) {
        if (!used[k]) printf("  no case for %s\n", group_kernels_cuda.kernel[k].name);
        CHECK(used[k] > 0);
    }
#endif
    device_close(dev);
}

static void large_sizes_agree(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(CLOOB_F32, 2e-5);
    compare_groups(CLOOB_F32, 2e-5, 1);
}

static void large_sizes_agree_in_bf16(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare(CLOOB_BF16, 1e-2);
}

static void groups_agree_in_every_way(void)
{
    if (device_cuda_count() == 0) SKIP("no GPU here");
    compare_groups(CLOOB_BF16, 1e-2, small ? 2 : 3);
}

/* test_gpu_ops [fused | I/N | WORD]: the groups alone; the I-th of N parts (from 0), for several processes side by
 * side; cases whose names contain WORD */
int main(int argc, char **argv)
{
    bool all = argc < 2 || strcmp(argv[1], "fused") != 0;
    if (all && argc > 1 && strchr(argv[1], '/')) CHECK(sscanf(argv[1], "%d/%d", &part, &parts) == 2 && parts > 0);
    else if (all && argc > 1) word = argv[1];
    small = getenv("CHECK_SMALL") != NULL;
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, device_open(ctx, "cpu", &cpu));
    harness_use_cpu(cpu);
    if (all) RUN(large_sizes_agree);
    if (all) RUN(large_sizes_agree_in_bf16);
    RUN(groups_agree_in_every_way);
    device_close(cpu);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
