/* GEMMs of inference in F32 and, on request, with 8-bit weights. The first run packs weights panel by panel on the
 * way, so that a program that embeds one text does not pay for a copy of the model; from the second on they are cached,
 * for all executors of these weights. Both give the same bytes. */

#include <stdlib.h>

#include "nn/cpu/gemm_op.h"
#include "tensor/cpu/gemm_kernels.h"

typedef struct frozen {
    const gemm_kernel *kernel; /* NULL: few rows, from the weight as it is */
    bool ran;
} frozen;

/* 7 bits where that is faster. Of a text, which suffers more, square weights have 13: the projection behind attention
 * is a twelfth of a block's work, and 7 bits lose as much there as in either half of the MLP, four times as large. */
static gemm_kind int8_kind(const op_env *env, const gemm_call *x)
{
    return (env->int8_fast || x->N != x->K) && gemm_is_fast(GEMM_I8_GROUPS) ? GEMM_I8_GROUPS : GEMM_I8;
}

cloob_status linear_frozen_prepare(const op_env *env, op_args *a)
{
    bool few = tensor_rows(&a->out[0]) < GEMM_FEW && !env->invariant;
    bool int8 = env->int8 && !a->attr.transposed; /* scales are per output: rows of a weight (out, in) */
    gemm_call x = linear_call(a, tensor_rows(&a->out[0]));
    if (!env->frozen_weights || !(few || int8 || gemm_is_fast(GEMM_F32))) return CLOOB_OK;
    frozen *f = calloc(1, sizeof *f);
    if (!f) return ctx_no_memory(env->ctx, sizeof *f, "a GEMM");
    if (int8 || !few) f->kernel = gemm_best(int8 ? int8_kind(env, &x) : GEMM_F32);
    size_t bytes = int8 ? gemm_scratch(env->ctx, f->kernel, &x, true) : few ? 0 : gemm_op_scratch(env, f->kernel, &x);
    if (bytes > a->scratch_bytes)
        a->scratch_bytes = bytes; /* gemm_op's: what runs where 8-bit weights find no memory */
    a->state = f;
    return CLOOB_OK;
}

bool linear_frozen(const op_env *env, const op_args *a)
{
    frozen *f = a->state;
    if (!f) return false;
    gemm_call x = linear_call(a, op_live_rows(env, &a->out[0]));
    if (!f->kernel) {
        gemm_f32_few(env->ctx, &x);
        return true;
    }
    bool floats = f->kernel->kind == GEMM_F32;
    x.packed = floats && !f->ran ? weight_cache_find(env->cache, x.b.data) : gemm_op_cached(env, f->kernel, &x);
    if (!x.packed && !floats) return false; /* no memory for 8-bit weights: the caller multiplies floats */
    f->ran = true;
    gemm_packed_run(env->ctx, f->kernel, &x, a->scratch);
    return true;
}

void linear_release(const op_env *env, op_args *a)
{
    (void)env;
    free(a->state);
    a->state = NULL;
}
