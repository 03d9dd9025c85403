/* Weights, images and tokens that any language can make again: number i of a name is the top 24 bits of
 * splitmix64(fnv1a(name) + i), scaled to [-1, 1). */
#ifndef TESTS_PROCEDURAL_H
#define TESTS_PROCEDURAL_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "model/params.h"

static inline double procedural(const char *name, int64_t i)
{
    return (double)(rng_splitmix64(rng_hash(name) + (uint64_t)i) >> 40) / 8388608.0 - 1.0;
}

static inline double procedural_weight(const param *r, int64_t i)
{
    const char *leaf = strrchr(r->name, '.');
    leaf = leaf ? leaf + 1 : r->name;
    double u = procedural(r->name, i);
    if (r->file.ndim == 1 && strcmp(leaf, "weight") == 0) return 1 + 0.1 * u;
    if (strcmp(leaf, "running_var") == 0) return 1 + 0.5 * u;
    if (strcmp(leaf, "bias") == 0 || strcmp(leaf, "in_proj_bias") == 0 || strcmp(leaf, "running_mean") == 0)
        return 0.1 * u;
    if (strstr(r->name, "embedding")) return 0.05 * u;
    bool projection = strcmp(leaf, "proj") == 0 || strcmp(leaf, "text_projection") == 0;
    return u * sqrt(3.0 / (double)(projection ? r->file.dim[0] : r->count / r->file.dim[0]));
}

static inline cloob_status procedural_params(cloob_ctx *ctx, params *p)
{
    for (int k = 0; k < p->count; k++) {
        float *w = malloc((size_t)p->row[k].count * sizeof *w);
        for (int64_t i = 0; i < p->row[k].count; i++) w[i] = (float)procedural_weight(&p->row[k], i);
        cloob_status status = params_set(ctx, p, k, w);
        free(w);
        CLOOB_TRY(status);
    }
    return params_refresh(ctx, p);
}

/* (n, 3, size, size) in [-2, 2). */
static inline void procedural_images(float *x, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n * 3 * size * size; i++) x[i] = 2 * (float)procedural("images", i);
}

/* Start, words, end, zeros. */
static inline void procedural_tokens(int32_t *t, int64_t n, const model_config *c)
{
    for (int64_t r = 0; r < n; r++) {
        double first = (procedural("tokens", r * c->context) + 1) / 2;
        int64_t end = 3 + (int64_t)(first * (double)(c->context - 4));
        for (int64_t k = 0; k < c->context; k++) {
            double u = (procedural("tokens", r * c->context + k) + 1) / 2;
            int32_t word = (int32_t)(1 + floor(u * (double)(c->vocab - 3)));
            t[r * c->context + k] = (int32_t)(k == 0 ? c->vocab - 2 : k == end ? c->vocab - 1 : k > end ? 0 : word);
        }
    }
}

#endif
