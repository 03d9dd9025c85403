/* The inner part for processors without bf16 instructions: a bf16 number is the upper half of a float, so a shift and a
 * mask make two floats out of a pair. 4 rows by 16 columns of C in 8 registers; a line of B becomes floats once for the
 * 4 rows. */
#include <immintrin.h>

#include "tensor/cpu/bgemm_kernel.h"

#define TARGET __attribute__((target("avx2,fma")))

enum { V = 8, ROWS = 4 };

TARGET static inline __m256 first_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }

TARGET static inline __m256 second_of(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

TARGET static inline __m256i line(const uint16_t *b) { return _mm256_loadu_si256((const __m256i *)(const void *)b); }

/* ROWS rows of a C tile. a: the first of the rows, 64 bytes apart. */
TARGET static void four_rows(float *c, const uint16_t *a, const uint16_t *b, int64_t steps, bool fresh)
{
    __m256 left[ROWS], right[ROWS];
    for (int r = 0; r < ROWS; r++) {
        left[r] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * BGEMM_EDGE);
        right[r] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * BGEMM_EDGE + V);
    }
    for (int64_t s = 0; s < steps; s++, a += BGEMM_TILE, b += BGEMM_TILE)
        for (int p = 0; p < BGEMM_EDGE; p++) {
            __m256i l = line(b + p * BGEMM_STEP), m = line(b + p * BGEMM_STEP + 2 * V);
            __m256 l0 = first_of(l), l1 = second_of(l), m0 = first_of(m), m1 = second_of(m);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                __m256i pair = _mm256_set1_epi32((int)((const bgemm_pair *)(a + r * BGEMM_STEP))[p]);
                __m256 x0 = first_of(pair), x1 = second_of(pair);
                left[r] = _mm256_fmadd_ps(x1, l1, _mm256_fmadd_ps(x0, l0, left[r]));
                right[r] = _mm256_fmadd_ps(x1, m1, _mm256_fmadd_ps(x0, m0, right[r]));
            }
        }
    for (int r = 0; r < ROWS; r++) {
        _mm256_storeu_ps(c + r * BGEMM_EDGE, left[r]);
        _mm256_storeu_ps(c + r * BGEMM_EDGE + V, right[r]);
    }
}

static void multiply(const bgemm_block *x)
{
    for (int64_t j = 0; j < x->cols; j++)
        for (int64_t i = 0; i < x->rows; i++) /* the block of columns stays in the first cache */
            for (int r = 0; r < BGEMM_EDGE; r += ROWS)
                four_rows(x->c + (i * x->cols + j) * BGEMM_TILE_C + r * BGEMM_EDGE,
                          x->a + i * x->steps * BGEMM_TILE + r * BGEMM_STEP, x->b + j * x->b_next, x->steps, x->fresh);
}

static void transpose(bgemm_pair *to, const bgemm_pair *from) { bgemm_plain.transpose(to, from); }

const bgemm_kernel bgemm_avx2 = { "avx2", 16, NULL, NULL, multiply, transpose, NULL };
