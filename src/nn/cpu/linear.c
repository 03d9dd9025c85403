/* GEMMs with bias and residual, and the attention pool's GEMMs per head. An op is described by a gemm_call, whatever
 * the element type (gemm_op.c); linear_frozen.c has F32 in inference. */
#include "nn/cpu/gemm_op.h"

/* Element n of a tensor; NULL while planning. */
static void *at(const tensor *t, int64_t n)
{
    return t->data ? (char *)t->data + (size_t)n * dtype_size(t->dtype) : NULL;
}

static bool is_bf16(const op_args *a) { return a->in[0].dtype == CLOOB_BF16; }

/* ---- linear ---------------------------------------------------------------------------------------- */

/* A weight of O outputs and K inputs, stored (O, K) or transposed. */
static gemm_view weight_of(const op_args *a, int64_t O, int64_t K)
{
    return a->attr.transposed ? gemm_matrix(a->in[1].data, K, O, O) : gemm_matrix(a->in[1].data, O, K, K);
}

gemm_call linear_call(const op_args *a, int64_t rows)
{
    int64_t O = tensor_cols(&a->out[0]), K = tensor_cols(&a->in[0]);
    return (gemm_call){ .M = rows,
                        .N = O,
                        .K = K,
                        .a = gemm_matrix(a->in[0].data, rows, K, K),
                        .b = weight_of(a, O, K),
                        .tb = !a->attr.transposed,
                        .c = a->out[0].data,
                        .c_bf16 = is_bf16(a),
                        .ldc = O,
                        .bias = a->in[2].data,
                        .res = a->in[3].data };
}

static gemm_call dx_call(const op_args *a)
{
    int64_t R = tensor_rows(&a->in[0]), O = tensor_cols(&a->in[0]), K = tensor_cols(&a->out[0]);
    return (gemm_call){ .M = R,
                        .N = K,
                        .K = O,
                        .a = gemm_matrix(a->in[0].data, R, O, O),
                        .b = weight_of(a, O, K),
                        .tb = a->attr.transposed,
                        .c = a->out[0].data,
                        .c_bf16 = is_bf16(a),
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

/* On the CPU biases are F32. */
static cloob_status check_bias(const op_env *env, const op_args *a, op_id op)
{
    bool bf16 = op_has(&a->in[2]) && a->in[2].dtype == CLOOB_BF16;
    return bf16 ? op_refuse(env->ctx, op, "on the CPU the bias is F32") : CLOOB_OK;
}

cloob_status linear_prepare(const op_env *env, op_args *a)
{
    gemm_call x = linear_call(a, tensor_rows(&a->out[0]));
    CLOOB_TRY(check_bias(env, a, OP_LINEAR));
    CLOOB_TRY(gemm_op_prepare(env, a, &x, true));
    return is_bf16(a) ? CLOOB_OK : linear_frozen_prepare(env, a);
}

cloob_status linear_cpu(const op_env *env, const op_args *a)
{
    if (!is_bf16(a) && linear_frozen(env, a)) return CLOOB_OK;
    gemm_call x = linear_call(a, op_live_rows(env, &a->out[0]));
    gemm_op_rounding(a, &x);
    return gemm_op_run(env, a, &x, true);
}

cloob_status linear_dx_prepare(const op_env *env, op_args *a)
{
    gemm_call x = dx_call(a);
    return gemm_op_prepare(env, a, &x, true);
}

cloob_status linear_dx_cpu(const op_env *env, const op_args *a)
{
    gemm_call x = dx_call(a);
    return gemm_op_run(env, a, &x, true);
}

cloob_status linear_dw_prepare(const op_env *env, op_args *a)
{
    gemm_call x = dw_call(a);
    return op_has(&a->out[0]) ? gemm_op_prepare(env, a, &x, false) : CLOOB_OK;
}

cloob_status linear_dw_cpu(const op_env *env, const op_args *a)
{
    gemm_call x = dw_call(a);
    cpu_sum_columns(env, &a->in[0], NULL, tensor_cols(&a->in[0]), a->out[1].data);
    return a->out[0].data ? gemm_op_run(env, a, &x, false) : CLOOB_OK;
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
                        .a = gemm_matrix(at(&a->in[0], h * z.E), z.N, z.E, z.H * z.E),
                        .b = gemm_matrix(at(&a->in[1], h * z.E * z.C), z.E, z.C, z.C),
                        .c = at(&a->out[0], h * z.C),
                        .c_bf16 = is_bf16(a),
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
                        .a = gemm_matrix(at(&a->in[0], h * z.C), z.N, z.C, z.H * z.C),
                        .b = gemm_matrix(at(&a->in[1], h * z.E * z.C), z.E, z.C, z.C),
                        .tb = true,
                        .c = at(&a->out[0], h * z.E),
                        .c_bf16 = is_bf16(a),
                        .ldc = z.H * z.E,
                        .alpha = a->attr.scale,
                        .bias = at(&a->in[2], h * z.E) };
}

/* dw[h E ..] = scale x[:, h E ..]^T u[:, h]. */
static gemm_call heads_dw_call(const op_args *a, int64_t h)
{
    heads z = { a->in[1].dim[0], a->in[1].dim[1], a->in[1].dim[2], a->in[2].dim[0] / a->in[1].dim[1] };
    return (gemm_call){ .M = z.E,
                        .N = z.C,
                        .K = z.N,
                        .a = gemm_matrix(at(&a->in[0], h * z.E), z.N, z.E, z.H * z.E),
                        .ta = true,
                        .b = gemm_matrix(at(&a->in[1], h * z.C), z.N, z.C, z.H * z.C),
                        .c = at(&a->out[0], h * z.E * z.C),
                        .ldc = z.C,
                        .alpha = a->attr.scale };
}

typedef gemm_call head_call(const op_args *a, int64_t h);

/* Heads are multiplied one after another in the same scratch, and threads share the GEMM of a head. With few rows,
 * reading the weights limits the speed: then each thread takes whole heads, with its own scratch. Weights are packed
 * only if the packed copy can be cached. */
enum { FEW_ROWS = 4 };

typedef struct heads_job {
    const op_env *env;
    const op_args *a;
    head_call *call;
    const gemm_kernel *kernel;
    size_t room; /* scratch of a thread */
} heads_job;

static bool caches_weights(const op_env *env) { return env->frozen_weights && env->cache; }

static int ranges_of_heads(const op_env *env, const gemm_call *x, int64_t H)
{
    return caches_weights(env) && x->M <= FEW_ROWS ? pool_ranges(env->ctx, H, 1) : 1;
}

static cloob_status heads_plan(const op_env *env, op_args *a, head_call *call, int64_t H)
{
    gemm_call x = call(a, 0);
    CLOOB_TRY(gemm_op_prepare(env, a, &x, caches_weights(env)));
    a->scratch_bytes *= (size_t)ranges_of_heads(env, &x, H);
    return CLOOB_OK;
}

/* Heads whose weights are packed. */
static void heads_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const heads_job *j = arg;
    for (int64_t h = begin; h < end; h++) {
        gemm_call x = j->call(j->a, h);
        x.packed = gemm_op_cached(j->env, j->kernel, &x);
        gemm_packed_run(j->env->ctx, j->kernel, &x, (char *)j->a->scratch + (size_t)thread * j->room);
    }
}

