/* The inner part in AVX2. A register holds four elements of k for each of eight columns. pmaddubsw multiplies 32
 * shifted elements of X by weights and adds neighbours in 16 bits, paddw sums the group; once a group pmaddwd joins
 * the halves, and the sums in float are fetched and stored. Twice the products of 16-bit pairs (pmaddwd, paddd) at
 * the same number of instructions. All 16 registers have a place: 12 sums (6 rows by 16 columns), 2 of a panel, a
 * broadcast, a product. */
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/qgemm.h"

_Static_assert(QGEMM_GROUP == 32 && QGEMM_ROWS == 6 && QGEMM_COLUMNS == 16, "the offsets below");

/* Four elements of a row by both halves of a panel (ymm12, ymm13). Both products come before both sums: products have
 * two of the four units that sums have, and a sum that waits beside its product takes one of the two. */
#define ROW(step, row, left, right)                                                                                    \
    "vpbroadcastd 24*" #step "+4*" #row "(%[x]), %%ymm14\n\t"                                                          \
    "vpmaddubsw %%ymm12, %%ymm14, %%ymm15\n\t"                                                                         \
    "vpmaddubsw %%ymm13, %%ymm14, %%ymm14\n\t"                                                                         \
    "vpaddw %%ymm15, %%ymm" #left ", %%ymm" #left "\n\t"                                                               \
    "vpaddw %%ymm14, %%ymm" #right ", %%ymm" #right "\n\t"

/* The first step of a group begins with what takes the zero point back. */
#define FIRST(step, row, left, right)                                                                                  \
    "vpbroadcastd 8*" #row "+4(%[row]), %%ymm15\n\t"                                                                   \
    "vpmullw (%[w]), %%ymm15, %%ymm" #left "\n\t"                                                                      \
    "vpmullw 32(%[w]), %%ymm15, %%ymm" #right "\n\t" ROW(0, row, left, right)

/* Halves joined (ymm12: ones), made float, times the row's scale, added to the sums in memory. */
#define LAST(step, row, left, right)                                                                                   \
    "vbroadcastss 8*" #row "(%[row]), %%ymm14\n\t"                                                                     \
    "vpmaddwd %%ymm12, %%ymm" #left ", %%ymm" #left "\n\t"                                                             \
    "vpmaddwd %%ymm12, %%ymm" #right ", %%ymm" #right "\n\t"                                                           \
    "vcvtdq2ps %%ymm" #left ", %%ymm" #left "\n\t"                                                                     \
    "vcvtdq2ps %%ymm" #right ", %%ymm" #right "\n\t"                                                                   \
    "vfmadd213ps 64*" #row "(%[sum]), %%ymm14, %%ymm" #left "\n\t"                                                     \
    "vfmadd213ps 64*" #row "+32(%[sum]), %%ymm14, %%ymm" #right "\n\t"                                                 \
    "vmovups %%ymm" #left ", 64*" #row "(%[sum])\n\t"                                                                  \
    "vmovups %%ymm" #right ", 64*" #row "+32(%[sum])\n\t"

#define TWO(DO, step)  DO(step, 0, 0, 1) DO(step, 1, 2, 3)
#define FOUR(DO, step) TWO(DO, step) DO(step, 2, 4, 5) DO(step, 3, 6, 7)
#define SIX(DO, step)  FOUR(DO, step) DO(step, 4, 8, 9) DO(step, 5, 10, 11)

#define PANEL(step)                                                                                                    \
    "vmovdqu 64+64*" #step "(%[w]), %%ymm12\n\t"                                                                       \
    "vmovdqu 96+64*" #step "(%[w]), %%ymm13\n\t"
#define STEP(ROWS, step) PANEL(step) ROWS(ROW, step)

#define GROUP(ROWS)                                                                                                    \
    PANEL(0)                                                                                                           \
    ROWS(FIRST, 0)                                                                                                     \
    STEP(ROWS, 1) STEP(ROWS, 2) STEP(ROWS, 3) STEP(ROWS, 4) STEP(ROWS, 5) STEP(ROWS, 6) STEP(ROWS, 7) ONES ROWS(LAST, 0)
#define ONES "vpcmpeqw %%ymm12, %%ymm12, %%ymm12\n\tvpsrlw $15, %%ymm12, %%ymm12\n\t"
#define NEXT "add $192, %[x]\n\tadd $576, %[w]\n\tadd $48, %[row]\n\tdec %[n]\n\t"

