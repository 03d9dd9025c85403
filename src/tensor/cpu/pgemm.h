/* GEMM with a weight that is packed once and used often: what inference multiplies by.
 *
 *     Y (M, N) = X (M, K) W (K, N) + bias + residual
 *
 * Weights lie in panels of a few columns, k by k, so that a GEMM reads them in one stream; while one is multiplied the
 * next is fetched. Every element of Y is one sum along k in ascending order, whatever M and the number of threads: a
 * row has the same bytes in any batch. Few rows are bound by memory alone and may take W as it lies (pgemm_few). */
#ifndef TENSOR_CPU_PGEMM_H
#define TENSOR_CPU_PGEMM_H

#include "core/ctx.h"

enum { PGEMM_FEW = 4 };

/* How a weight is stored: (N, K), or (K, N) when transposed. */
typedef struct pgemm_weight {
    const float *w;
    int64_t N, K;
    bool transposed;
} pgemm_weight;

/* False on a machine with neither AVX-512 nor AVX2: BLAS serves it better. */
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

/* ---- the inner part, one per kind of machine ------------------------------------------------------ */

/* A few rows by one panel, over K steps of k. `next`, unless it is NULL, is fetched meanwhile, a line of 64 bytes for
 * every k, or with `sparse` for every pgemm_kernel.sparse of them. */
typedef struct pgemm_block {
    const float *x; /* (K, rows): the rows' elements side by side */
    const float *panel, *bias, *res, *next;
    float *y;
    int64_t K, ldy;
    int rows, columns;
    bool first;  /* the sum begins here; else it continues from the values in y */
    bool sparse; /* the fetching */
} pgemm_block;

typedef struct pgemm_kernel {
    int columns, rows;    /* of a panel; of a block at most */
    int64_t chunk, depth; /* rows, and steps of k, that are multiplied by all panels before the next; depth 0: all k */
    int64_t sparse;       /* steps of k for every line of the next panel, where so many blocks share the fetching */
    void (*multiply)(const pgemm_block *b);
    /* to (K, rows) = the transpose of from (rows, K); rows: at most those of a block, or half a panel's columns. */
    void (*turn)(const float *from, int64_t K, int rows, float *to);
} pgemm_kernel;

extern const pgemm_kernel pgemm_avx512, pgemm_avx2, pgemm_plain;
const pgemm_kernel *pgemm_best(void);

#endif
