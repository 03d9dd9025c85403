/* What the kernels of GEMM_I8 share: packing (gemm_i8.c) and their rows of the table. */
#ifndef TENSOR_CPU_GEMM_I8_H
#define TENSOR_CPU_GEMM_I8_H

#include "tensor/cpu/gemm_packed.h"

enum { I8_COLS = 16 };

gemm_pack_fn gemm_i8_pack_a, gemm_i8_pack_b;

/* What a row of floats needs, here and in gemm_i8_groups.c: its largest magnitude, and n elements divided by scale,
 * rounded. */
float gemm_i8_row_top(const float *x, int64_t K);
void gemm_i8_round_row(const float *x, int64_t n, float scale, int8_t *to);

/* The largest whole number that an element of A becomes. */
int32_t gemm_i8_top(int64_t K);

/* A: a scale for each row, then (pairs of k, rows, 2) int16. B: a scale for each column, then (pairs, columns, 2) int8.
 * 144 rows stay in the second cache, 384 pairs of a panel in the first. */
#define GEMM_I8_KERNEL(name_, rows_)                                                                                   \
    .name = name_, .kind = GEMM_I8, .rows = rows_, .cols = I8_COLS, .step = 2,                                         \
    .a_step = rows_ * 2 * (int)sizeof(int16_t), .b_step = I8_COLS * 2, .a_head = rows_ * (int)sizeof(float),           \
    .b_head = I8_COLS * (int)sizeof(float), .chunk = 144, .depth = 384, .panels = 1, .a_whole = true,                  \
    .pack_a = gemm_i8_pack_a, .pack_b = gemm_i8_pack_b

#endif