#define MULTIPLY(name, ROWS)                                                                                           \
    __attribute__((target("avx2,fma"))) static void name(const qgemm_block *b)                                         \
    {                                                                                                                  \
        const uint8_t *x = b->x;                                                                                       \
        const int8_t *w = b->panel;                                                                                    \
        const qgemm_row *row = b->row;                                                                                 \
        int64_t groups = b->groups;                                                                                    \
        __asm__ volatile("1:\n\t" GROUP(ROWS) NEXT "jnz 1b"                                                            \
                         : [x] "+r"(x), [w] "+r"(w), [row] "+r"(row), [n] "+r"(groups)                                 \
                         : [sum] "r"(b->sum)                                                                           \
                         : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8",     \
                           "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15");                              \
    }
MULTIPLY(two_rows, TWO)
MULTIPLY(four_rows, FOUR)
MULTIPLY(six_rows, SIX)

static void multiply_avx2(const qgemm_block *b)
{
    if (b->groups < 1) return;
    if (b->rows > 4) six_rows(b);
    else if (b->rows > 2) four_rows(b);
    else two_rows(b);
}

/* ---- activations --------------------------------------------------------------------------------- */

#define TARGET __attribute__((target("avx2,fma")))

TARGET static float scale_avx2(const __m256 v[4], float limit)
{
    __m256 high = _mm256_setzero_ps(), low = _mm256_setzero_ps(), square = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        high = _mm256_max_ps(v[i], high);
        low = _mm256_min_ps(v[i], low);
        square = _mm256_add_ps(square, _mm256_mul_ps(v[i], v[i]));
    }
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
    __m128 l = _mm_min_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(square), _mm256_extractf128_ps(square, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h)), l = _mm_min_ps(l, _mm_movehl_ps(l, l));
    h = _mm_max_ss(h, _mm_movehdup_ps(h)), l = _mm_min_ss(l, _mm_movehdup_ps(l));
    s = _mm_hadd_ps(s, s);
    return qgemm_scale(_mm_cvtss_f32(h) - _mm_cvtss_f32(l), _mm_cvtss_f32(s), _mm_cvtss_f32(_mm_movehdup_ps(s)), limit);
}

/* The smallest of the numbers and 0. */
TARGET static int32_t least_of(const __m256i w[4])
{
    __m256i a = _mm256_min_epi32(_mm256_min_epi32(w[0], w[1]), _mm256_min_epi32(w[2], w[3]));
    __m128i l = _mm_min_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    l = _mm_min_epi32(l, _mm_shuffle_epi32(l, 0x4e));
    l = _mm_min_epi32(_mm_min_epi32(l, _mm_shuffle_epi32(l, 0xb1)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(l);
}

TARGET static void quantise_avx2(const float *x, int64_t groups, const float *limit, uint8_t *to, qgemm_row *row)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t g = 0; g < groups; g++, x += QGEMM_GROUP, row += QGEMM_ROWS) {
        __m256 v[4];
        __m256i w[4];
        uint32_t quad[8];
        for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
        row->scale = scale_avx2(v, limit[g]);
        __m256 inverse = _mm256_set1_ps(qgemm_inverse(row->scale));
        __m256 there = _mm256_cmp_ps(inverse, _mm256_setzero_ps(), _CMP_GT_OQ); /* without it x may be anything */
        for (int i = 0; i < 4; i++) w[i] = _mm256_cvtps_epi32(_mm256_and_ps(_mm256_mul_ps(v[i], inverse), there));
        int32_t zero = -least_of(w);
        row->zero[0] = row->zero[1] = (int16_t)zero;
        __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(w[0], w[1]), _mm256_packs_epi32(w[2], w[3]));
        all = _mm256_add_epi8(_mm256_permutevar8x32_epi32(all, order), _mm256_set1_epi8((char)zero));
        _mm256_storeu_si256((__m256i *)(void *)quad, all);
        for (int q = 0; q < 8; q++, to += QGEMM_ROWS * 4) memcpy(to, quad + q, 4);
    }
}

/* ---- the choice ---------------------------------------------------------------------------------- */

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const qgemm_kernel *qgemm_best(void)
{
    static const qgemm_kernel avx2 = { quantise_avx2, multiply_avx2 };
    return has_avx2() ? &avx2 : &qgemm_kernel_plain;
}

bool qgemm_usable(void) { return has_avx2() && !igemm_kernel(2) && !igemm_kernel(3); }
