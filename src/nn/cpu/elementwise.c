/* relu, add, pool and activations. */
#include <string.h>

#include "nn/cpu/cpu.h"
#include "tensor/cpu/gemm_packed.h"

typedef struct job {
    const void *a, *b;
    void *y;
    op_act act;
    void *rounded; /* y in 8 bits (op.h), or NULL */
} job;

typedef struct pool_job {
    planes big;
    const void *from;
    void *to, *rounded;
} pool_job;

CPU_INLINE float sigmoid(float x) { return 1.0f / (1.0f + vmath_exp(-x)); }

#include "nn/cpu/real_f32.h"
#include "nn/cpu/elementwise_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/elementwise_loops.h"

/* Groups of an activation in 8 bits. */
static void act_rounded_range(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { SOME = 16 };
    const job *j = arg;
    uint16_t some[SOME * GEMM_U8_GROUP];
    for (int64_t g = begin; g < end; g += SOME) {
        int64_t groups = end - g < SOME ? end - g : SOME, n = groups * GEMM_U8_GROUP;
        job one = { (const uint16_t *)j->a + g * GEMM_U8_GROUP, NULL, some, j->act, NULL };
        act_range_bf16(&one, 0, n, thread);
        if (j->y) memcpy((uint16_t *)j->y + g * GEMM_U8_GROUP, some, (size_t)n * sizeof *some);
        gemm_u8_round_groups(some, groups, j->rounded, g);
    }
}

static cloob_status each(const op_env *env, const op_args *a, pool_fn *fn)
{
    job j = { a->in[0].data, a->in[1].data, cpu_own_out(a), a->attr.act, cpu_rounded_out(a) };
    int64_t n = tensor_count(&a->out[0]), places = a->out[0].ndim > 0 ? a->out[0].dim[0] : 1;
    if (places) n = n / places * op_live_places(env, &a->out[0]);
    if (j.rounded) pool_share(env->ctx, n / GEMM_U8_GROUP, 1 << 8, act_rounded_range, &j);
    else pool_share(env->ctx, n, 1 << 14, fn, &j);
    return CLOOB_OK;
}

cloob_status relu_cpu(const op_env *env, const op_args *a) { return each(env, a, CPU_PICK(a->in[0], relu_range)); }

cloob_status add_cpu(const op_env *env, const op_args *a) { return each(env, a, CPU_PICK(a->in[0], add_range)); }

cloob_status act_cpu(const op_env *env, const op_args *a)
{
    if (a->in[1].data) return op_kernels_ref[OP_ACT].run(env, a); /* for GPUs: not used here */
    return each(env, a, CPU_PICK(a->in[0], act_range));
}

cloob_status act_bwd_cpu(const op_env *env, const op_args *a)
{
    if (a->attr.sums || a->in[2].data) return op_kernels_ref[OP_ACT_BWD].run(env, a); /* for GPUs, too */
    op_args recomputed = act_recompute(a);
    CLOOB_TRY(each(env, a, CPU_PICK(a->in[0], act_bwd_range)));
    return recomputed.out[0].data ? act_cpu(env, &recomputed) : CLOOB_OK;
}

static cloob_status each_row(const op_env *env, const op_args *a, const tensor *big, int64_t rows, pool_fn *fn)
{
    pool_job j = { planes_of(big), a->in[0].data, cpu_own_out(a), cpu_rounded_out(a) };
    pool_share(env->ctx, op_live_places(env, big) * rows, 1, fn, &j);
    return CLOOB_OK;
}

cloob_status avgpool2_cpu(const op_env *env, const op_args *a)
{
    return each_row(env, a, &a->in[0], a->out[0].dim[1], CPU_PICK(a->in[0], pool_range));
}

cloob_status avgpool2_bwd_cpu(const op_env *env, const op_args *a)
{
    return each_row(env, a, &a->out[0], a->out[0].dim[1], CPU_PICK(a->in[0], unpool_range));
}
