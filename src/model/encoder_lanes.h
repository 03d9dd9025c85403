/* Images of a small model on the CPU, one by one, a thread for each.
 *
 * Cutting the work of a small model over threads costs more than it gains, so every image is computed by one thread,
 * and threads work on different images. An image gives the same bytes by any thread and in any number. */
#ifndef MODEL_ENCODER_LANES_H
#define MODEL_ENCODER_LANES_H

#include "model/params.h"
#include "nn/op.h"

typedef struct lanes lanes;

typedef struct lane_rows {
    const char *images; /* n, `stride` bytes apart: bytes (S, S, 3), or with `floats` normalised F32 (3, S, S) */
    size_t stride;
    int64_t n;
    bool floats;
    const char *result; /* the graph's name of what is wanted */
    float *out;         /* (n, width) */
    int64_t width;
} lane_rows;

/* Whether this is a case for it: a CPU, and so little work that threads would wait for each other. */
cloob_status lanes_apply(cloob_ctx *ctx, const params *p, bool *out);

/* p's weights stay as they are while the lanes live, and so does the cache. */
cloob_status lanes_create(cloob_ctx *ctx, params *p, weight_cache *cache, lanes **out);
void lanes_destroy(lanes *l); /* NULL is fine */

cloob_status lanes_run(cloob_ctx *ctx, lanes *l, const lane_rows *rows);

#endif