static cloob_status heads_run(const op_env *env, const op_args *a, head_call *call, int64_t H)
{
    gemm_call x = call(a, 0);
    heads_job j = { env, a, call, gemm_best(is_bf16(a) ? GEMM_BF16 : GEMM_F32), 0 };
    j.room = gemm_op_scratch(env, j.kernel, &x);
    bool by_head = ranges_of_heads(env, &x, H) > 1;
    for (int64_t h = 0; h < H && by_head; h++) {
        x = call(a, h);
        by_head = gemm_op_cached(env, j.kernel, &x) != NULL;
    }
    if (by_head) pool_for(env->ctx, H, 1, heads_range, &j);
    for (int64_t h = 0; h < H && !by_head; h++) {
        x = call(a, h);
        CLOOB_TRY(gemm_op_run(env, a, &x, caches_weights(env)));
    }
    return CLOOB_OK;
}

cloob_status heads_project_prepare(const op_env *env, op_args *a)
{
    return heads_plan(env, a, project_call, a->out[0].dim[1]);
}

cloob_status heads_project_cpu(const op_env *env, const op_args *a)
{
    return heads_run(env, a, project_call, a->out[0].dim[1]);
}

cloob_status heads_collect_prepare(const op_env *env, op_args *a)
{
    CLOOB_TRY(check_bias(env, a, OP_HEADS_COLLECT));
    return heads_plan(env, a, collect_call, a->in[0].dim[1]);
}

cloob_status heads_collect_cpu(const op_env *env, const op_args *a)
{
    return heads_run(env, a, collect_call, a->in[0].dim[1]);
}

cloob_status heads_dw_prepare(const op_env *env, op_args *a)
{
    return heads_plan(env, a, heads_dw_call, a->in[1].dim[1]);
}

cloob_status heads_dw_cpu(const op_env *env, const op_args *a)
{
    cpu_sum_columns(env, &a->in[0], NULL, a->in[2].dim[0], a->out[1].data);
    return a->out[0].data ? heads_run(env, a, heads_dw_call, a->in[1].dim[1]) : CLOOB_OK;
}
