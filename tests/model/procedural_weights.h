/* The procedural weights of a whole configuration as named tensors, in memory. */
#ifndef TESTS_PROCEDURAL_WEIGHTS_H
#define TESTS_PROCEDURAL_WEIGHTS_H

#include "model/params.h"
#include "model/procedural.h"
#include "model/weights.h"

static inline void procedural_fill(const char *name, const tensor *t, float *out)
{
    param row = { .name = name, .file = *t, .count = tensor_count(t) };
    for (int64_t i = 0; i < row.count; i++) out[i] = (float)procedural_weight(&row, i);
}

/* Release w afterwards. */
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
