/* GEMMs in bf16, and their plans. F32 GEMMs need none: BLAS takes memory of its own. */

#include "nn/cpu/gemm_op.h"

static gemm_call forward_call(const op_args *a)
{
    int64_t R = tensor_rows(&a->out[0]), O = tensor_cols(&a->out[0]), K = tensor_cols(&a->in[0]);
    bool transposed = a->attr.transposed;
    return (gemm_call){ .M = R,
                        .N = O,
                        .K = K,
                        .a = gemm_matrix(a->in[0].data, R, K, K),
                        .b = transposed ? gemm_matrix(a->in[1].data, K, O, O) : gemm_matrix(a->in[1].data, O, K, K),
                        .tb = !transposed,
                        .c = a->out[0].data,
                        .c_bf16 = true,
                        .ldc = O,
                        .bias = a->in[2].data,
                        .res = a->in[3].data };
}

static gemm_call dx_call(const op_args *a)
{
    int64_t R = tensor_rows(&a->in[0]), O = tensor_cols(&a->in[0]), K = tensor_cols(&a->out[0]);
    bool transposed = a->attr.transposed;
    return (gemm_call){ .M = R,
                        .N = K,
                        .K = O,
                        .a = gemm_matrix(a->in[0].data, R, O, O),
                        .b = transposed ? gemm_matrix(a->in[1].data, K, O, O) : gemm_matrix(a->in[1].data, O, K, K),
                        .tb = transposed,
                        .c = a->out[0].data,
                        .c_bf16 = true,
                        .ldc = K };
}

/* dw (O, K) = dy^T x, or (K, O) = x^T dy. */
static gemm_call dw_call(const op_args *a)
{
    int64_t R = tensor_rows(&a->in[0]), O = tensor_cols(&a->in[0]), K = tensor_cols(&a->in[1]);
    gemm_view dy = gemm_matrix(a->in[0].data, R, O, O), x = gemm_matrix(a->in[1].data, R, K, K);
    bool transposed = a->attr.transposed;
    return (gemm_call){ .M = transposed ? K : O,
                        .N = transposed ? O : K,
                        .K = R,
                        .a = transposed ? x : dy,
                        .ta = true,
                        .b = transposed ? dy : x,
                        .c = a->out[0].data,
                        .ldc = transposed ? O : K };
}

static bool is_bf16(const op_args *a) { return a->in[0].dtype == CLOOB_BF16; }

cloob_status linear_prepare(const op_env *env, op_args *a)
{
    gemm_call x = forward_call(a);
    if (op_has(&a->in[2]) && a->in[2].dtype == CLOOB_BF16)
        return op_refuse(env->ctx, OP_LINEAR, "on the CPU the bias is F32");
    return is_bf16(a) ? gemm_bf16_prepare(env, a, &x, true) : linear_frozen_prepare(env, a);
}

cloob_status linear_bf16(const op_env *env, const op_args *a)
{
    gemm_call x = forward_call(a);
    gemm_op_rounding(a, &x);
    x.M = x.a.rows = op_live_rows(env, &a->out[0]);
    return gemm_bf16_run(env, a, &x, true);
}

cloob_status linear_dx_prepare(const op_env *env, op_args *a)
{
    gemm_call x = dx_call(a);
    return is_bf16(a) ? gemm_bf16_prepare(env, a, &x, true) : CLOOB_OK;
}

cloob_status linear_dx_bf16(const op_env *env, const op_args *a)
{
    gemm_call x = dx_call(a);
    return gemm_bf16_run(env, a, &x, true);
}

cloob_status linear_dw_prepare(const op_env *env, op_args *a)
{
    gemm_call x = dw_call(a);
    return is_bf16(a) && op_has(&a->out[0]) ? gemm_bf16_prepare(env, a, &x, false) : CLOOB_OK;
}

cloob_status linear_dw_bf16(const op_env *env, const op_args *a)
{
    gemm_call x = dw_call(a);
    cpu_sum_columns(env, &a->in[0], NULL, tensor_cols(&a->in[0]), a->out[1].data);
    return a->out[0].data ? gemm_bf16_run(env, a, &x, false) : CLOOB_OK;
}

/* ---- one GEMM per head --------------------------------------------------------------------------- */

typedef struct heads {
    int64_t N, H, C, E;
} heads;

