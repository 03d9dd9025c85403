/* Patches are gathered as rows of a matrix, which packed weights multiply: a patch has the same bytes in any batch. */
#include "nn/cpu/conv_patches.h"

#include <string.h>

#include "core/pool.h"
#include "tensor/cpu/pgemm.h"

bool conv_patches_fit(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    return env->invariant && env->frozen_weights && x->dtype == CLOOB_F32 && w->dtype == CLOOB_F32 && pgemm_usable() &&
           a->attr.pad == 0 && a->attr.stride == w->dim[1] && w->dim[1] == w->dim[2] && x->dim[3] == w->dim[3] &&
           y->dim[1] * w->dim[1] == x->dim[1] && y->dim[2] * w->dim[1] == x->dim[2] && !a->attr.relu && !x->block &&
           !y->block;
}

static pgemm_weight weight_of(const op_args *a)
{
    const tensor *w = &a->in[1];
    return (pgemm_weight){ w->data, w->dim[0], w->dim[1] * w->dim[2] * w->dim[3], false };
}

static size_t matrix_bytes(const op_args *a)
{
    return ((size_t)(tensor_rows(&a->out[0]) * weight_of(a).K) * sizeof(float) + 255) / 256 * 256;
}

cloob_status conv_patches_prepare(const op_env *env, op_args *a)
{
    pgemm_weight w = weight_of(a);
    a->scratch_bytes = matrix_bytes(a) + pgemm_scratch(env->ctx, tensor_rows(&a->out[0]), w.N, w.K);
    return CLOOB_OK;
}

/* Row r is the patch at (n, i, j): k runs of k C elements. */
static void gather_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const op_args *a = arg;
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t k = a->in[1].dim[1], run = k * x->dim[3], line = x->dim[2] * x->dim[3];
    float *to = a->scratch;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t j = r % y->dim[2], i = r / y->dim[2] % y->dim[1], n = r / (y->dim[1] * y->dim[2]);
        const float *from = (const float *)x->data + (n * x->dim[1] + i * k) * line + j * run;
        for (int64_t u = 0; u < k; u++) memcpy(to + (r * k + u) * run, from + u * line, (size_t)run * sizeof *to);
    }
}

cloob_status conv_patches(const op_env *env, const op_args *a)
{
    pgemm_weight w = weight_of(a);
    bool fresh = false;
    op_args gather = *a;
    int64_t rows = op_live_rows(env, &a->out[0]);
    float *packed = weight_cache_get(env->cache, w.w, pgemm_packed_bytes(w.N, w.K), &fresh);
    if (packed && fresh) pgemm_pack(env->ctx, &w, packed);
    pool_share(env->ctx, rows, 8, gather_range, &gather);
    pgemm_run(env->ctx, &(pgemm_call){ .M = rows,
                                       .x = a->scratch,
                                       .weight = w,
                                       .packed = packed,
                                       .scratch = (float *)((char *)a->scratch + matrix_bytes(a)),
                                       .bias = a->in[2].data,
                                       .res = a->in[3].data,
                                       .y = a->out[0].data });
    return CLOOB_OK;
}
