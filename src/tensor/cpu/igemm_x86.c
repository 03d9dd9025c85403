/* The inner part for x86-64: 6 rows by 16 columns of 32-bit sums. AVX2 multiplies pairs and adds (pmaddwd, paddd), VNNI
 * does both at once (vpdpwssd); with AVX-512 a register holds the 16 columns. All sums are exact, so all kernels give
 * the same numbers. */
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/igemm.h"

enum { P = IGEMM_COLUMNS, R = IGEMM_ROWS, V = 8 };

/* A pair of a row's elements in every place. */
#define PAIR(set, x, r)                                                                                                \
    ({                                                                                                                 \
        int32_t two_;                                                                                                  \
        memcpy(&two_, (x) + 2 * (r), sizeof two_);                                                                     \
        set(two_);                                                                                                     \
    })

/* rows is a constant where it is called, so that the sums stay in registers. */
#define HALVES(name, isa, STEP)                                                                                        \
    __attribute__((target(isa))) static inline                                                                         \
        __attribute__((always_inline)) void name##_rows(const igemm_block *b, const int rows)                          \
    {                                                                                                                  \
        __m256i left[R], right[R];                                                                                     \
        const int16_t *x = b->x, *w = b->panel;                                                                        \
        for (int r = 0; r < rows; r++) {                                                                               \
            const __m256i *s = (const __m256i *)(const void *)(b->sum + r * P);                                        \
            left[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s);                                       \
            right[r] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256(s + 1);                                  \
        }                                                                                                              \
        for (int64_t k = 0; k < b->pairs; k++, x += 2 * rows, w += 2 * P) {                                            \
            __m256i l = _mm256_loadu_si256((const __m256i *)(const void *)w);                                          \
            __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(w + 2 * V));                                \
            _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)                                                     \
            {                                                                                                          \
                __m256i one = PAIR(_mm256_set1_epi32, x, r);                                                           \
                left[r] = STEP(left[r], one, l);                                                                       \
                right[r] = STEP(right[r], one, m);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (int r = 0; r < rows; r++) {                                                                               \
            __m256i *s = (__m256i *)(void *)(b->sum + r * P);                                                          \
            _mm256_storeu_si256(s, left[r]);                                                                           \
            _mm256_storeu_si256(s + 1, right[r]);                                                                      \
        }                                                                                                              \
    }

#define BY_ROWS(scope, name, isa)                                                                                      \
    __attribute__((target(isa))) scope void igemm_multiply_##name(const igemm_block *b)                                \
    {                                                                                                                  \
        switch (b->rows) {                                                                                             \
        case 1: name##_rows(b, 1); break;                                                                              \
        case 2: name##_rows(b, 2); break;                                                                              \
        case 3: name##_rows(b, 3); break;                                                                              \
        case 4: name##_rows(b, 4); break;                                                                              \
        case 5: name##_rows(b, 5); break;                                                                              \
        default: name##_rows(b, 6);                                                                                    \
        }                                                                                                              \
    }

/* 12 sums, 2 of a panel, a broadcast and this product are all 16 registers: left to itself the compiler keeps more
 * products alive and moves sums to memory, at half the speed. */
__attribute__((target("avx2"))) static inline __attribute__((always_inline)) __m256i step_avx2(__m256i sum, __m256i a,
                                                                                               __m256i b)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
    return sum;
}
HALVES(avx2_few, "avx2", step_avx2)
BY_ROWS(static, avx2_few, "avx2")

/* A row's pair by both halves of a panel (ymm12, ymm13). Both products come before both sums: products have two of the
 * four units that sums have, and a sum that waits beside its product takes one of the two. */
#define ROW(offset, left, right)                                                                                       \
    "vpbroadcastd " #offset "(%[x]), %%ymm14\n\t"                                                                      \
    "vpmaddwd %%ymm12, %%ymm14, %%ymm15\n\t"                                                                           \
    "vpmaddwd %%ymm13, %%ymm14, %%ymm14\n\t"                                                                           \
    "vpaddd %%ymm15, %" #left ", %" #left "\n\t"                                                                       \
    "vpaddd %%ymm14, %" #right ", %" #right "\n\t"

