/* Float by float in NEON, which every AArch64 processor has: up to 6 rows by 16 columns in 24 of 32 registers; four
 * loads of the panel and two of X for 24 multiply-adds. */
#include <arm_neon.h>
#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

enum { V = 4, ROWS = 6, COLUMNS = 16, WIDE = COLUMNS / V };

/* ---- packing ------------------------------------------------------------------------------------- */

/* Columns k to k + 3 of the rows from `first` on become rows of `to`; n of them are stored. */
static inline void transpose_4(const float *from, int64_t ld, int first, int rows, float *to, int64_t ld_to, int n)
{
    float32x4_t v[V];
    for (int r = 0; r < V; r++) v[r] = first + r < rows ? vld1q_f32(from + (first + r) * ld) : vdupq_n_f32(0);
    float32x4x2_t a = vtrnq_f32(v[0], v[1]), b = vtrnq_f32(v[2], v[3]);
    float32x4_t t[V] = { vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])),
                         vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])),
                         vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])),
                         vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])) };
    for (int i = 0; i < V; i++, to += ld_to) {
        if (n == V) vst1q_f32(to + first, t[i]);
        else memcpy(to + first, &t[i], (size_t)n * sizeof *to);
    }
}

static void transpose_rows(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to)
{
    int64_t k = 0;
    int filled = ld_to < 2 * V ? (int)ld_to : 2 * V;
    for (; k + V <= K; k += V)
        for (int first = 0; first < filled; first += V)
            transpose_4(from + k, ld, first, rows, to + k * ld_to, ld_to, filled - first < V ? filled - first : V);
    for (; k < K; k++)
        for (int r = 0; r < filled; r++) to[k * ld_to + r] = r < rows ? from[r * ld + k] : 0;
}

/* ---- multiplying --------------------------------------------------------------------------------- */

/* rows is a constant where it is called, so that the sums stay in registers. sum: (rows, COLUMNS), ld apart. */
static inline __attribute__((always_inline)) void rows_by_panel(const gemm_block *b, float *sum, int64_t ld,
                                                                const int rows)
{
    float32x4_t s[ROWS][WIDE];
    const float *panel = b->b, *x = b->a;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < WIDE; c++) s[r][c] = b->first ? vdupq_n_f32(0) : vld1q_f32(sum + r * ld + c * V);
    for (int64_t k = 0; k < b->steps; k++, panel += COLUMNS, x += ROWS) {
        float32x4_t p[WIDE], left = vld1q_f32(x);
        float32x2_t right = vld1_f32(x + V);
#pragma GCC unroll 4
        for (int c = 0; c < WIDE; c++) p[c] = vld1q_f32(panel + c * V);
#pragma GCC unroll 4
        for (int c = 0; c < WIDE; c++) {
            s[0][c] = vfmaq_laneq_f32(s[0][c], p[c], left, 0);
            if (rows > 1) s[1][c] = vfmaq_laneq_f32(s[1][c], p[c], left, 1);
            if (rows > 2) s[2][c] = vfmaq_laneq_f32(s[2][c], p[c], left, 2);
            if (rows > 3) s[3][c] = vfmaq_laneq_f32(s[3][c], p[c], left, 3);
            if (rows > 4) s[4][c] = vfmaq_lane_f32(s[4][c], p[c], right, 0);
            if (rows > 5) s[5][c] = vfmaq_lane_f32(s[5][c], p[c], right, 1);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < WIDE; c++) vst1q_f32(sum + r * ld + c * V, s[r][c]);
}

static void by_rows(const gemm_block *b, float *sum, int64_t ld)
{
    switch (b->rows) {
    case 1: rows_by_panel(b, sum, ld, 1); break;
    case 2: rows_by_panel(b, sum, ld, 2); break;
    case 3: rows_by_panel(b, sum, ld, 3); break;
    case 4: rows_by_panel(b, sum, ld, 4); break;
    case 5: rows_by_panel(b, sum, ld, 5); break;
    default: rows_by_panel(b, sum, ld, ROWS); break;
    }
}

/* The last columns of a matrix go through a whole tile. */
static void multiply(const gemm_block *b)
{
    float tile[ROWS * COLUMNS] = { 0 }, *sum = b->sum;
    size_t bytes = (size_t)b->cols * sizeof *sum;
    if (b->cols == COLUMNS) {
        by_rows(b, sum, b->ld);
        return;
    }
    for (int r = 0; r < b->rows && !b->first; r++) memcpy(tile + r * COLUMNS, sum + r * b->ld, bytes);
    by_rows(b, tile, COLUMNS);
    for (int r = 0; r < b->rows; r++) memcpy(sum + r * b->ld, tile + r * COLUMNS, bytes);
}

static bool usable(void) { return true; }

const gemm_kernel gemm_f32_neon = { GEMM_F32_KERNEL("f32_neon", ROWS, COLUMNS, transpose_rows), .usable = usable,
                                    .multiply = multiply };
