/* Sums over all pairs, tile by tile, in double between rows of a tile. */
#include "eval/analysis.h"

#include <math.h>
#include <stdlib.h>

#include "eval/tiles.h"
#include "tensor/cpu/vmath.h"

typedef struct sums {
    double arc, potential;
    double pad[6]; /* one cache line per thread */
} sums;

/* Row i of a tile beyond the diagonal. */
static void add_row(sums *out, const float *s, int64_t n)
{
    float arc[TILE_COLUMNS], potential[TILE_COLUMNS];
    double arcs = 0, potentials = 0;
    for (int64_t j = 0; j < n; j++) arc[j] = vmath_asin(s[j]);
    for (int64_t j = 0; j < n; j++) potential[j] = vmath_exp_or_zero(4.0f * s[j] - 4.0f); /* |x - y|^2 = 2 - 2 x.y */
    for (int64_t j = 0; j < n; j++) arcs += arc[j];
    for (int64_t j = 0; j < n; j++) potentials += potential[j];
    out->arc += arcs;
    out->potential += potentials;
}

static void visit(void *arg, const tile *t)
{
    sums *out = (sums *)arg + t->thread;
    for (int64_t i = t->i0; i < t->i0 + t->ni; i++) {
        int64_t skip = i + 1 > t->j0 ? i + 1 - t->j0 : 0;
        if (skip < t->nj) add_row(out, t->s + (i - t->i0) * t->nj + skip, t->nj - skip);
    }
}

cloob_status uniformity_run(cloob_ctx *ctx, uniformity *out, const unit_rows *x)
{
    int threads = tiles_threads(ctx, x);
    double N = (double)x->src.N, arc = 0, potential = 0;
    if (x->src.N < 2) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: uniformity needs two rows", x->src.name);
    sums *part = calloc((size_t)threads, sizeof *part);
    if (!part) return ctx_no_memory(ctx, (size_t)threads * sizeof *part, "sums");
    cloob_status status = tiles_run(ctx, x, x, TILES_UPPER, &(tile_visitor){ visit, NULL, part });
    for (int k = 0; k < threads; k++) arc += part[k].arc, potential += part[k].potential;
    free(part);
    out->ajne = 0.25 + arc / (M_PI * N);
    out->potential = log(potential / (0.5 * N * (N - 1)));
    return status;
}
