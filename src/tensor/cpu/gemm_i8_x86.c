/* 13-bit activations by 8-bit weights on x86-64. AVX2 multiplies pairs and adds (pmaddwd, paddd), VNNI does both at
 * once (vpdpwssd): 6 rows by 16 columns of 32-bit sums in 12 registers. With AVX-512 a register holds the 16 columns:
 * 12 rows. */
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

enum { P = I8_COLS, R = 6, WIDE_R = 12, V = 8 };

/* A pair of a row's elements in every place. */
#define PAIR(set, x, r)                                                                                                \
    ({                                                                                                                 \
        int32_t two_;                                                                                                  \
        memcpy(&two_, (x) + 2 * (r), sizeof two_);                                                                     \
        set(two_);                                                                                                     \
    })

/* 16 weights as 16-bit numbers. */
#define HALF_PANEL(w) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w)))

/* rows is a constant where it is called, so that the sums stay in registers. */
#define HALVES(name, isa, STEP)                                                                                        \
    __attribute__((target(isa))) static inline                                                                         \
        __attribute__((always_inline)) void name##_rows(const gemm_block *b, const int rows)                           \
    {                                                                                                                  \
        __m256i left[R], right[R];                                                                                     \
        const int16_t *x = b->a;                                                                                       \
        const int8_t *w = b->b;                                                                                        \
        for (int r = 0; r < rows; r++) {                                                                               \
            const __m256i *s = (const __m256i *)(const void *)((const int32_t *)b->sum + r * b->ld);                   \
            left[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s);                                       \
            right[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s + 1);                                  \
        }                                                                                                              \
        for (int64_t k = 0; k < b->steps; k++, x += 2 * R, w += 2 * P) {                                               \
            __m256i l = HALF_PANEL(w), m = HALF_PANEL(w + P);                                                          \
            _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)                                                     \
            {                                                                                                          \
                __m256i one = PAIR(_mm256_set1_epi32, x, r);                                                           \
                left[r] = STEP(left[r], one, l);                                                                       \
                right[r] = STEP(right[r], one, m);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (int r = 0; r < rows; r++) {                                                                               \
            __m256i *s = (__m256i *)(void *)((int32_t *)b->sum + r * b->ld);                                           \
            _mm256_storeu_si256(s, left[r]);                                                                           \
            _mm256_storeu_si256(s + 1, right[r]);                                                                      \
        }                                                                                                              \
    }

#define UP_TO_6(name)                                                                                                  \
    case 1: name##_rows(b, 1); break;                                                                                  \
    case 2: name##_rows(b, 2); break;                                                                                  \
    case 3: name##_rows(b, 3); break;                                                                                  \
    case 4: name##_rows(b, 4); break;                                                                                  \
    case 5: name##_rows(b, 5); break;                                                                                  \
    case 6: name##_rows(b, 6); break

/* 12 sums, 2 of a panel, a broadcast and this product are all 16 registers: the compiler on its own would have more
 * products in registers and moves sums to memory, at half the speed. */
__attribute__((target("avx2"))) static inline __attribute__((always_inline)) __m256i step_avx2(__m256i sum, __m256i a,
                                                                                               __m256i b)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
    return sum;
}
HALVES(avx2, "avx2", step_avx2)

/* A row's pair by both halves of a panel (ymm12, ymm13). Both products come before both sums: products have two of the
 * four units that sums have, and a sum that waits next to its product takes one of the two. */
#define ROW(offset, left, right)                                                                                       \
    "vpbroadcastd " #offset "(%[x]), %%ymm14\n\t"                                                                      \
    "vpmaddwd %%ymm12, %%ymm14, %%ymm15\n\t"                                                                           \
    "vpmaddwd %%ymm13, %%ymm14, %%ymm14\n\t"                                                                           \
    "vpaddd %%ymm15, %" #left ", %" #left "\n\t"                                                                       \
    "vpaddd %%ymm14, %" #right ", %" #right "\n\t"

/* Six rows, nearly all blocks of a batch: the loop instruction by instruction. */
__attribute__((target("avx2"))) static void avx2_six(const gemm_block *b)
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

__attribute__((target("avx2"))) static void multiply_avx2(const gemm_block *b)
{
    if (b->rows == R) avx2_six(b);
    else switch (b->rows) {
            UP_TO_6(avx2);
        }
}

#define STEP_VNNI(sum, a, b) _mm256_dpwssd_avx_epi32(sum, a, b)
HALVES(avx_vnni, "avx2,avxvnni", STEP_VNNI)

__attribute__((target("avx2,avxvnni"))) static void multiply_avx_vnni(const gemm_block *b)
{
    switch (b->rows) {
        UP_TO_6(avx_vnni);
    }
}

#define AVX512 "avx512f,avx512bw,avx512vnni"
__attribute__((target(AVX512))) static inline __attribute__((always_inline)) void avx512_rows(const gemm_block *b,
                                                                                              const int rows)
{
    __m512i sum[WIDE_R];
    int32_t *to = b->sum;
    const int16_t *x = b->a;
    const int8_t *w = b->b;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sum[r] = b->first ? _mm512_setzero_si512() : _mm512_loadu_si512(to + r * b->ld);
    for (int64_t k = 0; k < b->steps; k++, x += 2 * WIDE_R, w += 2 * P) {
        __m512i panel = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)w));
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) sum[r] = _mm512_dpwssd_epi32(sum[r], PAIR(_mm512_set1_epi32, x, r), panel);
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) _mm512_storeu_si512(to + r * b->ld, sum[r]);
}

__attribute__((target(AVX512))) static void multiply_avx512(const gemm_block *b)
{
    switch (b->rows) {
        UP_TO_6(avx512);
    case 7: avx512_rows(b, 7); break;
    case 8: avx512_rows(b, 8); break;
    case 9: avx512_rows(b, 9); break;
    case 10: avx512_rows(b, 10); break;
    case 11: avx512_rows(b, 11); break;
    case 12: avx512_rows(b, 12); break;
    }
}

/* avxvnni is newer than the compiler's list of names: bit 4 of leaf 7.1's EAX. */
static bool has_avx_vnni(void)
{
    unsigned a = 7, b, c = 1, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return __builtin_cpu_supports("avx2") && (a >> 4 & 1);
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }

static bool has_avx512_vnni(void) { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw"); }

const gemm_kernel gemm_i8_avx2 = { GEMM_I8_KERNEL("i8_avx2", R), .usable = has_avx2, .multiply = multiply_avx2 };
const gemm_kernel gemm_i8_avx_vnni = { GEMM_I8_KERNEL("i8_avx_vnni", R), .usable = has_avx_vnni,
                                       .multiply = multiply_avx_vnni };
const gemm_kernel gemm_i8_avx512_vnni = { GEMM_I8_KERNEL("i8_avx512_vnni", WIDE_R), .usable = has_avx512_vnni,
                                          .multiply = multiply_avx512 };
