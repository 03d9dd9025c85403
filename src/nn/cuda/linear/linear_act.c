/* Groups of a GEMM and its activation, linear then act, or linear_dx then act_bwd: by one kernel (act_gemm.h). */
#include "nn/cuda/groups.h"
#include "nn/cuda/linear/act_gemm.h"

/* From this many rows on the kernel takes less time than cuBLASLt and a pass, measured on an H200 for RN50, RN50x4,
 * ViT-B-32 and ViT-B-16: 0.36 and 0.46 ms forward, 0.38 and 0.55 ms backward for 51,200 rows of 768. */
enum { ENOUGH_ROWS = 4096 };

static act_gemm gemm_of(const op_group *g)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    bool backward = act->op == OP_ACT_BWD;
    act_gemm j = { .m = tensor_rows(&gemm->in[0]),
                   .n = gemm->in[1].dim[backward],
                   .k = gemm->in[1].dim[!backward],
                   .backward = backward,
                   .act = act->attr.act,
                   .a = gemm->in[0].data,
                   .b = gemm->in[1].data,
                   .bias = act->in[backward ? 2 : 1].data,
                   .x = backward ? act->in[1].data : gemm->out[0].data,
                   .y = act->out[0].data };
    if (backward) j.recomputed = act->out[1].data, j.partial = act->out[2].data ? g->scratch : NULL;
    return j;
}

/* With enough rows, or as the context asks. */
cloob_status linear_act_prepare_cuda(const op_env *env, op_group *g, bool *claims)
{
    const op_args *gemm = g->member[0], *act = g->member[1];
    act_gemm j = gemm_of(g);
    fused_gemm_choice asked = env->ctx->kernels.fused_gemm;
    bool plain = !gemm->attr.transposed && gemm->attr.fp8 == OP_FP8_NEVER && !op_has(&act->out[OP_ROUNDED_OUT]) &&
                 (j.backward ? group_inner(g, gemm) : !op_has(&gemm->in[2]) && !op_has(&gemm->in[3]));
    bool possible = asked != FUSED_GEMM_NEVER && cuda_has_hopper(env->dev) && plain &&
                    gemm->in[0].dtype == CLOOB_BF16 && act_gemm_parts(&j, cuda_sms(env)) > 0;
    *claims = possible && (asked != FUSED_GEMM_AUTO || j.m >= ENOUGH_ROWS);
    if (*claims && j.backward && op_has(&act->out[2]))
        g->scratch_bytes = (size_t)act_gemm_parts(&j, cuda_sms(env)) * (size_t)j.n * sizeof(float);
    return CLOOB_OK;
}

cloob_status linear_act_cuda(const op_env *env, const op_group *g)
{
    act_gemm j = gemm_of(g);
    CLOOB_TRY(cuda_check(env->ctx, act_gemm_run(env->stream, &j, cuda_sms(env)), g->kernel->name));
    if (!j.partial) return CLOOB_OK;
    return colsum_finish(env, g->kernel->name, g->member[1]->out[2].data, j.partial, act_gemm_parts(&j, cuda_sms(env)),
                         j.n);
}
