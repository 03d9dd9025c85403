/* 13-bit activations by 8-bit weights in AVX2, which multiplies pairs and adds (pmaddwd, paddd): 6 rows by 16 columns
 * of 32-bit sums in 12 registers. Processors with VNNI multiply bytes (gemm_u8_x86.c). */
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define TARGET __attribute__((target("avx2")))

enum { P = I8_COLS, R = 6, V = 8 };

/* A pair of a row's elements in every place. */
TARGET INLINE __m256i pair_of(const int16_t *x, int r)
{
    int32_t two;
    memcpy(&two, x + 2 * r, sizeof two);
    return _mm256_set1_epi32(two);
}

/* 16 weights as 16-bit numbers. */
TARGET INLINE __m256i half_panel(const int8_t *w)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)w));
}

/* 12 sums, 2 of a panel, a broadcast and this product are all 16 registers: the compiler on its own would have more
 * products in registers and moves sums to memory, at half the speed. */
TARGET INLINE __m256i step(__m256i sum, __m256i a, __m256i b)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
    return sum;
}

/* rows is a constant where it is called, so that the sums stay in registers. */
TARGET INLINE void some_rows(const gemm_block *b, const int rows)
{
    __m256i left[R], right[R];
    const int16_t *x = b->a;
    const int8_t *w = b->b;
    for (int r = 0; r < rows; r++) {
        const __m256i *s = (const __m256i *)(const void *)((const int32_t *)b->sum + r * b->ld);
        left[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s);
        right[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s + 1);
    }
    for (int64_t k = 0; k < b->steps; k++, x += 2 * R, w += 2 * P) {
        __m256i l = half_panel(w), m = half_panel(w + P);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m256i one = pair_of(x, r);
            left[r] = step(left[r], one, l);
            right[r] = step(right[r], one, m);
        }
    }
    for (int r = 0; r < rows; r++) {
        __m256i *s = (__m256i *)(void *)((int32_t *)b->sum + r * b->ld);
        _mm256_storeu_si256(s, left[r]);
        _mm256_storeu_si256(s + 1, right[r]);
    }
}

/* A row's pair by both halves of a panel (ymm12, ymm13). Both products come before both sums: products have two of the
 * four units that sums have, and a sum that waits next to its product takes one of the two. */
#define ROW(offset, left, right)                                                                                       \
    "vpbroadcastd " #offset "(%[x]), %%ymm14\n\t"                                                                      \
    "vpmaddwd %%ymm12, %%ymm14, %%ymm15\n\t"                                                                           \
    "vpmaddwd %%ymm13, %%ymm14, %%ymm14\n\t"                                                                           \
    "vpaddd %%ymm15, %" #left ", %" #left "\n\t"                                                                       \
    "vpaddd %%ymm14, %" #right ", %" #right "\n\t"

/* Six rows, nearly all blocks of a batch: the loop instruction by instruction. */
TARGET static void six_rows(const gemm_block *b)
{
    __m256i s[2 * R];
    const int16_t *x = b->a;
    const int8_t *w = b->b;
    int32_t *sum = b->sum;
    int64_t pairs = b->steps;
    for (int i = 0; i < 2 * R; i++) {
        const __m256i *at = (const __m256i *)(const void *)(sum + i / 2 * b->ld + i % 2 * V);
        s[i] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(at);
    }
    __asm__("1:\n\t"
            "vpmovsxbw (%[w]), %%ymm12\n\t"
            "vpmovsxbw 16(%[w]), %%ymm13\n\t"
            /* clang-format off */
            ROW(0, 0, 1) ROW(4, 2, 3) ROW(8, 4, 5) ROW(12, 6, 7) ROW(16, 8, 9) ROW(20, 10, 11)
            /* clang-format on */
            "add $24, %[x]\n\t"
            "add $32, %[w]\n\t"
            "dec %[n]\n\t"
            "jnz 1b"
            : "+x"(s[0]), "+x"(s[1]), "+x"(s[2]), "+x"(s[3]), "+x"(s[4]), "+x"(s[5]), "+x"(s[6]), "+x"(s[7]),
              "+x"(s[8]), "+x"(s[9]), "+x"(s[10]), "+x"(s[11]), [x] "+r"(x), [w] "+r"(w), [n] "+r"(pairs)
            :
            : "memory", "cc", "ymm12", "ymm13", "ymm14", "ymm15");
    for (int i = 0; i < 2 * R; i++) _mm256_storeu_si256((__m256i *)(void *)(sum + i / 2 * b->ld + i % 2 * V), s[i]);
}

TARGET static void multiply(const gemm_block *b)
{
    switch (b->rows) {
    case 1: some_rows(b, 1); break;
    case 2: some_rows(b, 2); break;
    case 3: some_rows(b, 3); break;
    case 4: some_rows(b, 4); break;
    case 5: some_rows(b, 5); break;
    default: six_rows(b); break;
    }
}

static bool usable(void) { return __builtin_cpu_supports("avx2"); }

const gemm_kernel gemm_i8_avx2 = { GEMM_I8_KERNEL("i8_avx2", R), .usable = usable, .multiply = multiply };
