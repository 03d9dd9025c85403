/* The inner part in AVX-512: six rows by 64 columns in 24 registers, four loads and six broadcasts for 24 multiply-adds. */
#include <immintrin.h>

#include "tensor/cpu/pgemm.h"

#define TARGET __attribute__((target("avx512f,fma")))

enum { V = 16, VECTORS = PGEMM_COLUMNS / V };

bool pgemm_usable(void) { return __builtin_cpu_supports("avx512f"); }

TARGET static inline __mmask16 mask_of(int columns, int v)
{
    int left = columns - v * V;
    return left >= V ? (__mmask16)0xFFFF : left <= 0 ? (__mmask16)0 : (__mmask16)((1u << left) - 1);
}

TARGET static inline void store_row(const pgemm_block *b, int r, const __m512 *sum)
{
    for (int v = 0; v < VECTORS; v++) {
        __mmask16 mask = mask_of(b->columns, v);
        __m512 y = sum[v];
        if (b->bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, b->bias + v * V));
        if (b->res) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, b->res + r * b->ldy + v * V));
        _mm512_mask_storeu_ps(b->y + r * b->ldy + v * V, mask, y);
    }
}

/* rows is a constant where it is called, so that the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void rows_by_panel(const pgemm_block *b, const int rows)
{
    __m512 sum[PGEMM_ROWS][VECTORS];
    const float *panel = b->panel, *next = b->next;
    int64_t fetched = 0, due = 0;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) sum[r][v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < b->K; k++, panel += PGEMM_COLUMNS) {
        __m512 w[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) w[v] = _mm512_loadu_ps(panel + v * V);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 x = _mm512_set1_ps(b->x[r * b->ldx + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sum[r][v] = _mm512_fmadd_ps(x, w[v], sum[r][v]);
        }
        for (due += next ? b->fetch : 0; due >= b->K; due -= b->K) _mm_prefetch((const char *)(next + V * fetched++), _MM_HINT_T1);
    }
    for (int r = 0; r < rows; r++) store_row(b, r, sum[r]);
}

TARGET void pgemm_multiply(const pgemm_block *b)
{
    switch (b->rows) {
    case 1: rows_by_panel(b, 1); break;
    case 2: rows_by_panel(b, 2); break;
    case 3: rows_by_panel(b, 3); break;
    case 4: rows_by_panel(b, 4); break;
    case 5: rows_by_panel(b, 5); break;
    default: rows_by_panel(b, 6); break;
    }
}
