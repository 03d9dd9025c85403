/* Planning and running packed GEMMs. */
#include "nn/cpu/gemm_op.h"

#include "tensor/cpu/gemm_kernels.h"

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

const void *gemm_op_cached(const op_env *env, const gemm_kernel *kernel, const gemm_call *x)
{
    bool fresh = false;
    size_t element = kernel->kind == GEMM_BF16 || kernel->kind == GEMM_U8 ? sizeof(uint16_t) : sizeof(float);
    void *packed = weight_cache_get(env->cache, x->b.data, gemm_packed_bytes(kernel, x->N, x->K), &fresh);
    if (packed && fresh) {
        gemm_pack(env->ctx, kernel, x, packed);
        weight_cache_packed(env->cache, x->b.data, (size_t)(x->K * x->N) * element);
    }
    return packed;
}

size_t gemm_op_scratch(const op_env *env, const gemm_kernel *kernel, const gemm_call *x)
{
    size_t with = gemm_scratch(env->ctx, kernel, x, true), without = gemm_scratch(env->ctx, kernel, x, false);
    return with > without ? with : without;
}

/* Of a call whose left factor has this type. */
static gemm_kind kind_of(const op_args *a) { return a->in[0].dtype == CLOOB_BF16 ? GEMM_BF16 : GEMM_F32; }

static bool is_cached(const op_env *env, bool weight) { return weight && env->frozen_weights && env->cache; }

/* Columns from which on 8 bits are faster although every task rounds A, whose groups span pixels: a ResNet's stem has
 * fewer, the patches of a vision transformer more. */
enum { MANY_COLUMNS = 256 };

/* 8-bit weights have a scale per output: a row of a weight (out, in). They are multiplied packed or not at all. */
static bool in_8_bits(const op_env *env, const op_args *a, const gemm_call *x, bool weight)
{
    return env->int8 && kind_of(a) == GEMM_BF16 && a->op != OP_HEADS_COLLECT && is_cached(env, weight) && x->tb &&
           gemm_is_fast(GEMM_U8) && (x->N >= MANY_COLUMNS || gemm_u8_rounded_bytes(&x->a) > 0);
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

cloob_status gemm_op_prepare(const op_env *env, op_args *a, const gemm_call *x, bool weight)
{
    const gemm_kernel *kernel = gemm_best(kind_of(a));
    if (is_cached(env, weight)) a->scratch_bytes = gemm_op_scratch(env, kernel, x);
    else {
        size_t packed = weight ? round_up(gemm_packed_bytes(kernel, x->N, x->K)) : 0;
        a->scratch_bytes = gemm_scratch(env->ctx, kernel, x, weight) + packed;
    }
    if (in_8_bits(env, a, x, weight))
        a->scratch_bytes = largest(a->scratch_bytes, round_up(gemm_u8_rounded_bytes(&x->a)) +
                                                         gemm_scratch(env->ctx, gemm_best(GEMM_U8), x, true));
    return CLOOB_OK;
}

void gemm_op_rounding(const op_args *a, gemm_call *x)
{
    if (a->attr.rounded_in) x->rounded = a->in[OP_ROUNDED_IN].data ? a->in[OP_ROUNDED_IN].data : a->in[0].data;
    x->c = cpu_own_out(a);
    x->c_rounded = cpu_rounded_out(a);
}

/* Without memory for a cached weight each run packs it on the way, unless operands are in 8 bits. */
cloob_status gemm_op_run(const op_env *env, const op_args *a, gemm_call *x, bool weight)
{
    const gemm_kernel *kernel = gemm_best(in_8_bits(env, a, x, weight) ? GEMM_U8 : kind_of(a));
    char *scratch = a->scratch;
    if (is_cached(env, weight)) {
        x->packed = gemm_op_cached(env, kernel, x);
        if (!x->packed && (x->rounded || x->c_rounded))
            return ctx_no_memory(env->ctx, gemm_packed_bytes(kernel, x->N, x->K), "a weight in 8 bits");
        if (!x->packed) kernel = gemm_best(kind_of(a));
    } else if (weight) {
        gemm_pack(env->ctx, kernel, x, scratch);
        x->packed = scratch;
        scratch += round_up(gemm_packed_bytes(kernel, x->N, x->K));
    }
    size_t rounded = kernel->kind == GEMM_U8 && !x->rounded ? gemm_u8_rounded_bytes(&x->a) : 0;
    if (rounded) {
        gemm_u8_round(env->ctx, kernel, &x->a, scratch);
        x->rounded = scratch;
        scratch += round_up(rounded);
    }
    gemm_packed_run(env->ctx, kernel, x, scratch);
    return CLOOB_OK;
}

/* ---- operands in 8 bits -------------------------------------------------------------------------- */

/* A forward GEMM in 8 bits whose left factor may be rounded before. */
bool op_reads_rounded(const op_env *env, const op_args *a)
{
    int64_t C = tensor_cols(&a->in[0]);
    return (a->op == OP_LINEAR || a->op == OP_CONV2D) && env->int8 && is_cached(env, true) &&
           a->in[0].dtype == CLOOB_BF16 && !a->attr.transposed && gemm_is_fast(GEMM_U8) &&
           C == tensor_cols(&a->in[1]) && C % GEMM_U8_GROUP == 0;
}

bool op_writes_rounded(const op_env *env, const op_args *a)
{
    bool whole = a->out[0].dtype == CLOOB_BF16 && tensor_cols(&a->out[0]) % GEMM_U8_GROUP == 0;
    switch (a->op) {
    case OP_LINEAR:
    case OP_CONV2D: return whole && op_reads_rounded(env, a);
    case OP_LAYERNORM:
    case OP_AVGPOOL2: return whole;
    case OP_ACT: return whole && !op_has(&a->in[1]);
    case OP_ATTENTION: /* heads of whole groups; packed sequences have rows that nobody writes */
        return whole && tensor_cols(&a->out[0]) / a->attr.heads % GEMM_U8_GROUP == 0 && !op_has(&a->in[1]);
    default: return false;
    }
}

int64_t op_rounded_bytes(const tensor *t)
{
    gemm_view v = gemm_matrix(NULL, tensor_rows(t), tensor_cols(t), tensor_cols(t));
    return (int64_t)gemm_u8_rounded_bytes(&v);
}
