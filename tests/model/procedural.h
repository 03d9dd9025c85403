/* Weights that need no file: the agreed test value of every parameter, from its name alone.
 *
 * Element i of tensor NAME comes from splitmix64(fnv1a(NAME) + i), its top 24 bits scaled to [-1, 1), then to
 * the size its kind of parameter has. The frozen outputs of the model tests are those of these weights. */
#ifndef TESTS_PROCEDURAL_H
#define TESTS_PROCEDURAL_H

#include <math.h>
#include <string.h>

#include "core/rng.h"
#include "model/shapes.h"
#include "model/weights.h"

static inline double procedural_uniform(const char *name, int64_t i)
{
    return (double)(rng_splitmix64(rng_hash(name) + (uint64_t)i) >> 40) / 8388608.0 - 1.0;
}

/* v = add + scale * u */
static inline void procedural_scale(const char *name, const tensor *t, double *add, double *scale)
{
    const char *dot = strrchr(name, '.'), *leaf = dot ? dot + 1 : name;
    double fan = (double)(t->dim[0] ? tensor_count(t) / t->dim[0] : 1);
    *add = 0;
    if (t->ndim == 1 && strcmp(leaf, "weight") == 0) *add = 1, *scale = 0.1;
    else if (strcmp(leaf, "running_var") == 0) *add = 1, *scale = 0.5;
    else if (strcmp(leaf, "bias") == 0 || strcmp(leaf, "in_proj_bias") == 0 ||
             strcmp(leaf, "running_mean") == 0)
        *scale = 0.1;
    else if (strstr(name, "embedding")) *scale = 0.05;
    else if (strcmp(leaf, "proj") == 0 || strcmp(leaf, "text_projection") == 0)
        *scale = sqrt(3.0 / (double)t->dim[0]);
    else *scale = sqrt(3.0 / fan);
}

static inline void procedural_fill(const char *name, const tensor *t, float *out)
{
    double add, scale;
    procedural_scale(name, t, &add, &scale);
    for (int64_t i = 0; i < tensor_count(t); i++) out[i] = (float)(add + scale * procedural_uniform(name, i));
}

/* All parameters of a configuration. Release w afterwards. */
static inline cloob_status procedural_weights(cloob_ctx *ctx, const model_config *c, weights *w)
{
    st_entry *row;
    int64_t count;
    weights_init(w);
    w->config = *c;
    CLOOB_TRY(model_shapes(ctx, &w->a, c, &row, &count));
    for (int64_t i = 0; i < count; i++) {
        tensor t = row[i].t;
        t.data = arena_push(&w->a, tensor_bytes(&t));
        if (!t.data) return ctx_no_memory(ctx, tensor_bytes(&t), row[i].name);
        procedural_fill(row[i].name, &t, t.data);
        CLOOB_TRY(weights_add(ctx, w, row[i].name, &t));
    }
    return CLOOB_OK;
}

#endif
