/* 8-bit activations by 8-bit weights with vpdpbusd on x86-64. AVX-512: 6 rows by 32 columns, 12 sums of a group and 12
 * in float, all in registers. AVX-VNNI: a panel in two halves of 16 columns, 12 sums of a group in registers, those in
 * float in memory. */
#include <immintrin.h>

#include "tensor/cpu/gemm_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define VNNI   __attribute__((target("avx2,fma,avxvnni")))

enum { QUADS = U8_GROUP / 4 };

static const int32_t none[U8_COLS] __attribute__((aligned(64)));

/* Four elements of a row. */
INLINE int32_t quad_of(const uint8_t *x)
{
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return four;
}

/* sum += x w, by quads. As an instruction of its own: of the intrinsic gcc makes copies of sums. */
#define DOT(sum, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))

/* ---- AVX-512 --------------------------------------------------------------------------------------- */

/* rows is a constant where it is called, so that the sums stay in registers. */
AVX512 INLINE void avx512_rows(const gemm_block *b, const int rows)
{
    const u8_group *const *table = b->a;
    const u8_panel *panel = b->b;
    float *sum = b->sum;
    __m512 left[U8_ROWS], right[U8_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        left[r] = b->first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + r * b->ld);
        right[r] = b->first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + r * b->ld + 16);
    }
    for (int64_t g = 0; g < b->steps; g++, table += U8_ROWS, panel++) {
        __m512i l[U8_ROWS], m[U8_ROWS];
        const u8_group *a[U8_ROWS];
        gemm_fetch(b, g, (int)sizeof *panel);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            a[r] = table[r];
            const int32_t *begin = a[r]->zero ? panel->shift : none;
            l[r] = _mm512_loadu_si512(begin), m[r] = _mm512_loadu_si512(begin + 16);
        }
#pragma GCC unroll 16
        for (int q = 0; q < QUADS; q++) {
            __m512i near = _mm512_loadu_si512(panel->w[q]), far = _mm512_loadu_si512(panel->w[q][16]);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m512i x = _mm512_set1_epi32(quad_of(a[r]->x + 4 * q));
                DOT(l[r], x, near);
                DOT(m[r], x, far);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 scale = _mm512_set1_ps(a[r]->scale);
            left[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(l[r]), scale, left[r]);
            right[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(m[r]), scale, right[r]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(sum + r * b->ld, left[r]);
        _mm512_storeu_ps(sum + r * b->ld + 16, right[r]);
    }
}

AVX512 static void multiply_avx512(const gemm_block *b)
{
    switch (b->rows) {
    case 1: avx512_rows(b, 1); break;
    case 2: avx512_rows(b, 2); break;
    case 3: avx512_rows(b, 3); break;
    case 4: avx512_rows(b, 4); break;
    case 5: avx512_rows(b, 5); break;
    default: avx512_rows(b, 6); break;
    }
}

/* The largest of 32 numbers. */
AVX512 INLINE uint32_t largest_of(__m512i x)
{
    __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i quarter = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    __m128i inverted = _mm_xor_si128(quarter, _mm_set1_epi16(-1)); /* there is an instruction for the smallest of 8 */
    return 0xFFFFu & ~(uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(inverted));
}

/* 32 elements, divided by the scale, rounded, plus zero, as 16 bits. Where the scale is NaN they are anything. */
AVX512 INLINE __m512i round_half(__m512i x, __m512 inverse, __m512i zero)
{
    const __m512i low = _mm512_setzero_si512(); /* of a float whose upper half is a bf16 */
    __m512 a = (__m512)_mm512_unpacklo_epi16(low, x), b = (__m512)_mm512_unpackhi_epi16(low, x);
    __m512i both = _mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)),
                                      _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    return _mm512_add_epi16(both, zero);
}

AVX512 INLINE void round_group_avx512(const uint16_t *x, u8_group *to)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF), minus_zero = _mm512_set1_epi16((short)0x8000),
                  order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i left = _mm512_loadu_si512(x), right = _mm512_loadu_si512(x + 32);
    bool negative = (_mm512_cmpgt_epu16_mask(left, minus_zero) | _mm512_cmpgt_epu16_mask(right, minus_zero)) != 0;
    float inverse;
    to->scale = gemm_u8_scale(
        largest_of(_mm512_max_epu16(_mm512_and_si512(left, magnitude), _mm512_and_si512(right, magnitude))) << 16,
        negative, &inverse);
    to->zero = negative ? U8_ZERO : 0;
    __m512 factor = _mm512_set1_ps(inverse);
    __m512i zero = _mm512_set1_epi16((short)to->zero);
    __m512i all = _mm512_packus_epi16(round_half(left, factor, zero), round_half(right, factor, zero));
    _mm512_storeu_si512(to->x, _mm512_permutexvar_epi64(order, all));
}

AVX512 static void round_avx512(const uint16_t *x, int64_t groups, u8_group *to)
{
    for (int64_t g = 0; g < groups; g++) round_group_avx512(x + g * U8_GROUP, to + g);
}

