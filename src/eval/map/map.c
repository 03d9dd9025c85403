/* Components, neighbours, graph, layout, in this order. */
#include "eval/map/map.h"

#include <math.h>
#include <stdlib.h>

#include "core/arith.h"
#include "core/rng.h"

cloob_status map_report(cloob_ctx *ctx, const map_progress *p, double done)
{
    if (!p->fn || p->fn(p->user, p->from + (p->to - p->from) * done)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_STOPPED, "the map was cancelled");
}

/* The first two components, spread over about 20 units as the layout likes it; a little noise parts duplicates. */
static void first_layout(float *xy, const float *y, int64_t N, int64_t K, uint64_t seed)
{
    uint64_t key = rng_key(seed, "map/start");
    float max = 0;
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < 2 && k < K; k++) max = fmaxf(max, fabsf(y[i * K + k]));
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < 2; k++) {
            float at = k < K && max > 1e-6f ? 10 * y[i * K + k] / max : 0;
            xy[2 * i + k] = at + 0.01f * (float)rng_normal(key, (uint64_t)(2 * i + k));
        }
}

static void centre_and_scale(float *xy, int64_t N)
{
    double mean[2] = { 0, 0 };
    float max = 0;
    for (int64_t i = 0; i < N; i++) mean[0] += xy[2 * i] / (double)N, mean[1] += xy[2 * i + 1] / (double)N;
    for (int64_t i = 0; i < 2 * N; i++) {
        xy[i] -= (float)mean[i % 2];
        max = fmaxf(max, fabsf(xy[i]));
    }
    for (int64_t i = 0; i < 2 * N && max > 0; i++) xy[i] /= max;
}

typedef struct buffers {
    float *y, *distance; /* (N, K), (N, k) */
    int32_t *index;      /* (N, k) */
    map_graph graph;
} buffers;

static map_progress part(const map_options *o, double from, double to)
{
    return (map_progress){ o->progress, o->user, from, to };
}

static cloob_status run_steps(cloob_ctx *ctx, float *xy, buffers *b, const unit_rows *x, int64_t K, int64_t k,
                              const map_options *o)
{
    int64_t N = x->src.N, epochs = o->epochs ? o->epochs : N <= 10000 ? 500 : 200;
    map_progress reduce = part(o, 0, 0.1), search = part(o, 0.1, 0.5), lay = part(o, 0.5, 1);
    CLOOB_TRY(map_components(ctx, b->y, x, K, o->seed, &reduce));
    first_layout(xy, b->y, N, K, o->seed);
    if (k < 1) return CLOOB_OK;
    CLOOB_TRY(map_neighbors(ctx, b->index, b->distance, b->y, N, K, k, &search));
    CLOOB_TRY(map_graph_build(ctx, &b->graph, b->index, b->distance, N, k));
    return map_layout(ctx, xy, &b->graph, epochs, o->negatives, o->seed, &lay);
}

static cloob_status check_options(cloob_ctx *ctx, const rows *x, const map_options *o)
{
    if (o->components < 1 || o->neighbors < 1 || o->negatives < 0 || o->epochs < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a map needs 1 component, 1 neighbour and no negative counts");
    if (x->N > INT32_MAX)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld rows; a map takes at most %d", x->name, (long long)x->N,
                        INT32_MAX);
    return CLOOB_OK;
}

static cloob_status map_rows(cloob_ctx *ctx, float *xy, const rows *x, const map_options *o)
{
    unit_rows u;
    CLOOB_TRY(check_options(ctx, x, o));
    CLOOB_TRY(unit_rows_init(ctx, &u, x));
    int64_t K = min64(o->components, x->D), k = min64(o->neighbors, x->N - 1);
    size_t n = (size_t)x->N, each = (size_t)max64(k, 1);
    buffers b = { malloc(n * (size_t)K * sizeof(float)),
                  malloc(n * each * sizeof(float)),
                  malloc(n * each * sizeof(int32_t)),
                  { 0 } };
    cloob_status status = b.y && b.distance && b.index ? run_steps(ctx, xy, &b, &u, K, k, o)
                                                       : ctx_no_memory(ctx, n * (size_t)K * sizeof(float), "a map");
    map_graph_release(&b.graph);
    free(b.y), free(b.distance), free(b.index);
    unit_rows_release(&u);
    if (status == CLOOB_OK) centre_and_scale(xy, x->N);
    return status;
}

void map_options_init(map_options *o)
{
    if (!o) return;
    *o = (map_options){ .components = 48, .neighbors = 15, .negatives = 5 };
}

cloob_status map_make(cloob_ctx *ctx, float *xy, const cloob_matrix *m, const map_options *o)
{
    map_options defaults;
    rows r;
    tensor t = TENSOR(m->dtype, (void *)(uintptr_t)m->data, m->rows, m->columns);
    map_options_init(&defaults);
    CLOOB_TRY(rows_of(ctx, &r, &t, m->name ? m->name : "matrix"));
    return map_rows(ctx, xy, &r, o ? o : &defaults);
}
