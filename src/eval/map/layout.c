/* The layout: every vertex walks along its own edges, the others stand where the last epoch left them. So vertices
 * are independent within an epoch and any number of threads gives the same points. Similarity in the plane is
 * 1 / (1 + A d^2); steps follow the gradient of UMAP's cross entropy. */
#include "eval/map/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "core/rng.h"

static const float A = 1.6f, NEAR = 0.001f, STEP_LIMIT = 4;

typedef struct layout {
    const map_graph *g;
    const float *old; /* (N, 2) of the last epoch */
    float *now, rate;
    int64_t epoch, negatives;
    uint64_t key; /* of the epoch */
} layout;

static float limit(float v) { return fminf(fmaxf(v, -STEP_LIMIT), STEP_LIMIT); }

static void attract(float *p, const float *q, float rate)
{
    float dx = p[0] - q[0], dy = p[1] - q[1], c = -2 * A / (1 + A * (dx * dx + dy * dy));
    p[0] += rate * limit(c * dx);
    p[1] += rate * limit(c * dy);
}

static void repel(float *p, const float *q, float rate)
{
    float dx = p[0] - q[0], dy = p[1] - q[1], d2 = dx * dx + dy * dy;
    float c = 2 / ((NEAR + d2) * (1 + A * d2));
    p[0] += rate * limit(c * dx);
    p[1] += rate * limit(c * dy);
}

/* An edge of weight 1 is walked in every epoch, one of weight w in a share w of them, evenly spread. */
static bool due(float weight, int64_t epoch)
{
    return floor((double)(epoch + 1) * weight) > floor((double)epoch * weight);
}

static void move_vertices(void *arg, int64_t begin, int64_t end, int thread)
{
    const layout *l = arg;
    const map_graph *g = l->g;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float p[2] = { l->old[2 * i], l->old[2 * i + 1] };
        uint64_t draw = (uint64_t)g->start[i] * (uint64_t)l->negatives;
        for (int64_t e = g->start[i]; e < g->start[i + 1]; e++) {
            if (!due(g->weight[e], l->epoch)) continue;
            attract(p, l->old + 2 * (int64_t)g->other[e], l->rate);
            for (int64_t n = 0; n < l->negatives; n++) {
                int64_t j = (int64_t)rng_below(l->key, draw++, (uint64_t)g->N);
                if (j != i) repel(p, l->old + 2 * j, l->rate);
            }
        }
        l->now[2 * i] = p[0], l->now[2 * i + 1] = p[1];
    }
}

cloob_status map_layout(cloob_ctx *ctx, float *xy, const map_graph *g, int64_t epochs, int64_t negatives, uint64_t seed,
                        const map_progress *p)
{
    size_t bytes = 2 * (size_t)g->N * sizeof(float);
    float *old = malloc(bytes);
    uint64_t key = rng_key(seed, "map/layout");
    cloob_status status = CLOOB_OK;
    if (!old) return ctx_no_memory(ctx, bytes, "a map");
    for (int64_t t = 0; t < epochs && status == CLOOB_OK; t++) {
        memcpy(old, xy, bytes);
        layout l = { g, old, xy, 1 - (float)t / (float)epochs, t, negatives, rng_subkey(key, (uint64_t)t) };
        pool_for(ctx, g->N, 256, move_vertices, &l);
        status = map_report(ctx, p, (double)(t + 1) / (double)epochs);
    }
    free(old);
    return status;
}
