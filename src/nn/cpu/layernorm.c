/* Layer norm. Gain and bias gradients are summed over fixed chunks of rows and then in order. */
#include "nn/cpu/cpu.h"
#include "tensor/cpu/gemm_packed.h"

enum { CHUNK = 64 };

typedef struct job {
    const void *dy, *x, *extra;
    const float *gain, *bias;
    void *y, *dx;
    void *rounded; /* y in 8 bits (op.h), or NULL */
    float *mean, *rstd, *part;
    int64_t R, C;
    float eps;
} job;

#include "nn/cpu/real_f32.h"
#include "nn/cpu/layernorm_loops.h"
#include "nn/cpu/real_bf16.h"
#include "nn/cpu/layernorm_loops.h"

cloob_status layernorm_cpu(const op_env *env, const op_args *a)
{
    job j = { .x = a->in[0].data,
              .gain = a->in[1].data,
              .bias = a->in[2].data,
              .y = cpu_own_out(a),
              .rounded = cpu_rounded_out(a),
              .mean = a->out[1].data,
              .rstd = a->out[2].data,
              .R = op_live_rows(env, &a->in[0]),
              .C = tensor_cols(&a->in[0]),
              .eps = a->attr.eps };
    pool_share(env->ctx, j.R, 8, CPU_PICK(a->in[0], forward_range), &j);
    return CLOOB_OK;
}

static int64_t chunks(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }

cloob_status layernorm_bwd_prepare(const op_env *env, op_args *a)
{
    (void)env;
    a->scratch_bytes = (size_t)(chunks(tensor_rows(&a->in[1])) * 2 * tensor_cols(&a->in[1])) * sizeof(float);
    return CLOOB_OK;
}

cloob_status layernorm_bwd_cpu(const op_env *env, const op_args *a)
{
    if (a->attr.sums) return op_kernels_ref[OP_LAYERNORM_BWD].run(env, a); /* as in act_bwd_cpu */
    job j = { .dy = a->in[0].data,
              .x = a->in[1].data,
              .mean = a->in[2].data,
              .rstd = a->in[3].data,
              .gain = a->in[4].data,
              .extra = a->in[5].data,
              .dx = a->out[0].data,
              .part = a->scratch,
              .R = tensor_rows(&a->in[1]),
              .C = tensor_cols(&a->in[1]) };
    float *dgain = a->out[1].data, *dbias = a->out[2].data;
    int64_t K = chunks(j.R);
    pool_for(env->ctx, K, 1, CPU_PICK(a->in[1], backward_range), &j);
    for (int64_t c = 0; c < j.C; c++) {
        double gain = 0, bias = 0;
        for (int64_t k = 0; k < K; k++)
            gain += (double)j.part[k * 2 * j.C + c], bias += (double)j.part[(k * 2 + 1) * j.C + c];
        if (dgain) dgain[c] = (float)gain;
        if (dbias) dbias[c] = (float)bias;
    }
    op_args recomputed = layernorm_recompute(a);
    return recomputed.out[0].data ? layernorm_cpu(env, &recomputed) : CLOOB_OK;
}