/* ---- AVX-VNNI -------------------------------------------------------------------------------------- */

VNNI INLINE void vnni_half(const gemm_block *b, const int half, const int rows)
{
    const u8_group *const *table = b->a;
    const u8_panel *panel = b->b;
    for (int64_t g = 0; g < b->steps; g++, table += U8_ROWS, panel++) {
        __m256i l[U8_ROWS], m[U8_ROWS];
        const u8_group *a[U8_ROWS];
        if (half == 0) gemm_fetch(b, g, (int)sizeof *panel);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            a[r] = table[r];
            const __m256i *begin = (const __m256i *)(const void *)((a[r]->zero ? panel->shift : none) + 16 * half);
            l[r] = _mm256_loadu_si256(begin), m[r] = _mm256_loadu_si256(begin + 1);
        }
        for (int q = 0; q < QUADS; q++) {
            const __m256i *w = (const __m256i *)(const void *)panel->w[q][16 * half];
            __m256i near = _mm256_loadu_si256(w), far = _mm256_loadu_si256(w + 1);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m256i x = _mm256_set1_epi32(quad_of(a[r]->x + 4 * q));
                l[r] = _mm256_dpbusd_avx_epi32(l[r], x, near);
                m[r] = _mm256_dpbusd_avx_epi32(m[r], x, far);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            float *sum = (float *)b->sum + r * b->ld + 16 * half;
            __m256 scale = _mm256_set1_ps(a[r]->scale), zero = _mm256_setzero_ps();
            bool first = b->first && g == 0;
            __m256 left = first ? zero : _mm256_loadu_ps(sum), right = first ? zero : _mm256_loadu_ps(sum + 8);
            _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(l[r]), scale, left));
            _mm256_storeu_ps(sum + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(m[r]), scale, right));
        }
    }
}

VNNI static void multiply_vnni(const gemm_block *b)
{
    for (int half = 0; half < 2 && 16 * half < b->cols; half++) switch (b->rows) {
        case 1: vnni_half(b, half, 1); break;
        case 2: vnni_half(b, half, 2); break;
        case 3: vnni_half(b, half, 3); break;
        case 4: vnni_half(b, half, 4); break;
        case 5: vnni_half(b, half, 5); break;
        default: vnni_half(b, half, 6); break;
        }
}

VNNI INLINE void round_group_vnni(const uint16_t *x, u8_group *to)
{
    __m256i v[8], top = _mm256_setzero_si256(), sign = _mm256_setzero_si256();
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint32_t tops[8], most = 0;
    float inverse;
    for (int i = 0; i < 8; i++) {
        v[i] =
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(x + 8 * i))), 16);
        __m256i size = _mm256_and_si256(v[i], magnitude);
        top = _mm256_max_epu32(top, size);
        sign = _mm256_or_si256(sign, _mm256_andnot_si256(_mm256_cmpeq_epi32(size, _mm256_setzero_si256()), v[i]));
    }
    _mm256_storeu_si256((__m256i *)(void *)tops, top);
    for (int i = 0; i < 8; i++) most = tops[i] > most ? tops[i] : most;
    bool negative = _mm256_movemask_ps((__m256)sign) != 0;
    to->scale = gemm_u8_scale(most, negative, &inverse);
    to->zero = negative ? U8_ZERO : 0;
    __m256 factor = _mm256_set1_ps(inverse);
    __m256i there = _mm256_set1_epi32(inverse > 0 ? -1 : 0), zero = _mm256_set1_epi32(to->zero);
    for (int i = 0; i < 8; i++) {
        __m256i whole = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps((__m256)v[i], factor)), there);
        v[i] = _mm256_add_epi32(whole, zero);
    }
    for (int i = 0; i < 8; i += 4) {
        __m256i all = _mm256_packus_epi16(_mm256_packus_epi32(v[i], v[i + 1]), _mm256_packus_epi32(v[i + 2], v[i + 3]));
        _mm256_storeu_si256((__m256i *)(void *)(to->x + 8 * i), _mm256_permutevar8x32_epi32(all, order));
    }
}

VNNI static void round_vnni(const uint16_t *x, int64_t groups, u8_group *to)
{
    for (int64_t g = 0; g < groups; g++) round_group_vnni(x + g * U8_GROUP, to + g);
}

/* ---- the kernels ----------------------------------------------------------------------------------- */

static bool has_avx512_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* avxvnni is newer than the compiler's list of names: bit 4 of leaf 7.1's EAX. */
static bool has_avx_vnni(void)
{
    unsigned a = 7, b, c = 1, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && (a >> 4 & 1);
}

const gemm_kernel gemm_u8_avx512_vnni = { GEMM_U8_KERNEL("u8_avx512_vnni", round_avx512), .usable = has_avx512_vnni,
                                          .multiply = multiply_avx512, .finish = gemm_finish_avx512 };
const gemm_kernel gemm_u8_avx_vnni = { GEMM_U8_KERNEL("u8_avx_vnni", round_vnni), .usable = has_avx_vnni,
                                       .multiply = multiply_vnni };
