/* relu, add, pool and activations. */
#include "nn/cpu/cpu.h"

typedef struct job {
    const void *a, *b;
    void *y;
    op_act act;
} job;

typedef struct pool_job {
    planes big;
    const void *from;
    void *to;
} pool_job;

CPU_INLINE float sigmoid(float x) { return 1.0f / (1.0f + vmath_exp(-x)); }

#include "nn/cpu/real_f32.h"
#include "nn/cpu/elementwise_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/elementwise_loops.h"

static cloob_status each(const op_env *env, const op_args *a, pool_fn *fn)
{
    job j = { a->in[0].data, a->in[1].data, a->out[0].data, a->attr.act };
    int64_t n = tensor_count(&a->out[0]), places = a->out[0].ndim > 0 ? a->out[0].dim[0] : 1;
    if (places) n = n / places * op_live_places(env, &a->out[0]);
    pool_share(env->ctx, n, 1 << 14, fn, &j);
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

static cloob_status each_plane(const op_env *env, const op_args *a, const tensor *big, pool_fn *fn)
{
    pool_job j = { planes_of(big), a->in[0].data, a->out[0].data };
    pool_for(env->ctx, j.big.N * j.big.blocks, 1, fn, &j);
    return CLOOB_OK;
}

cloob_status avgpool2_cpu(const op_env *env, const op_args *a)
{
    return each_plane(env, a, &a->in[0], CPU_PICK(a->in[0], pool_range));
}

cloob_status avgpool2_bwd_cpu(const op_env *env, const op_args *a)
{
    return each_plane(env, a, &a->out[0], CPU_PICK(a->in[0], unpool_range));
}
