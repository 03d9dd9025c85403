/* Walks the matrix of similarities. */
#include "eval/tiles.h"

#include <stdlib.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/gemm.h"

typedef struct walk {
    const unit_rows *a, *b;
    tile_part part;
    const tile_visitor *v;
    int64_t block, blocks; /* rows per block */
    float *scratch;
    int64_t scratch_each;
} walk;

/* Small sets are cut finer, so that every thread gets some rows. */
static int64_t block_rows(const cloob_ctx *ctx, int64_t N)
{
    int64_t share = (N + ctx->threads - 1) / ctx->threads;
    return share < TILE_ROWS ? share : TILE_ROWS;
}

int tiles_threads(const cloob_ctx *ctx, const unit_rows *a)
{
    int64_t block = block_rows(ctx, a->src.N);
    return pool_ranges(ctx, (a->src.N + block - 1) / block, 1);
}

static void walk_block(const walk *w, int64_t i0, float *scratch, int thread)
{
    int64_t D = w->a->src.D, N = w->b->src.N, ni = min64(w->block, w->a->src.N - i0);
    float *a = scratch, *b = a + TILE_ROWS * D, *s = b + TILE_COLUMNS * D;
    unit_rows_read(w->a, i0, ni, a);
    for (int64_t j0 = w->part == TILES_UPPER ? i0 - i0 % TILE_COLUMNS : 0; j0 < N; j0 += TILE_COLUMNS) {
        tile t = { s, i0, ni, j0, min64(TILE_COLUMNS, N - j0), thread };
        unit_rows_read(w->b, j0, t.nj, b);
        gemm_tile(false, true, ni, t.nj, D, 1, a, D, b, D, 0, s, t.nj);
        w->v->visit(w->v->arg, &t);
    }
    if (w->v->rows_done) w->v->rows_done(w->v->arg, i0, ni, thread);
}

/* Blocks are taken from both ends in turn: above the diagonal early rows are long and late ones short. */
static void walk_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    for (int64_t k = begin; k < end; k++) {
        int64_t block = k % 2 ? w->blocks - 1 - k / 2 : k / 2;
        walk_block(w, block * w->block, w->scratch + thread * w->scratch_each, thread);
    }
}

cloob_status tiles_run(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, tile_part part, const tile_visitor *v)
{
    int64_t block = block_rows(ctx, a->src.N), D = a->src.D;
    walk w = { a, b, part, v, block, (a->src.N + block - 1) / block, NULL, 0 };
    w.scratch_each = (TILE_ROWS + TILE_COLUMNS) * D + (int64_t)TILE_ROWS * TILE_COLUMNS;
    size_t bytes = (size_t)(w.scratch_each * tiles_threads(ctx, a)) * sizeof(float);
    w.scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!w.scratch) return ctx_no_memory(ctx, bytes, "tiles of similarities");
    pool_for(ctx, w.blocks, 1, walk_range, &w);
    free(w.scratch);
    return CLOOB_OK;
}
