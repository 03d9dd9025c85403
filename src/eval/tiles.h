/* All similarities of two sets of unit rows, one tile at a time: never the whole matrix.
 *
 * Threads own blocks of rows: each walks all columns of its block, so what belongs to a row needs no lock,
 * and `rows_done` is called by the same thread when the block has seen every column. What belongs to a column
 * is shared between threads. In which order tiles come depends on the sizes and the number of threads only.
 */
#ifndef EVAL_TILES_H
#define EVAL_TILES_H

#include "eval/rows.h"

enum { TILE_ROWS = 512, TILE_COLUMNS = 512 }; /* 1 MiB of similarities per thread: stays in the second cache */

typedef struct tile {
    const float *s; /* (ni, nj): s[(i - i0) * nj + (j - j0)] = a_i . b_j */
    int64_t i0, ni, j0, nj;
    int thread; /* below tiles_threads() */
} tile;

typedef enum tile_part { TILES_ALL, TILES_UPPER } tile_part; /* UPPER: only tiles with some j > i; a is b */

typedef struct tile_visitor {
    void (*visit)(void *arg, const tile *t);
    void (*rows_done)(void *arg, int64_t i0, int64_t ni, int thread); /* may be NULL */
    void *arg;
} tile_visitor;

int tiles_threads(const cloob_ctx *ctx, const unit_rows *a);

/* Fails only for lack of memory: about 1 MiB + 2 x 512 x D floats per thread. a and b have the same D. */
cloob_status tiles_run(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, tile_part part, const tile_visitor *v);

#endif
