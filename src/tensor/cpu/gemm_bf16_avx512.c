/* bf16 by bf16 with vdpbf16ps: up to 12 rows by 32 columns of C in 24 registers; a pair of k is one broadcast of 32
 * bits from A, which is read where it is. And the epilogue for a C in bf16, for all kernels of AVX-512. */
#include <immintrin.h>

#include "tensor/cpu/gemm_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define WIDE   __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

enum { ROWS = 12, HALF = 8, STEP_BYTES = 2 * BF16_TILE * (int)sizeof(uint16_t) };

TARGET INLINE __m512bh pair(const char *a)
{
    int two;
    __builtin_memcpy(&two, a, sizeof two);
    return (__m512bh)_mm512_set1_epi32(two);
}

TARGET INLINE __m512bh line(const uint16_t *b) { return (__m512bh)_mm512_loadu_si512(b); }

/* Rows r0 .. r0 + rows by 32 columns of sums. rows is a constant where it is called, so that sums stay in registers. */
TARGET INLINE void some_rows(const gemm_block *x, const int r0, const int rows)
{
    __m512 left[ROWS], right[ROWS];
    float *c = (float *)x->sum + r0 * x->ld;
    const char *const *table = (const char *const *)x->a + r0;
    const uint16_t *b = x->b;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        left[r] = x->first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * x->ld);
        right[r] = x->first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * x->ld + BF16_EDGE);
    }
    for (int64_t s = 0; s < x->steps; s++, table += BF16_EDGE, b += 2 * BF16_TILE) {
        const char *a[ROWS];
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) a[r] = table[r];
        if (r0 == 0) gemm_fetch(x, s, STEP_BYTES);
#pragma GCC unroll 4
        for (int p = 0; p < BF16_EDGE; p++) {
            __m512bh l = line(b + p * BF16_STEP), m = line(b + BF16_TILE + p * BF16_STEP);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                __m512bh two = pair(a[r] + 4 * p);
                left[r] = _mm512_dpbf16_ps(left[r], two, l);
                right[r] = _mm512_dpbf16_ps(right[r], two, m);
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(c + r * x->ld, left[r]);
        _mm512_storeu_ps(c + r * x->ld + BF16_EDGE, right[r]);
    }
}

#define CASE(n)                                                                                                        \
    case n: some_rows(x, 0, n); break

TARGET static void multiply(const gemm_block *x)
{
    switch (x->rows) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
    default: /* up to 16 of a transposed A: there are rows beyond the last one */
        some_rows(x, 0, HALF);
        some_rows(x, HALF, HALF);
    }
}

/* ---- the epilogue ---------------------------------------------------------------------------------- */

/* bf16_down of every lane. native: by AVX512-BF16's instruction, which makes zeros of numbers below 2^-126. */
WIDE INLINE __m256i round_down(__m512 v, const bool native)
{
    __m256i half;
    if (native) {
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(v));
        return half;
    }
    __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7FFF));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    sum = _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(sum);
}

/* 16 columns of a row, from element `at` of C on. more: with a residual or relu. */
WIDE INLINE void finish_line(const gemm_call *x, __m512 v, int64_t at, __mmask16 there, const bool more,
                             const bool native)
{
    if (more && x->res) {
        __m256i half = _mm256_maskz_loadu_epi16(there, (const uint16_t *)x->res + at);
        v = _mm512_add_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16)));
    }
    if (more && x->relu) /* a NaN stays one */
        v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLT_UQ), v);
    _mm256_mask_storeu_epi16((uint16_t *)x->c + at, there, round_down(v, native));
}

WIDE INLINE void finish_rows(const gemm_finish *f, const float *sum, int64_t ld, int64_t m, int rows, int64_t n,
                             int cols, const bool more, const bool native)
{
    const gemm_call *x = f->x;
    float alpha = x->alpha != 0 ? x->alpha : 1;
    unsigned all = (unsigned)((UINT64_C(1) << cols) - 1); /* a bit per column, 32 at most */
    __mmask16 there[2] = { (__mmask16)(all & 0xFFFF), (__mmask16)(all >> 16) };
    __m512 bias[2], columns[2];
    for (int h = 0; h < 2; h++) { /* -0 is what changes no number that it is added to */
        bias[h] = x->bias ? _mm512_maskz_loadu_ps(there[h], x->bias + n + 16 * h) : _mm512_set1_ps(-0.0f);
        columns[h] = f->columns ? _mm512_loadu_ps(f->columns + 16 * h) : _mm512_set1_ps(1);
    }
    for (int r = 0; r < rows; r++, sum += ld) {
        __m512 row = _mm512_set1_ps(f->rows ? f->rows[r] : alpha);
        int64_t at = (m + r) * x->ldc + n;
        for (int h = 0; h < 2; h++) {
            __m512 v = _mm512_fmadd_ps(_mm512_loadu_ps(sum + 16 * h), _mm512_mul_ps(row, columns[h]), bias[h]);
            if (there[h]) finish_line(x, v, at + 16 * h, there[h], more, native);
        }
    }
}

/* cols is at most 32. */
WIDE void gemm_finish_avx512(const gemm_finish *f, const float *sum, int64_t ld, int64_t m, int rows, int64_t n,
                             int cols)
{
    bool more = f->x->res || f->x->relu, native = __builtin_cpu_supports("avx512bf16");
    if (more && native) finish_rows(f, sum, ld, m, rows, n, cols, true, true);
    else if (native) finish_rows(f, sum, ld, m, rows, n, cols, false, true);
    else finish_rows(f, sum, ld, m, rows, n, cols, more, false);
}

/* ---- transposition --------------------------------------------------------------------------------- */

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

/* 8 steps where factors are packed on the way: two blocks of columns of B are 16 KiB, half of the first cache. A step
 * of A is a row of pointers, and space for a copy. */
const gemm_kernel gemm_bf16_avx512 = { .name = "bf16_avx512",
                                       .kind = GEMM_BF16,
                                       .usable = usable,
                                       .rows = BF16_EDGE,
                                       .even = ROWS,
                                       .points = true,
                                       .cols = BF16_COLS,
                                       .step = BF16_STEP,
                                       .a_step = BF16_EDGE * (int)sizeof(void *) + BF16_TILE * (int)sizeof(uint16_t),
                                       .b_step = STEP_BYTES,
                                       .chunk = 128,
                                       .panels = 16,
                                       .depth = 8,
                                       .pack_a = gemm_bf16_point_a,
                                       .pack_b = gemm_bf16_pack_b,
                                       .transpose_pairs = transpose,
                                       .multiply = multiply,
                                       .finish = gemm_finish_avx512 };
