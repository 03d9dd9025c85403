/* The inner part by vdpbf16ps: 8 rows by 32 columns of C in 16 registers; a pair of k is one broadcast of 32 bits. */
#include <immintrin.h>

#include "tensor/cpu/bgemm_kernel.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

enum { ROWS = 8 };

TARGET static inline __m512bh pair(const uint16_t *a)
{
    int two;
    __builtin_memcpy(&two, a, sizeof two);
    return (__m512bh)_mm512_set1_epi32(two);
}

TARGET static inline __m512bh line(const uint16_t *b) { return (__m512bh)_mm512_loadu_si512(b); }

/* ROWS rows of two C tiles side by side: c, c + BGEMM_TILE_C. a: the first of the rows, 64 bytes apart. */
TARGET static void two_tiles(float *c, const uint16_t *a, const uint16_t *b0, const uint16_t *b1, int64_t steps,
                             bool fresh)
{
    __m512 left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) {
        left[r] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * BGEMM_EDGE);
        right[r] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + BGEMM_TILE_C + r * BGEMM_EDGE);
    }
    for (int64_t s = 0; s < steps; s++)
        for (int p = 0; p < BGEMM_EDGE; p++) {
            __m512bh l = line(b0 + s * BGEMM_TILE + p * BGEMM_STEP), m = line(b1 + s * BGEMM_TILE + p * BGEMM_STEP);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                __m512bh x = pair(a + s * BGEMM_TILE + r * BGEMM_STEP + 2 * p);
                left[r] = _mm512_dpbf16_ps(left[r], x, l);
                right[r] = _mm512_dpbf16_ps(right[r], x, m);
            }
        }
    for (int r = 0; r < ROWS; r++) {
        _mm512_storeu_ps(c + r * BGEMM_EDGE, left[r]);
        _mm512_storeu_ps(c + BGEMM_TILE_C + r * BGEMM_EDGE, right[r]);
    }
}

TARGET static void one_tile(float *c, const uint16_t *a, const uint16_t *b, int64_t steps, bool fresh)
{
    __m512 sum[2 * ROWS];
    for (int r = 0; r < 2 * ROWS; r++) sum[r] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * BGEMM_EDGE);
    for (int64_t s = 0; s < steps; s++)
        for (int p = 0; p < BGEMM_EDGE; p++) {
            __m512bh l = line(b + s * BGEMM_TILE + p * BGEMM_STEP);
#pragma GCC unroll 16
            for (int r = 0; r < 2 * ROWS; r++)
                sum[r] = _mm512_dpbf16_ps(sum[r], pair(a + s * BGEMM_TILE + r * BGEMM_STEP + 2 * p), l);
        }
    for (int r = 0; r < 2 * ROWS; r++) _mm512_storeu_ps(c + r * BGEMM_EDGE, sum[r]);
}

TARGET static void multiply(const bgemm_block *x)
{
    int64_t j = 0;
    for (; j + 1 < x->cols; j += 2)
        for (int64_t i = 0; i < 2 * x->rows;
             i++) { /* halves of blocks of rows; the two blocks of columns stay in the first cache */
            float *c = x->c + (i / 2 * x->cols + j) * BGEMM_TILE_C + i % 2 * ROWS * BGEMM_EDGE;
            const uint16_t *a = x->a + i / 2 * x->steps * BGEMM_TILE + i % 2 * ROWS * BGEMM_STEP,
                           *b = x->b + j * x->b_next;
            two_tiles(c, a, b, b + x->b_next, x->steps, x->fresh);
        }
    for (int64_t i = 0; j < x->cols && i < x->rows; i++)
        one_tile(x->c + (i * x->cols + j) * BGEMM_TILE_C, x->a + i * x->steps * BGEMM_TILE, x->b + j * x->b_next,
                 x->steps, x->fresh);
}

/* Pairs of elements, then of pairs within 128 bits, then of 128-bit lanes. */
TARGET static void transpose(bgemm_pair *to, const bgemm_pair *from)
{
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from + 16 * i);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xDD);
        b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + 16 * i, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_si512(to + 16 * (i + 4), _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_si512(to + 16 * (i + 8), _mm512_shuffle_i32x4(b[i], b[i + 8], 0xDD));
        _mm512_storeu_si512(to + 16 * (i + 12), _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0xDD));
    }
}

TARGET static void finish(const bgemm_finish *f)
{
    __m512 alpha = _mm512_set1_ps(f->alpha), bias = f->bias ? _mm512_loadu_ps(f->bias) : _mm512_setzero_ps();
    for (int r = 0; r < BGEMM_EDGE; r++) {
        __m512 v = _mm512_fmadd_ps(alpha, _mm512_loadu_ps(f->c + r * BGEMM_EDGE), bias);
        if (f->res) {
            __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(f->res + r * f->ld));
            v = _mm512_add_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
        }
        if (f->relu)
            v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLT_UQ), v); /* a NaN stays one */
        _mm256_storeu_si256((__m256i *)(void *)(f->to + r * f->ld), (__m256i)_mm512_cvtneps_pbh(v));
    }
}

/* 8 steps: two blocks of columns of B are 16 KiB, half of the first cache. */
const bgemm_kernel bgemm_avx512 = { "avx512_bf16", 8, NULL, NULL, multiply, transpose, finish };
