/* bf16 by bf16 with vdpbf16ps: 8 rows by 32 columns of C in 16 registers; a pair of k is one broadcast of 32 bits. */
#include <immintrin.h>

#include "tensor/cpu/gemm_kernels.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

enum { ROWS = 8 };

TARGET static inline __m512bh pair(const uint16_t *a)
{
    int two;
    __builtin_memcpy(&two, a, sizeof two);
    return (__m512bh)_mm512_set1_epi32(two);
}

TARGET static inline __m512bh line(const uint16_t *b) { return (__m512bh)_mm512_loadu_si512(b); }

/* ROWS rows by 32 columns of sums, ld apart. a: the first of the rows, 64 bytes apart. */
TARGET static void two_tiles(float *c, int64_t ld, const uint16_t *a, const uint16_t *b, int64_t steps, bool first)
{
    __m512 left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) {
        left[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * ld);
        right[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * ld + BF16_EDGE);
    }
    for (int64_t s = 0; s < steps; s++, a += BF16_TILE, b += 2 * BF16_TILE)
        for (int p = 0; p < BF16_EDGE; p++) {
            __m512bh l = line(b + p * BF16_STEP), m = line(b + BF16_TILE + p * BF16_STEP);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                __m512bh x = pair(a + r * BF16_STEP + 2 * p);
                left[r] = _mm512_dpbf16_ps(left[r], x, l);
                right[r] = _mm512_dpbf16_ps(right[r], x, m);
            }
        }
    for (int r = 0; r < ROWS; r++) {
        _mm512_storeu_ps(c + r * ld, left[r]);
        _mm512_storeu_ps(c + r * ld + BF16_EDGE, right[r]);
    }
}

/* Twice the rows by 16 columns. */
TARGET static void one_tile(float *c, int64_t ld, const uint16_t *a, const uint16_t *b, int64_t steps, bool first)
{
    __m512 sum[2 * ROWS];
    for (int r = 0; r < 2 * ROWS; r++) sum[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * ld);
    for (int64_t s = 0; s < steps; s++, a += BF16_TILE, b += 2 * BF16_TILE)
        for (int p = 0; p < BF16_EDGE; p++) {
            __m512bh l = line(b + p * BF16_STEP);
#pragma GCC unroll 16
            for (int r = 0; r < 2 * ROWS; r++) sum[r] = _mm512_dpbf16_ps(sum[r], pair(a + r * BF16_STEP + 2 * p), l);
        }
    for (int r = 0; r < 2 * ROWS; r++) _mm512_storeu_ps(c + r * ld, sum[r]);
}

TARGET static void multiply(const gemm_block *x)
{
    const uint16_t *a = x->a;
    float *c = x->sum;
    if (x->cols <= BF16_EDGE) one_tile(c, x->ld, a, x->b, x->steps, x->first);
    else
        for (int r = 0; r < x->rows; r += ROWS)
            two_tiles(c + r * x->ld, x->ld, a + r * BF16_STEP, x->b, x->steps, x->first);
}

/* Pairs of elements, then of pairs within 128 bits, then of 128-bit lanes. */
TARGET static void transpose(uint32_t *to, const uint32_t *from)
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

static bool usable(void) { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

/* 8 steps: two blocks of columns of B are 16 KiB, half of the first cache. */
const gemm_kernel gemm_bf16_avx512 = { GEMM_BF16_KERNEL("bf16_avx512", BF16_EDGE, 8, transpose), .usable = usable,
                                       .multiply = multiply };
