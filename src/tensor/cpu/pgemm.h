/* Products with a weight that is packed once and used often: what inference multiplies by.
 *
 *     Y (M, N) = X (M, K) W (K, N) + bias + residual
 *
 * Weights lie in panels of PGEMM_COLUMNS columns, k by k, so that a GEMM reads them in one stream; while one is
 * multiplied the next is fetched. Every element of Y is one sum along k in ascending order, whatever M and the number
 * of threads: a row has the same bytes in any company. Few rows are a matter of memory alone and take W as it lies
 * (pgemm_few). */
#ifndef TENSOR_CPU_PGEMM_H
#define TENSOR_CPU_PGEMM_H

#include "core/ctx.h"

enum { PGEMM_COLUMNS = 32, PGEMM_ROWS = 14, PGEMM_FEW = 4 };

/* How a weight is stored: (N, K), or (K, N) when transposed. */
typedef struct pgemm_weight {
    const float *w;
    int64_t N, K;
    bool transposed;
} pgemm_weight;

/* False on a machine without AVX-512: other GEMMs serve it better. */
bool pgemm_usable(void);

size_t pgemm_packed_bytes(int64_t N, int64_t K);
void pgemm_pack(cloob_ctx *ctx, const pgemm_weight *w, float *packed); /* packed: 64-aligned */

/* Bytes of pgemm_call.scratch: X in the order it is read, and panels that are packed on the way when there is no packed
 * weight. */
size_t pgemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t N, int64_t K);

typedef struct pgemm_call {
    int64_t M;
    const float *x; /* (M, K) */
    pgemm_weight weight;
    const float *packed;     /* NULL: packed panel by panel into scratch, with the same result */
    float *scratch;          /* 64-aligned */
    const float *bias, *res; /* (N), (M, N) or NULL; res may be y */
    float *y;                /* (M, N), overwritten */
} pgemm_call;

void pgemm_run(cloob_ctx *ctx, const pgemm_call *c);

/* The same for fewer than PGEMM_FEW rows, from the weight as it is; on any machine, its sums in another order. */
void pgemm_few(cloob_ctx *ctx, const pgemm_call *c);

/* The inner part (pgemm_avx512.c): at most PGEMM_ROWS rows by one panel. `next` is fetched meanwhile, a line of 64
 * bytes for every k; what is there already does no harm. */
typedef struct pgemm_block {
    const float *x; /* (K, rows): the rows' elements side by side */
    const float *panel, *bias, *res, *next;
    float *y;
    int64_t K, ldy;
    int rows, columns;
} pgemm_block;

void pgemm_multiply(const pgemm_block *b);

/* to (K, rows) = the transpose of from (rows, K), rows at most PGEMM_ROWS. */
void pgemm_turn(const float *from, int64_t K, int rows, float *to);

#endif
