/* Float by float in AVX-512: up to 14 rows by 32 columns in 28 registers, two loads and a broadcast per row for two
 * multiply-adds per row. Tall and narrow, because a panel comes from far away and the rows are near. */
#include <immintrin.h>

#include "tensor/cpu/gemm_kernels.h"

#define TARGET __attribute__((target("avx512f,fma")))

enum { V = 16, ROWS = 14, COLUMNS = 32 };

TARGET static inline __mmask16 mask_of(int columns, int v)
{
    int left = columns - v * V;
    if (left <= 0) return 0;
    return (__mmask16)(left >= V ? 0xFFFFu : (1u << left) - 1u);
}

/* ---- packing ------------------------------------------------------------------------------------- */

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

TARGET static void transpose_rows(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to)
{
    __mmask16 across = mask_of(ld_to < V ? (int)ld_to : V, 0);
    for (int64_t k = 0; k < K; k += V) {
        int strip = K - k < V ? (int)(K - k) : V;
        __mmask16 along = mask_of(strip, 0);
        __m512 v[V];
        for (int r = 0; r < V; r++)
            v[r] = r < rows ? _mm512_maskz_loadu_ps(along, from + r * ld + k) : _mm512_setzero_ps();
        transpose(v);
        for (int i = 0; i < strip; i++) _mm512_mask_storeu_ps(to + (k + i) * ld_to, across, v[i]);
    }
}

/* ---- GEMMs --------------------------------------------------------------------------------------- */

/* rows is a constant where it is called, so that the sums stay in registers. The first two blocks prefetch the two
 * halves of the next panel. */
TARGET static inline __attribute__((always_inline)) void rows_by_panel(const gemm_block *b, const int rows)
{
    __m512 left[ROWS], right[ROWS];
    __mmask16 low = mask_of(b->cols, 0), high = mask_of(b->cols, 1);
    const float *panel = b->b, *x = b->a;
    const char *next = b->next && b->index < 2 ? (const char *)b->next + b->index * b->steps * 64 : NULL;
    float *sum = b->sum;
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
        left[r] = b->first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(low, sum + r * b->ld);
        right[r] = b->first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(high, sum + r * b->ld + V);
    }
    for (int64_t k = 0; k < b->steps; k++, x += ROWS) {
        __m512 l = _mm512_loadu_ps(panel + k * COLUMNS), m = _mm512_loadu_ps(panel + k * COLUMNS + V);
#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) {
            __m512 one = _mm512_set1_ps(x[r]);
            left[r] = _mm512_fmadd_ps(one, l, left[r]);
            right[r] = _mm512_fmadd_ps(one, m, right[r]);
        }
        if (next) _mm_prefetch(next + k * 64, _MM_HINT_T1);
    }
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(sum + r * b->ld, low, left[r]);
        _mm512_mask_storeu_ps(sum + r * b->ld + V, high, right[r]);
    }
}

#define BY(n)                                                                                                          \
    TARGET static void rows_##n(const gemm_block *b) { rows_by_panel(b, n); }
/* clang-format off */
BY(1) BY(2) BY(3) BY(4) BY(5) BY(6) BY(7) BY(8) BY(9) BY(10) BY(11) BY(12) BY(13) BY(14)
    /* clang-format on */

    static void multiply(const gemm_block *b)
{
    static void (*const by_rows[ROWS])(const gemm_block *) = { rows_1,  rows_2,  rows_3,  rows_4, rows_5,
                                                               rows_6,  rows_7,  rows_8,  rows_9, rows_10,
                                                               rows_11, rows_12, rows_13, rows_14 };
    by_rows[b->rows - 1](b);
}

static bool usable(void) { return __builtin_cpu_supports("avx512f"); }

const gemm_kernel gemm_f32_avx512 = { GEMM_F32_KERNEL("f32_avx512", ROWS, COLUMNS, transpose_rows), .usable = usable,
                                      .multiply = multiply };
