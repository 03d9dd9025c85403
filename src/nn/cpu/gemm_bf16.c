/* Planning and running a bf16 GEMM. */
#include "nn/cpu/gemm_bf16.h"

#include <stdlib.h>

/* Weights in tiles, cached between runs of one executor. */
typedef struct packed_weight {
    bool ready;
    uint16_t *tiles;
} packed_weight;

static size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Executors of the same weights share their tiles. */
static bool shares(const op_env *env, const bgemm_call *x) { return x->packed && env->frozen_weights && env->cache; }

/* For what is shared: tiles are made by the first run. Where there is no memory for them, each run packs on the way. */
static size_t shared_scratch(const op_env *env, const bgemm_call *x)
{
    bgemm_call plain = *x;
    plain.packed = false;
    size_t with = bgemm_scratch(env->ctx, bgemm_best(), x), without = bgemm_scratch(env->ctx, bgemm_best(), &plain);
    return with > without ? with : without;
}

static const uint16_t *shared_tiles(const op_env *env, const bgemm_call *x)
{
    bool fresh = false;
    const void *weight = x->b.data;
    uint16_t *tiles = weight_cache_get(env->cache, weight, bgemm_packed_bytes(x->K, x->N), &fresh);
    if (tiles && fresh) {
        bgemm_pack_b(env->ctx, bgemm_best(), x, tiles);
        weight_cache_packed(env->cache, weight, (size_t)(x->K * x->N) * sizeof(uint16_t));
    }
    return tiles;
}

cloob_status gemm_bf16_prepare(const op_env *env, op_args *a, const bgemm_call *x)
{
    size_t tiles = x->packed ? round_up(bgemm_packed_bytes(x->K, x->N)) : 0;
    bool keep = x->packed && env->frozen_weights && !env->cache;
    if (shares(env, x)) a->scratch_bytes = shared_scratch(env, x);
    else a->scratch_bytes = bgemm_scratch(env->ctx, bgemm_best(), x) + (keep ? 0 : tiles);
    if (!keep) return CLOOB_OK;
    packed_weight *k = calloc(1, sizeof *k);
    if (k) k->tiles = aligned_alloc(256, tiles);
    if (k && k->tiles) {
        a->state = k;
        return CLOOB_OK;
    }
    free(k);
    return ctx_no_memory(env->ctx, tiles, "packed weights");
}

void gemm_bf16_run(const op_env *env, const op_args *a, bgemm_call *x)
{
    const bgemm_kernel *kernel = bgemm_best();
    packed_weight *k = a->state;
    char *scratch = a->scratch;
    if (shares(env, x)) {
        x->b_packed = shared_tiles(env, x);
        x->packed = x->b_packed != NULL;
    } else if (x->packed) {
        uint16_t *tiles = k ? k->tiles : (uint16_t *)a->scratch;
        if (!k || !k->ready) bgemm_pack_b(env->ctx, kernel, x, tiles);
        if (k) k->ready = true;
        else scratch += round_up(bgemm_packed_bytes(x->K, x->N));
        x->b_packed = tiles;
    }
    bgemm_run(env->ctx, kernel, x, scratch);
}

void gemm_bf16_release(op_args *a)
{
    packed_weight *k = a->state;
    if (!k) return;
    free(k->tiles);
    free(k);
    a->state = NULL;
}
