/* 7-bit activations by 8-bit weights in AVX2. A register holds four elements of k for each of eight columns. pmaddubsw
 * multiplies 32 shifted elements of X by weights and adds neighbours in 16 bits, paddw sums the group; once a group
 * pmaddwd joins the halves, and the sums in float are fetched and stored. Twice the products of 16-bit pairs (pmaddwd,
 * paddd) at the same number of instructions. All 16 registers have a place: 12 sums (6 rows by 16 columns), 2 of a
 * panel, a broadcast, a product. */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/gemm_kernels.h"

_Static_assert(sizeof(group_block) == 240 && sizeof(group_panel) == 576, "the offsets below");

/* Four elements of a row by both halves of a panel (ymm12, ymm13). Both products come before both sums: products have
 * two of the four units that sums have, and a sum that waits next to its product takes one of the two. */
#define ROW(step, row, left, right)                                                                                    \
    "vpbroadcastd 24*" #step "+4*" #row "(%[x]), %%ymm14\n\t"                                                          \
    "vpmaddubsw %%ymm12, %%ymm14, %%ymm15\n\t"                                                                         \
    "vpmaddubsw %%ymm13, %%ymm14, %%ymm14\n\t"                                                                         \
    "vpaddw %%ymm15, %%ymm" #left ", %%ymm" #left "\n\t"                                                               \
    "vpaddw %%ymm14, %%ymm" #right ", %%ymm" #right "\n\t"

/* The first step of a group begins with the term that undoes the zero point. */
#define FIRST(step, row, left, right)                                                                                  \
    "vpbroadcastd 192+8*" #row "+4(%[x]), %%ymm15\n\t"                                                                 \
    "vpmullw (%[w]), %%ymm15, %%ymm" #left "\n\t"                                                                      \
    "vpmullw 32(%[w]), %%ymm15, %%ymm" #right "\n\t" ROW(0, row, left, right)

/* Halves joined (ymm12: ones), made float, times the row's scale, added to the sums in memory. */
#define LAST(step, row, left, right)                                                                                   \
    "vbroadcastss 192+8*" #row "(%[x]), %%ymm14\n\t"                                                                   \
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

#define GROUP_OF(ROWS)                                                                                                 \
    PANEL(0)                                                                                                           \
    ROWS(FIRST, 0)                                                                                                     \
    STEP(ROWS, 1) STEP(ROWS, 2) STEP(ROWS, 3) STEP(ROWS, 4) STEP(ROWS, 5) STEP(ROWS, 6) STEP(ROWS, 7) ONES ROWS(LAST, 0)
#define ONES "vpcmpeqw %%ymm12, %%ymm12, %%ymm12\n\tvpsrlw $15, %%ymm12, %%ymm12\n\t"
#define NEXT "add $240, %[x]\n\tadd $576, %[w]\n\tdec %[n]\n\t"

#define MULTIPLY(name, ROWS)                                                                                           \
    __attribute__((target("avx2,fma"))) static void name(const gemm_block *b)                                          \
    {                                                                                                                  \
        const void *x = b->a, *w = b->b;                                                                               \
        int64_t groups = b->steps;                                                                                     \
        __asm__ volatile("1:\n\t" GROUP_OF(ROWS) NEXT "jnz 1b"                                                         \
                         : [x] "+r"(x), [w] "+r"(w), [n] "+r"(groups)                                                  \
                         : [sum] "r"(b->sum)                                                                           \
                         : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8",     \
                           "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15");                              \
    }
MULTIPLY(two_rows, TWO)
MULTIPLY(four_rows, FOUR)
MULTIPLY(six_rows, SIX)

/* This block's share of the next panel comes into the second cache. */
static void fetch(const gemm_block *b)
{
    int64_t bytes = b->steps * (int64_t)sizeof(group_panel), end = bytes * (b->index + 1) / b->count;
    for (int64_t at = bytes * b->index / b->count / 64 * 64; at < end; at += 64)
        __builtin_prefetch((const char *)b->next + at, 0, 2);
}

static void multiply(const gemm_block *b)
{
    assert(b->ld == GROUP_COLS);
    if (b->first) memset(b->sum, 0, GROUP_ROWS * GROUP_COLS * sizeof(float));
    fetch(b);
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
    return gemm_group_scale(_mm_cvtss_f32(h) - _mm_cvtss_f32(l), _mm_cvtss_f32(s), _mm_cvtss_f32(_mm_movehdup_ps(s)),
                            limit);
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

TARGET static void round_avx2(const float *x, int64_t groups, const float *limit, int r, group_block *to)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t g = 0; g < groups; g++, x += GROUP_SIZE, to++) {
        __m256 v[4];
        __m256i w[4];
        uint32_t quad[8];
        for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
        float scale = scale_avx2(v, limit[g]);
        __m256 inverse = _mm256_set1_ps(gemm_group_inverse(scale));
        __m256 there = _mm256_cmp_ps(inverse, _mm256_setzero_ps(), _CMP_GT_OQ); /* without it x may be anything */
        for (int i = 0; i < 4; i++) w[i] = _mm256_cvtps_epi32(_mm256_and_ps(_mm256_mul_ps(v[i], inverse), there));
        int16_t zero = (int16_t)-least_of(w);
        to->row[r] = (group_row){ scale, { zero, zero } };
        __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(w[0], w[1]), _mm256_packs_epi32(w[2], w[3]));
        all = _mm256_add_epi8(_mm256_permutevar8x32_epi32(all, order), _mm256_set1_epi8((char)zero));
        _mm256_storeu_si256((__m256i *)(void *)quad, all);
        for (int q = 0; q < 8; q++) memcpy(to->x[q][r], quad + q, 4);
    }
}

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const gemm_kernel gemm_i8_groups_avx2 = { GEMM_I8_GROUPS_KERNEL("i8_groups_avx2", round_avx2), .usable = usable,
                                          .multiply = multiply };