/* u[:, h] = scale x[:, h E ..] w[h E ..]. */
static gemm_call project_call(const op_args *a, int64_t h)
{
    heads z = { a->out[0].dim[0], a->out[0].dim[1], a->out[0].dim[2], a->in[1].dim[0] / a->out[0].dim[1] };
    return (gemm_call){ .M = z.N,
                        .N = z.C,
                        .K = z.E,
                        .a = gemm_matrix((const uint16_t *)a->in[0].data + h * z.E, z.N, z.E, z.H * z.E),
                        .b = gemm_matrix((const uint16_t *)a->in[1].data + h * z.E * z.C, z.E, z.C, z.C),
                        .c = (uint16_t *)a->out[0].data + h * z.C,
                        .c_bf16 = true,
                        .ldc = z.H * z.C,
                        .alpha = a->attr.scale };
}

/* o[:, h E ..] = scale s[:, h] w[h E ..]^T + bias. */
static gemm_call collect_call(const op_args *a, int64_t h)
{
    heads z = { a->in[0].dim[0], a->in[0].dim[1], a->in[0].dim[2], a->in[1].dim[0] / a->in[0].dim[1] };
    return (gemm_call){ .M = z.N,
                        .N = z.E,
                        .K = z.C,
                        .a = gemm_matrix((const uint16_t *)a->in[0].data + h * z.C, z.N, z.C, z.H * z.C),
                        .b = gemm_matrix((const uint16_t *)a->in[1].data + h * z.E * z.C, z.E, z.C, z.C),
                        .tb = true,
                        .c = (uint16_t *)a->out[0].data + h * z.E,
                        .c_bf16 = true,
                        .ldc = z.H * z.E,
                        .alpha = a->attr.scale,
                        .bias = a->in[2].data ? (const float *)a->in[2].data + h * z.E : NULL };
}

/* dw[h E ..] = scale x[:, h E ..]^T u[:, h]. */
static gemm_call heads_dw_call(const op_args *a, int64_t h)
{
    heads z = { a->in[1].dim[0], a->in[1].dim[1], a->in[1].dim[2], a->in[2].dim[0] / a->in[1].dim[1] };
    return (gemm_call){ .M = z.E,
                        .N = z.C,
                        .K = z.N,
                        .a = gemm_matrix((const uint16_t *)a->in[0].data + h * z.E, z.N, z.E, z.H * z.E),
                        .ta = true,
                        .b = gemm_matrix((const uint16_t *)a->in[1].data + h * z.C, z.N, z.C, z.H * z.C),
                        .c = (float *)a->out[0].data + h * z.E * z.C,
                        .ldc = z.C,
                        .alpha = a->attr.scale };
}

typedef gemm_call head_call(const op_args *a, int64_t h);

/* Heads take turns on the same scratch. */
static cloob_status heads_plan(const op_env *env, op_args *a, head_call *call)
{
    if (!is_bf16(a)) return CLOOB_OK;
    static const uint16_t nowhere; /* sizes are read, not data: no arithmetic on NULL */
    op_args some = *a;
    for (int k = 0; k < 3; k++) some.in[k].data = (void *)(uintptr_t)&nowhere;
    some.out[0].data = (void *)(uintptr_t)&nowhere;
    gemm_call x = call(&some, 0);
    return gemm_bf16_prepare(env, a, &x, false);
}

static cloob_status heads_run(const op_env *env, const op_args *a, head_call *call, int64_t H)
{
    for (int64_t h = 0; h < H; h++) {
        gemm_call x = call(a, h);
        CLOOB_TRY(gemm_bf16_run(env, a, &x, false));
    }
    return CLOOB_OK;
}

cloob_status heads_project_prepare(const op_env *env, op_args *a) { return heads_plan(env, a, project_call); }

cloob_status heads_project_bf16(const op_env *env, const op_args *a)
{
    return heads_run(env, a, project_call, a->out[0].dim[1]);
}

cloob_status heads_collect_prepare(const op_env *env, op_args *a)
{
    if (op_has(&a->in[2]) && a->in[2].dtype == CLOOB_BF16)
        return op_refuse(env->ctx, OP_HEADS_COLLECT, "on the CPU the bias is F32");
    return heads_plan(env, a, collect_call);
}

cloob_status heads_collect_bf16(const op_env *env, const op_args *a)
{
    return heads_run(env, a, collect_call, a->in[0].dim[1]);
}

cloob_status heads_dw_prepare(const op_env *env, op_args *a) { return heads_plan(env, a, heads_dw_call); }

cloob_status heads_dw_bf16(const op_env *env, const op_args *a)
{
    cpu_sum_columns(env, &a->in[0], NULL, a->in[2].dim[0], a->out[1].data);
    return a->out[0].data ? heads_run(env, a, heads_dw_call, a->in[1].dim[1]) : CLOOB_OK;
}
