/* The inner part in AVX-512: up to 14 rows by 32 columns in 28 registers, two loads and a broadcast per row for two
 * multiply-adds per row. Tall and narrow, because a panel comes from far away and the rows are near. */
#include <immintrin.h>

#include "tensor/cpu/pgemm.h"

#define TARGET __attribute__((target("avx512f,fma")))

enum { V = 16, ROWS = 14, COLUMNS = 32 };

TARGET static inline __mmask16 mask_of(int columns, int v)
{
    int left = columns - v * V;
    if (left <= 0) return 0;
    return (__mmask16)(left >= V ? 0xFFFFu : (1u << left) - 1u);
}

TARGET static inline __attribute__((always_inline)) void end_row(const pgemm_block *b, int r, int v, __m512 y)
{
    __mmask16 mask = mask_of(b->columns, v);
    if (b->bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, b->bias + v * V));
    if (b->res) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, b->res + r * b->ldy + v * V));
    _mm512_mask_storeu_ps(b->y + r * b->ldy + v * V, mask, y);
}

/* ---- turning rows -------------------------------------------------------------------------------- */

/* Sixteen rows of sixteen, transposed in place: first within pairs and fours of elements, then the fours themselves. */
TARGET static inline void transpose(__m512 v[V])
{
    __m512 t[V];
    for (int i = 0; i < V; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < V; i += 4)
        for (int h = 0; h < 2; h++) {
            __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + 2 + h]);
            v[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            v[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) { /* v[4 g + i] holds column 4 q + i of rows 4 g to 4 g + 3 in its lane q */
        __m512 a = _mm512_shuffle_f32x4(v[i], v[4 + i], 0x88), b = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0x88),
               c = _mm512_shuffle_f32x4(v[i], v[4 + i], 0xdd), d = _mm512_shuffle_f32x4(v[8 + i], v[12 + i], 0xdd);
        t[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        t[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
    for (int i = 0; i < V; i++) v[i] = t[i];
}

TARGET static void turn(const float *from, int64_t K, int rows, float *to)
{
    __mmask16 across = (__mmask16)((1u << rows) - 1u);
    for (int64_t k = 0; k < K; k += V) {
        int strip = K - k < V ? (int)(K - k) : V;
        __mmask16 along = mask_of(strip, 0);
        __m512 v[V];
        for (int r = 0; r < V; r++)
            v[r] = r < rows ? _mm512_maskz_loadu_ps(along, from + r * K + k) : _mm512_setzero_ps();
        transpose(v);
        for (int i = 0; i < strip; i++) _mm512_mask_storeu_ps(to + (k + i) * rows, across, v[i]);
    }
}

/* ---- GEMMs --------------------------------------------------------------------------------------- */

/* rows is a constant where it is called, so that the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void rows_by_panel(const pgemm_block *b, const int rows)
{
    __m512 left[ROWS], right[ROWS];
    const float *panel = b->panel, *next = b->next, *x = b->x;
    int64_t K = b->K;
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) left[r] = right[r] = _mm512_setzero_ps();
    for (int64_t k = 0; k < K; k++, x += rows) {
        __m512 l = _mm512_loadu_ps(panel + k * COLUMNS), m = _mm512_loadu_ps(panel + k * COLUMNS + V);
#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) {
            __m512 one = _mm512_set1_ps(x[r]);
            left[r] = _mm512_fmadd_ps(one, l, left[r]);
            right[r] = _mm512_fmadd_ps(one, m, right[r]);
        }
        if (next) _mm_prefetch((const char *)(next + k * V), _MM_HINT_T1);
    }
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
        end_row(b, r, 0, left[r]);
        end_row(b, r, 1, right[r]);
    }
}

#define BY(n)                                                                                                          \
    TARGET static void rows_##n(const pgemm_block *b) { rows_by_panel(b, n); }
/* clang-format off */
BY(1) BY(2) BY(3) BY(4) BY(5) BY(6) BY(7) BY(8) BY(9) BY(10) BY(11) BY(12) BY(13) BY(14)
    /* clang-format on */

    static void multiply(const pgemm_block *b)
{
    static void (*const by_rows[ROWS])(const pgemm_block *) = { rows_1,  rows_2,  rows_3,  rows_4, rows_5,
                                                                rows_6,  rows_7,  rows_8,  rows_9, rows_10,
                                                                rows_11, rows_12, rows_13, rows_14 };
    by_rows[b->rows - 1](b);
}

/* All of k at once: a panel stays in the second cache, which is large on these machines. */
const pgemm_kernel pgemm_avx512 = { COLUMNS, ROWS, 224, 0, 1, multiply, turn };