/* Six rows, nearly all blocks of a batch: the loop as it has to be. */
__attribute__((target("avx2"))) static void avx2_six(const igemm_block *b)
{
    __m256i s[2 * R];
    const int16_t *x = b->x, *w = b->panel;
    int64_t pairs = b->pairs;
    for (int i = 0; i < 2 * R; i++)
        s[i] = b->first ? _mm256_setzero_si256() : _mm256_loadu_si256((const __m256i *)(const void *)(b->sum + i * V));
    __asm__("1:\n\t"
            "vmovdqu (%[w]), %%ymm12\n\t"
            "vmovdqu 32(%[w]), %%ymm13\n\t"
            /* clang-format off */
            ROW(0, 0, 1) ROW(4, 2, 3) ROW(8, 4, 5) ROW(12, 6, 7) ROW(16, 8, 9) ROW(20, 10, 11)
            /* clang-format on */
            "add $24, %[x]\n\t"
            "add $64, %[w]\n\t"
            "dec %[n]\n\t"
            "jnz 1b"
            : "+x"(s[0]), "+x"(s[1]), "+x"(s[2]), "+x"(s[3]), "+x"(s[4]), "+x"(s[5]), "+x"(s[6]), "+x"(s[7]),
              "+x"(s[8]), "+x"(s[9]), "+x"(s[10]), "+x"(s[11]), [x] "+r"(x), [w] "+r"(w), [n] "+r"(pairs)
            :
            : "memory", "cc", "ymm12", "ymm13", "ymm14", "ymm15");
    for (int i = 0; i < 2 * R; i++) _mm256_storeu_si256((__m256i *)(void *)(b->sum + i * V), s[i]);
}

void igemm_multiply_avx2(const igemm_block *b)
{
    if (b->rows == R && b->pairs > 0) avx2_six(b);
    else igemm_multiply_avx2_few(b);
}

#define STEP_VNNI(sum, a, b) _mm256_dpwssd_avx_epi32(sum, a, b)
HALVES(avx_vnni, "avx2,avxvnni", STEP_VNNI)
BY_ROWS(, avx_vnni, "avx2,avxvnni")

#define AVX512 "avx512f,avx512bw,avx512vnni"
__attribute__((target(AVX512))) static inline __attribute__((always_inline)) void avx512_vnni_rows(const igemm_block *b,
                                                                                                   const int rows)
{
    __m512i sum[R];
    const int16_t *x = b->x, *w = b->panel;
    for (int r = 0; r < rows; r++) sum[r] = b->first ? _mm512_setzero_si512() : _mm512_loadu_si512(b->sum + r * P);
    for (int64_t k = 0; k < b->pairs; k++, x += 2 * rows, w += 2 * P) {
        __m512i panel = _mm512_loadu_si512(w);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sum[r] = _mm512_dpwssd_epi32(sum[r], PAIR(_mm512_set1_epi32, x, r), panel);
    }
    for (int r = 0; r < rows; r++) _mm512_storeu_si512(b->sum + r * P, sum[r]);
}
BY_ROWS(, avx512_vnni, AVX512)

/* avxvnni is newer than the compiler's list of names: bit 4 of leaf 7.1's EAX. */
static bool has_avx_vnni(void)
{
    unsigned a = 7, b, c = 1, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return __builtin_cpu_supports("avx2") && (a >> 4 & 1);
}

igemm_multiply_fn *igemm_kernel(int i)
{
    switch (i) {
    case 0: return igemm_multiply_plain;
    case 1: return __builtin_cpu_supports("avx2") ? igemm_multiply_avx2 : NULL;
    case 2: return has_avx_vnni() ? igemm_multiply_avx_vnni : NULL;
    case 3:
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") ? igemm_multiply_avx512_vnni
                                                                                          : NULL;
    default: return NULL;
    }
}

igemm_multiply_fn *igemm_best(void)
{
    static igemm_multiply_fn *best; /* the same whoever writes it */
    igemm_multiply_fn *found = __atomic_load_n(&best, __ATOMIC_RELAXED);
    for (int i = 3; i >= 0 && !found; i--) found = igemm_kernel(i);
    __atomic_store_n(&best, found, __ATOMIC_RELAXED);
    return found;
}
