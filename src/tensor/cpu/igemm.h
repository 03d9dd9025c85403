/* GEMM with 8-bit weights and 16-bit activations: inference with a fourth of the weights' memory.
 *
 *     Y (M, N) = X (M, K) W (N, K)^T + bias + residual
 *
 * W is int8 with a scale for every row (output channel). X is quantised row by row on the way: every row has its own
 * scale, and its elements are whole numbers of up to igemm_top(K), 13 bits for K up to 4128, so that a sum of K
 * products fits 32 bits. Activations keep more bits than weights because they have outliers and because it costs
 * little: pmaddwd and vpdpwssd take 16 bits (qgemm.h is faster by fewer bits). Sums are exact, so every machine gives
 * the same whole numbers, and a row has the same bytes in any batch. */
#ifndef TENSOR_CPU_IGEMM_H
#define TENSOR_CPU_IGEMM_H

#include "core/ctx.h"

enum { IGEMM_COLUMNS = 16 };

/* The largest whole number that an element of X becomes. */
int32_t igemm_top(int64_t K);

/* Weights in panels of IGEMM_COLUMNS columns, pairs of k side by side, and their scales. */
size_t igemm_packed_bytes(int64_t N, int64_t K);
/* From int8 rows (N, K) with their scales (N), which need not be aligned. packed: 64-aligned. */
void igemm_pack(cloob_ctx *ctx, const int8_t *w, const void *scale, int64_t N, int64_t K, void *packed);
/* From float rows: each is scaled so that its largest element becomes 127, and rounded. */
void igemm_pack_floats(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed);

/* What packing needs of a row, here and in qgemm.h: its largest magnitude, and n elements divided by scale, rounded. */
float igemm_row_top(const float *x, int64_t K);
void igemm_round_row(const float *x, int64_t n, float scale, int8_t *to);

size_t igemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t K);

typedef struct igemm_call {
    int64_t M, N, K;
    const float *x;          /* (M, K) */
    const void *packed;      /* igemm_pack's */
    void *scratch;           /* 64-aligned */
    const float *bias, *res; /* (N), (M, N) or NULL; res may be y */
    float *y;                /* (M, N), overwritten */
} igemm_call;

void igemm_run(cloob_ctx *ctx, const igemm_call *c);

/* The definition: one element after the other, in plain C. No scratch. */
void igemm_plain(const igemm_call *c);

/* ---- the inner part, one per kind of machine ------------------------------------------------------ */

/* At most IGEMM_ROWS rows by one panel over `pairs` pairs of k: adds to (or sets) whole sums (rows, columns). */
enum { IGEMM_ROWS = 6 };

typedef struct igemm_block {
    const int16_t *x;     /* (pairs, rows, 2) */
    const int16_t *panel; /* (pairs, IGEMM_COLUMNS, 2) */
    int32_t *sum;         /* (rows, IGEMM_COLUMNS) */
    int64_t pairs;
    int rows;
    bool first;
} igemm_block;

typedef void igemm_multiply_fn(const igemm_block *b);
igemm_multiply_fn igemm_multiply_plain, igemm_multiply_avx2, igemm_multiply_avx_vnni, igemm_multiply_avx512_vnni;
/* The fastest that this machine has. */
igemm_multiply_fn *igemm_best(void);
/* The kernel by number, NULL where the machine cannot run it or there is none: for tests. */
igemm_multiply_fn *igemm_kernel(int i);

#endif
