/* Random images with random captions: for benchmarks and for a first run without data. Sample i is a pure
 * function of (seed, i). */
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "data/sets/dataset_kind.h"

enum { SIDE = 224, DEFAULT_COUNT = 100, WORDS = 8 };

static cloob_status open_random(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p)
{
    uint64_t *key = p->self = malloc(sizeof *key);
    if (!key) return ctx_no_memory(ctx, sizeof *key, source);
    *key = rng_key(o->seed, "data/synthetic");
    p->count = o->num_samples > 0 ? o->num_samples : DEFAULT_COUNT;
    p->captions = true;
    return CLOOB_OK;
}

static void close_random(dataset_part *p) { free(p->self); }

static cloob_status put_caption(cloob_ctx *ctx, uint64_t key, stored_sample *s)
{
    static const char *const word[] = { "red",  "green", "small", "large",  "two", "old",   "house", "tree",
                                        "bird", "boat",  "river", "street", "at",  "under", "near",  "morning" };
    char text[128] = "";
    for (int i = 0; i < WORDS; i++) {
        if (i) strcat(text, " ");
        strcat(text, word[rng_below(key, (uint64_t)i, sizeof word / sizeof *word)]);
    }
    return stored_caption(ctx, text, strlen(text), s);
}

static cloob_status fetch_random(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what,
                                 stored_sample *s)
{
    uint64_t key = rng_subkey(*(const uint64_t *)p->self, (uint64_t)i);
    size_t bytes = (size_t)SIDE * SIDE * 3;
    (void)pick;
    sbuf_printf(&s->name, "synthetic sample %lld", (long long)i);
    if (what & FETCH_CAPTION) CLOOB_TRY(put_caption(ctx, key, s));
    if (!(what & FETCH_IMAGE)) return CLOOB_OK;
    CLOOB_TRY(stored_reserve(ctx, s, bytes));
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t eight = rng_u64(key, at + WORDS);
        memcpy(s->data + at, &eight, sizeof eight);
    }
    s->size = bytes;
    s->width = s->height = SIDE;
    return CLOOB_OK;
}

const dataset_ops dataset_random = { "synthetic", open_random, close_random, fetch_random };
