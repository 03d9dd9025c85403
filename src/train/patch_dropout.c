/* Patches out of a permutation of them all. */
#include "train/patch_dropout.h"

#include "core/pool.h"
#include "core/rng.h"

int64_t patch_dropout_tokens(const model_config *c)
{
    int64_t kept = model_config_patches_kept(c);
    return kept ? kept + !c->no_class_token : 0;
}

typedef struct drawing {
    int64_t patches, tokens, first_row;
    bool has_class;
    uint64_t key;
    int32_t *kept;
} drawing;

/* Insertion keeps them in order: at most a few hundred. */
static void insert(int32_t *sorted, int64_t n, int32_t v)
{
    for (; n > 0 && sorted[n - 1] > v; n--) sorted[n] = sorted[n - 1];
    sorted[n] = v;
}

static void draw_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const drawing *d = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        uint64_t key = rng_subkey(d->key, (uint64_t)(d->first_row + r));
        int32_t *row = d->kept + r * d->tokens;
        if (d->has_class) row[0] = 0;
        for (int64_t k = d->has_class; k < d->tokens; k++) {
            uint64_t patch = rng_permute(key, (uint64_t)(k - d->has_class), (uint64_t)d->patches);
            insert(row + d->has_class, k - d->has_class, (int32_t)patch + d->has_class);
        }
    }
}

void patch_dropout_draw(cloob_ctx *ctx, const model_config *c, uint64_t seed, int64_t step, int64_t first_row,
                        int64_t rows, int32_t *kept)
{
    drawing d = { .patches = model_config_image_tokens(c) - !c->no_class_token,
                  .tokens = patch_dropout_tokens(c),
                  .first_row = first_row,
                  .has_class = !c->no_class_token,
                  .key = rng_subkey(rng_key(seed, "patch dropout"), (uint64_t)step),
                  .kept = kept };
    pool_for(ctx, rows, 16, draw_range, &d);
}
