/* bf16 by bf16 for processors without bf16 instructions: a bf16 number is the upper half of a float, so a shift and a
 * mask make two floats out of a pair. 4 rows by 16 columns of C in 8 registers; a line of B becomes floats once for the
 * 4 rows. */
#include <immintrin.h>

#include "tensor/cpu/gemm_kernels.h"

#define TARGET __attribute__((target("avx2,fma")))

enum { V = 8, ROWS = 4 };

TARGET static inline __m256 first_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }

TARGET static inline __m256 second_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

TARGET static inline __m256i line(const uint16_t *b) { return _mm256_loadu_si256((const __m256i *)(const void *)b); }

/* ROWS rows by 16 columns of sums, ld apart. a: the first of the rows, 64 bytes apart; b: a tile of each step. */
TARGET static void four_rows(float *c, int64_t ld, const uint16_t *a, const uint16_t *b, int64_t steps, bool first)
{
    typedef int pair __attribute__((may_alias));
    __m256 left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) {
        left[r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * ld);
        right[r] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * ld + V);
    }
    for (int64_t s = 0; s < steps; s++, a += BF16_TILE, b += 2 * BF16_TILE)
        for (int p = 0; p < BF16_EDGE; p++) {
            __m256i l = line(b + p * BF16_STEP), m = line(b + p * BF16_STEP + 2 * V);
            __m256 l0 = first_of(l), l1 = second_of(l), m0 = first_of(m), m1 = second_of(m);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                __m256i two = _mm256_set1_epi32(((const pair *)(const void *)(a + r * BF16_STEP))[p]);
                __m256 x0 = first_of(two), x1 = second_of(two);
                left[r] = _mm256_fmadd_ps(x1, l1, _mm256_fmadd_ps(x0, l0, left[r]));
                right[r] = _mm256_fmadd_ps(x1, m1, _mm256_fmadd_ps(x0, m0, right[r]));
            }
        }
    for (int r = 0; r < ROWS; r++) {
        _mm256_storeu_ps(c + r * ld, left[r]);
        _mm256_storeu_ps(c + r * ld + V, right[r]);
    }
}

static void multiply(const gemm_block *x)
{
    const uint16_t *a = x->a, *b = x->b;
    for (int n = 0; n < x->cols; n += BF16_EDGE, b += BF16_TILE)
        for (int r = 0; r < x->rows; r += ROWS)
            four_rows((float *)x->sum + r * x->ld + n, x->ld, a + r * BF16_STEP, b, x->steps, x->first);
}

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const gemm_kernel gemm_bf16_avx2 = { GEMM_BF16_KERNEL("bf16_avx2", BF16_EDGE, 16, gemm_bf16_transpose_plain),
                                     .usable = usable, .multiply = multiply };
