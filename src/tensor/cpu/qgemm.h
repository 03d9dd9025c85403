/* GEMM with 8-bit weights and 7-bit activations, for processors whose fastest multiplication is pmaddubsw (AVX2).
 *
 *     Y (M, N) = X (M, K) W (N, K)^T + bias + residual
 *
 * W is int8 with a scale for every row (output channel), as in igemm.h. X is quantised on the way: every row has a
 * scale for each group of 32 elements, so that an outlier coarsens its neighbours alone. The largest and the smallest
 * element of a group, or 0, are at most 127 steps apart, so that all become unsigned 7-bit numbers when a zero point
 * is added. The products of a group are summed in 16 bits, in two halves (k % 4 below 2, and the others) of 16
 * products each. That they fit is shown by Cauchy and Schwarz: |sum| <= |x half| |w half|. A weight's packing holds
 * the longest half of each group, and where 127 steps would be too many, the scale of a group of X is chosen so that
 * the bound holds. So the sums of a group are exact; they are multiplied by their scale and added in order of k, in
 * float. A row has the same bytes in any batch. */
#ifndef TENSOR_CPU_QGEMM_H
#define TENSOR_CPU_QGEMM_H

#include "tensor/cpu/igemm.h"

enum {
    QGEMM_COLUMNS = 16,
    QGEMM_ROWS = 6,
    QGEMM_GROUP = 32,
    QGEMM_STEPS = 126, /* between the largest and the smallest element; rounding adds at most one */
    /* a group of a panel: the sums of both halves of the weights, negated (columns, 2) int16; (8, columns, 4) int8 */
    QGEMM_GROUP_BYTES = QGEMM_COLUMNS * (2 * (int)sizeof(int16_t) + QGEMM_GROUP)
};

/* Whether this machine has the kernel and no better way to multiply (igemm.h's). */
bool qgemm_usable(void);

size_t qgemm_packed_bytes(int64_t N, int64_t K);
/* From float rows (N, K): each is scaled so that its largest element becomes 127, and rounded. packed: 64-aligned. */
void qgemm_pack_floats(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed);

size_t qgemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t K);

/* call->packed: qgemm_pack_floats' */
void qgemm_run(cloob_ctx *ctx, const igemm_call *c);

/* The definition: one element after the other, in plain C. No scratch. */
void qgemm_plain(const igemm_call *c);

/* ---- the inner part -------------------------------------------------------------------------------- */

/* What a row's group is multiplied by, and what was added to its elements, twice for one load. */
typedef struct qgemm_row {
    float scale;
    int16_t zero[2];
} qgemm_row;

/* At most QGEMM_ROWS rows by one panel over some groups: added to sum. */
typedef struct qgemm_block {
    const uint8_t *x;     /* (groups, 8, QGEMM_ROWS, 4): elements plus zero point; an odd `rows` reads one more */
    const qgemm_row *row; /* (groups, QGEMM_ROWS) */
    const int8_t *panel;  /* QGEMM_GROUP_BYTES for every group */
    float *sum;           /* (QGEMM_ROWS, QGEMM_COLUMNS); rows beyond `rows` may be overwritten */
    int64_t groups;
    int rows;
} qgemm_block;

typedef void qgemm_multiply_fn(const qgemm_block *b);

/* Groups of a row of X into its places of a block: x (groups, 32), limit (groups), to and row as in qgemm_block. */
typedef void qgemm_quantise_fn(const float *x, int64_t groups, const float *limit, uint8_t *to, qgemm_row *row);

typedef struct qgemm_kernel {
    qgemm_quantise_fn *quantise;
    qgemm_multiply_fn *multiply;
} qgemm_kernel;

extern const qgemm_kernel qgemm_kernel_plain;
/* AVX2's where the machine has it, else the plain one. Both give the same bytes. */
const qgemm_kernel *qgemm_best(void);

/* A group's scale by the distance between its largest and smallest element, the squared lengths of its halves and their
 * limit; and 1 / scale or 0. */
float qgemm_scale(float range, float left, float right, float limit);
float qgemm_inverse(float scale);

#endif
