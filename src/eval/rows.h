/* Embeddings and features as evaluation reads them: N rows of D values, usually a mapped file, in any
 * floating type; read in blocks as float, so that nothing of the file is held in memory.
 *
 *     rows r;
 *     CLOOB_TRY(rows_of(ctx, &r, &entry->t, "E.safetensors: image"));
 *     unit_rows u;
 *     CLOOB_TRY(unit_rows_init(ctx, &u, &r));       checks every value, computes every length
 *     unit_rows_read(&u, begin, n, block);          block: (n, D), rows of length 1
 *     unit_rows_release(&u);
 */
#ifndef EVAL_ROWS_H
#define EVAL_ROWS_H

#include "eval/nearest.h"
#include "tensor/tensor.h"

typedef struct rows {
    const void *data;  /* not owned */
    cloob_dtype dtype; /* F32, BF16, F16 or F64 */
    int64_t N, D;
    int64_t step;     /* row i is stored row i * step; 1 unless rows_every made it */
    const char *name; /* for messages; not owned */
} rows;

/* Views a tensor (N, D); fails unless it has two dimensions, a floating type and at least one element. */
cloob_status rows_of(cloob_ctx *ctx, rows *r, const tensor *t, const char *name);

/* Stored rows first, first + step, ...: `step` such views split the rows of one. */
rows rows_every(const rows *r, int64_t step, int64_t first);

/* Rows [begin, begin + n) as floats: a pointer into data when those already are aligned F32 without gaps,
 * else into scratch, of n * D elements. */
const float *rows_read(const rows *r, int64_t begin, int64_t n, float *scratch);

/* Whole rows per block such that a block of float takes about `bytes`; at least 1, at most N. */
int64_t rows_block(const rows *r, size_t bytes);

/* Every value is finite as a float; otherwise CLOOB_ERR_NUMERIC naming the first bad row and column. */
cloob_status rows_check(cloob_ctx *ctx, const rows *r);

/* Rows that are read at length 1. */
typedef struct unit_rows {
    rows src;
    float *inverse; /* (N) 1 / length; exactly 1 where a row has unit length to float precision */
    int64_t scaled; /* rows whose length was off by more than half-precision rounding explains */
} unit_rows;

/* Checks every value; a row of zeros has no direction and is CLOOB_ERR_NUMERIC, naming the row. On failure
 * nothing needs releasing. */
cloob_status unit_rows_init(cloob_ctx *ctx, unit_rows *u, const rows *r);
void unit_rows_release(unit_rows *u);
/* Row i of a belongs to row i of b: same N, same D; otherwise CLOOB_ERR_FORMAT with both shapes. */
cloob_status unit_rows_match(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b);
/* Rows [begin, begin + n) at unit length into out (n, D). */
void unit_rows_read(const unit_rows *u, int64_t begin, int64_t n, float *out);

/* ---- tiles --------------------------------------------------------------------------------------- */

/* All similarities of two sets of unit rows, one tile at a time: never the whole matrix.
 *
 * Threads own blocks of rows: each walks all columns of its block, so what belongs to a row needs no lock, and
 * `rows_done` is called by the same thread when the block has seen every column. What belongs to a column is shared
 * between threads. The order of tiles depends only on the sizes and the number of threads. */

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

/* ---- nearest rows ----------------------------------------------------------------------------------- */

/* The k rows of b that are most similar to each row of a, most similar first, equal ones by index: best (rows of a, k).
 * Where a is b a row is not its own neighbour. k is at most the number of candidates. */
cloob_status nearest_rows(cloob_ctx *ctx, const unit_rows *a, const unit_rows *b, int64_t k, near_row *best);

#endif
