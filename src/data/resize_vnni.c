/* Resize kernels with AVX-512 byte products (VNNI): vpdpbusd adds four products of an unsigned and a signed
 * byte to a 32-bit sum, so a 22-bit weight is split into three signed digits of base 256,
 *
 *     k = d0 + 256 d1 + 65536 d2,      sum k p = sum d0 p + (sum d1 p << 8) + (sum d2 p << 16)
 *
 * which is exact. Pixels need no widening. */
#include <immintrin.h>
#include <string.h>

#include "data/resize_axis.h"

#define VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Four weights, one digit of each per word. False when a weight is too large for three digits. */
static bool split(const int32_t k[4], int32_t word[3])
{
    int8_t digit[3][4];
    for (int t = 0; t < 4; t++) {
        int32_t low = (int8_t)k[t], k1 = (k[t] - low) >> 8, mid = (int8_t)k1, high = (k1 - mid) >> 8;
        if (high < -128 || high > 127) return false;
        digit[0][t] = (int8_t)low;
        digit[1][t] = (int8_t)mid;
        digit[2][t] = (int8_t)high;
    }
    memcpy(word, digit, sizeof digit);
    return true;
}

static bool prepare(resize_axis *a)
{
    for (int64_t i = 0; i < a->n * a->taps / 4; i++)
        if (!split(a->k + 4 * i, a->digit + 3 * i)) return false;
    return true;
}

typedef struct sums {
    __m512i digit[3];
} sums;

VNNI static inline void sums_clear(sums *s)
{
    s->digit[0] = _mm512_set1_epi32(RESIZE_HALF);
    s->digit[1] = s->digit[2] = _mm512_setzero_si512();
}

/* Four taps: bytes of pixels by dwords, and the four weights. */
VNNI static inline void sums_add(sums *s, __m512i pixels, const int32_t *w)
{
    for (int i = 0; i < 3; i++)
        s->digit[i] = _mm512_dpbusd_epi32(s->digit[i], pixels, _mm512_set1_epi32(w[i]));
}

VNNI static inline __m512i sums_total(const sums *s)
{
    __m512i t = _mm512_add_epi32(s->digit[1], _mm512_slli_epi32(s->digit[2], 8));
    return _mm512_srai_epi32(_mm512_add_epi32(s->digit[0], _mm512_slli_epi32(t, 8)), RESIZE_BITS);
}

/* --- across: four rows at a time, one per 128-bit lane
 * -------------------------------------------------------- */

VNNI static inline __m512i load_lanes(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)a));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)b), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)c), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)d), 3);
}

/* Per lane R0 R1 R2 R3 G0 .. B3 and, with four channels, those of the fourth. */
VNNI static inline __m512i taps_by_channel(int channels)
{
    const __m128i three = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
    const __m128i four = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_broadcast_i32x4(channels == 3 ? three : four);
}

VNNI static inline __m128i pixel_across(const uint8_t *const row[4], const resize_axis *x, int64_t i,
                                        int channels, __m512i order)
{
    const int32_t *w = x->digit + i * (x->taps / 4) * 3, *end = w + (x->count[i] + 3) / 4 * 3;
    int64_t at = x->first[i] * (int64_t)channels;
    const uint8_t *a = row[0] + at, *b = row[1] + at, *c = row[2] + at, *d = row[3] + at;
    sums s;
    sums_clear(&s);
    for (; w < end; w += 3, a += 4 * channels, b += 4 * channels, c += 4 * channels, d += 4 * channels)
        sums_add(&s, _mm512_shuffle_epi8(load_lanes(a, b, c, d), order), w);
    return _mm512_cvtusepi32_epi8(_mm512_max_epi32(sums_total(&s), _mm512_setzero_si512()));
}

/* Each pixel is stored as four bytes: with three channels the last is the next pixel's, which is stored
 * later. */
VNNI static inline void store_lanes(uint8_t *const out[4], int64_t at, __m128i v)
{
    int32_t pixel[4] = { _mm_extract_epi32(v, 0), _mm_extract_epi32(v, 1), _mm_extract_epi32(v, 2),
                         _mm_extract_epi32(v, 3) };
    for (int r = 0; r < 4; r++) memcpy(out[r] + at, &pixel[r], 4);
}

VNNI static inline void across_n(uint8_t *const out[4], const uint8_t *const row[4], const resize_axis *x,
                                 const int channels)
{
    const __m512i order = taps_by_channel(channels);
    const int64_t last = x->n - 1;
    for (int64_t i = 0; i < last; i++)
        store_lanes(out, i * channels, pixel_across(row, x, i, channels, order));
    uint8_t v[16];
    _mm_storeu_si128((__m128i *)v, pixel_across(row, x, last, channels, order));
    for (int r = 0; r < 4; r++) memcpy(out[r] + last * channels, v + 4 * r, (size_t)channels);
}

VNNI static void across(uint8_t *const out[4], const uint8_t *const row[4], const resize_axis *x,
                        int channels)
{
    if (channels == 3) across_n(out, row, x, 3);
    else across_n(out, row, x, 4);
}

/* --- down: 64 bytes of a row at a time
 * ------------------------------------------------------------------------ */

/* Four rows, interleaved so that a dword holds one column; in-lane order, which the packing at the end
 * undoes. */
VNNI static inline void add_rows(sums s[4], const __m512i r[4], const int32_t *w)
{
    __m512i a = _mm512_unpacklo_epi8(r[0], r[1]), b = _mm512_unpackhi_epi8(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi8(r[2], r[3]), d = _mm512_unpackhi_epi8(r[2], r[3]);
    sums_add(&s[0], _mm512_unpacklo_epi16(a, c), w);
    sums_add(&s[1], _mm512_unpackhi_epi16(a, c), w);
    sums_add(&s[2], _mm512_unpacklo_epi16(b, d), w);
    sums_add(&s[3], _mm512_unpackhi_epi16(b, d), w);
}

VNNI static void down(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y,
                      int64_t i, int64_t n)
{
    for (int64_t b = 0; b < n; b += 64) {
        __mmask64 mask = n - b >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (n - b)) - 1;
        const int32_t *w = y->digit + i * (y->taps / 4) * 3;
        sums s[4];
        for (int q = 0; q < 4; q++) sums_clear(&s[q]);
        for (int32_t t = 0; t < y->count[i]; t += 4, w += 3) {
            __m512i r[4];
            for (int q = 0; q < 4; q++) {
                int64_t at = y->first[i] + t + q; /* rows past the last have weight 0, but must be readable */
                r[q] = _mm512_maskz_loadu_epi8(mask, src + (at < rows ? at : rows - 1) * stride + b);
            }
            add_rows(s, r, w);
        }
        __m512i lo = _mm512_packs_epi32(sums_total(&s[0]), sums_total(&s[1]));
        __m512i hi = _mm512_packs_epi32(sums_total(&s[2]), sums_total(&s[3]));
        _mm512_mask_storeu_epi8(out + b, mask, _mm512_packus_epi16(lo, hi));
    }
}

const resize_kernels resize_vnni = { "vnni", usable, prepare, across, down };
