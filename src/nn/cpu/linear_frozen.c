/* GEMMs of inference in F32 and, where asked for, with 8-bit weights. The first run packs weights panel by panel on the
 * way, so that a program that embeds one text does not pay for a copy of the model; from the second on they are cached,
 * for all executors of these weights. Both give the same bytes. */
#include "nn/cpu/linear.h"

#include <stdlib.h>

#include "tensor/cpu/igemm.h"
#include "tensor/cpu/pgemm.h"
#include "tensor/cpu/qgemm.h"

typedef struct frozen {
    bool ran, few, int8;
} frozen;

/* 8-bit weights by activations of 13 bits or of 7. */
typedef struct int8_gemm {
    size_t (*packed_bytes)(int64_t N, int64_t K);
    void (*pack_floats)(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed);
    size_t (*scratch)(const cloob_ctx *ctx, int64_t M, int64_t K);
    void (*run)(cloob_ctx *ctx, const igemm_call *c);
} int8_gemm;

static const int8_gemm thirteen_bits = { igemm_packed_bytes, igemm_pack_floats, igemm_scratch, igemm_run };
static const int8_gemm seven_bits = { qgemm_packed_bytes, qgemm_pack_floats, qgemm_scratch, qgemm_run };

static pgemm_weight weight_of(const op_args *a)
{
    return (pgemm_weight){ a->in[1].data, tensor_cols(&a->out[0]), tensor_cols(&a->in[0]), a->attr.transposed };
}

/* 7 bits where that is faster. Of a text, which suffers more, square weights keep 13: the projection behind attention
 * is a twelfth of a block's work, and 7 bits lose as much there as in either half of the MLP, four times as large. */
static const int8_gemm *int8_best(const op_env *env, const pgemm_weight *w)
{
    return (env->int8_fast || w->N != w->K) && qgemm_usable() ? &seven_bits : &thirteen_bits;
}

cloob_status linear_frozen_prepare(const op_env *env, op_args *a)
{
    bool few = tensor_rows(&a->out[0]) < PGEMM_FEW && !env->invariant;
    bool int8 = env->int8 && !a->attr.transposed; /* scales are per output: rows of a weight (out, in) */
    pgemm_weight w = weight_of(a);
    if (!env->frozen_weights || !(few || int8 || pgemm_usable())) return CLOOB_OK;
    frozen *f = calloc(1, sizeof *f);
    if (!f) return ctx_no_memory(env->ctx, sizeof *f, "a GEMM");
    f->few = few && !int8;
    f->int8 = int8;
    a->state = f;
    if (int8) {
        a->scratch_bytes = int8_best(env, &w)->scratch(env->ctx, tensor_rows(&a->out[0]), w.K);
        return CLOOB_OK;
    }
    a->scratch_bytes = few ? 0 : pgemm_scratch(env->ctx, tensor_rows(&a->out[0]), w.N, w.K);
    return CLOOB_OK;
}

static const float *cached_weight(const op_env *env, const frozen *f, const pgemm_weight *w)
{
    bool fresh = false;
    if (!f->ran) return weight_cache_find(env->cache, w->w);
    float *packed = weight_cache_get(env->cache, w->w, pgemm_packed_bytes(w->N, w->K), &fresh);
    if (packed && fresh) {
        pgemm_pack(env->ctx, w, packed);
        weight_cache_packed(env->cache, w->w, (size_t)(w->N * w->K) * sizeof *w->w);
    }
    return packed; /* NULL when memory is out: it goes without */
}

/* 8-bit weights are packed by the first run; without memory for them the caller multiplies floats. */
static bool multiply_int8(const op_env *env, const op_args *a)
{
    bool fresh = false;
    pgemm_weight w = weight_of(a);
    const int8_gemm *gemm = int8_best(env, &w);
    void *packed = weight_cache_get(env->cache, w.w, gemm->packed_bytes(w.N, w.K), &fresh);
    if (!packed) return false;
    if (fresh) {
        gemm->pack_floats(env->ctx, w.w, w.N, w.K, packed);
        weight_cache_packed(env->cache, w.w, (size_t)(w.N * w.K) * sizeof *w.w);
    }
    gemm->run(env->ctx, &(igemm_call){ .M = op_live_rows(env, &a->out[0]),
                                       .N = w.N,
                                       .K = w.K,
                                       .x = a->in[0].data,
                                       .packed = packed,
                                       .scratch = a->scratch,
                                       .bias = a->in[2].data,
                                       .res = a->in[3].data,
                                       .y = a->out[0].data });
    return true;
}

bool linear_frozen(const op_env *env, const op_args *a)
{
    frozen *f = a->state;
    if (!f) return false;
    if (f->int8) return multiply_int8(env, a);
    pgemm_call c = { .M = op_live_rows(env, &a->out[0]),
                     .x = a->in[0].data,
                     .weight = weight_of(a),
                     .scratch = a->scratch,
                     .bias = a->in[2].data,
                     .res = a->in[3].data,
                     .y = a->out[0].data };
    if (f->few) {
        pgemm_few(env->ctx, &c);
        return true;
    }
    c.packed = cached_weight(env, f, &c.weight);
    f->ran = true;
    pgemm_run(env->ctx, &c);
    return true;
}

void linear_frozen_release(op_args *a)
{
    free(a->state);
    a->state = NULL;
}
