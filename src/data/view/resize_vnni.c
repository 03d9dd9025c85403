/* Resize kernels with AVX-512 byte products (VNNI): vpdpbusd adds four products of an unsigned and a signed
 * byte to a 32-bit sum, so a 22-bit weight is split into three signed digits of base 256,
 *
 *     k = d0 + 256 d1 + 65536 d2,      sum k p = sum d0 p + (sum d1 p << 8) + (sum d2 p << 16)
 *
 * which is exact. Pixels need no widening. Groups of four taps begin at multiples of four pixels, so that a
 * source pixel is put in place once, not once per output: weights get zeros before and behind. */
#include <immintrin.h>
#include <string.h>

#include "data/view/resize.h"
#include "data/view/resize_weights.h"

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

/* Groups of output i: from pixel (first / 4) * 4 on. */
static int64_t groups(const resize_axis *a, int64_t i) { return (a->first[i] % 4 + a->count[i] + 3) / 4; }

static const int32_t *weights(const resize_axis *a, int64_t i) { return a->digit + i * (a->taps / 4 + 1) * 3; }

static bool prepare(resize_axis *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        int32_t *w = a->digit + i * (a->taps / 4 + 1) * 3;
        const int32_t *k = a->k + i * a->taps, before = a->first[i] % 4;
        for (int64_t g = 0; g < groups(a, i); g++, w += 3) {
            int32_t four[4];
            for (int32_t t = 0; t < 4; t++) {
                int32_t at = (int32_t)(4 * g) + t - before;
                four[t] = at >= 0 && at < a->count[i] ? k[at] : 0;
            }
            if (!split(four, w)) return false;
        }
    }
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
    for (int i = 0; i < 3; i++) s->digit[i] = _mm512_dpbusd_epi32(s->digit[i], pixels, _mm512_set1_epi32(w[i]));
}

VNNI static inline __m512i sums_total(const sums *s)
{
    __m512i t = _mm512_add_epi32(s->digit[1], _mm512_slli_epi32(s->digit[2], 8));
    return _mm512_srai_epi32(_mm512_add_epi32(s->digit[0], _mm512_slli_epi32(t, 8)), RESIZE_BITS);
}

/* --- across: sixteen rows at a time, one per 32-bit lane --------------------------------------------- */

VNNI static inline __m512i load_lanes(const uint8_t *const row[4], int64_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[0] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[1] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[2] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(row[3] + at)), 3);
}

/* In every 128-bit lane: z[i][j] becomes z[j][i], in dwords. */
VNNI static inline void transpose(__m512i z[4])
{
    __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpacklo_epi32(z[2], z[3]);
    __m512i c = _mm512_unpackhi_epi32(z[0], z[1]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    z[0] = _mm512_unpacklo_epi64(a, b);
    z[1] = _mm512_unpackhi_epi64(a, b);
    z[2] = _mm512_unpacklo_epi64(c, d);
    z[3] = _mm512_unpackhi_epi64(c, d);
}

/* Pixels 4g .. 4g + 3 of sixteen rows as one vector per channel, into columns[g * channels]. A dword has the
 * four pixels of one row; lane l, dword j is row 4j + l. */
VNNI static inline void gather_columns(__m512i *columns, const uint8_t *const *row, int64_t begin, int64_t end,
                                       const int channels)
{
    const __m128i three = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
    const __m128i four = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i order = _mm512_broadcast_i32x4(channels == 3 ? three : four);
    for (int64_t g = begin; g < end; g++) {
        __m512i z[4];
        for (int j = 0; j < 4; j++) z[j] = _mm512_shuffle_epi8(load_lanes(row + 4 * j, 4 * g * channels), order);
        transpose(z);
        for (int c = 0; c < channels; c++) _mm512_store_si512(columns + g * channels + c, z[c]);
    }
}

/* Output pixel i of sixteen rows: a dword has all of a pixel's channels. */
VNNI static inline __m512i pixel_across(const __m512i *columns, const resize_axis *x, int64_t i, const int channels)
{
    const int32_t *w = weights(x, i), *end = w + groups(x, i) * 3;
    const __m512i *at = columns + x->first[i] / 4 * channels, low = _mm512_setzero_si512(),
                  high = _mm512_set1_epi32(255);
    sums s[4];
    for (int c = 0; c < channels; c++) sums_clear(&s[c]);
    for (; w < end; w += 3, at += channels)
        for (int c = 0; c < channels; c++) sums_add(&s[c], _mm512_load_si512(at + c), w);
    __m512i pixel = low;
    for (int c = 0; c < channels; c++) {
        __m512i v = _mm512_min_epi32(_mm512_max_epi32(sums_total(&s[c]), low), high);
        pixel = _mm512_or_si512(pixel, _mm512_slli_epi32(v, (unsigned)(8 * c)));
    }
    return pixel;
}

/* Four pixels (or the last n) of sixteen rows to their places. With three channels 16 bytes are stored for 12
 * while the row has space: what follows is stored later. */
VNNI static inline void store_pixels(uint8_t *const *out, int64_t at, __m512i p[4], int64_t n, bool room,
                                     const int channels)
{
    const __m512i pack = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    transpose(p);
    for (int j = 0; j < 4; j++) {
        uint8_t lanes[64];
        _mm512_storeu_si512(lanes, channels == 3 ? _mm512_shuffle_epi8(p[j], pack) : p[j]);
        for (int l = 0; l < 4; l++) {
            if (room) memcpy(out[4 * j + l] + at, lanes + 16 * l, 16);
            else memcpy(out[4 * j + l] + at, lanes + 16 * l, (size_t)(n * channels));
        }
    }
}

VNNI static inline void across_n(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x,
                                 const int channels, __m512i *columns)
{
    int64_t end = x->first[x->n - 1] / 4 + groups(x, x->n - 1);
    gather_columns(columns, row, x->first[0] / 4, end, channels);
    for (int64_t i = 0; i < x->n; i += 4) {
        __m512i p[4];
        int64_t n = x->n - i < 4 ? x->n - i : 4;
        for (int64_t m = 0; m < 4; m++) p[m] = pixel_across(columns, x, m < n ? i + m : i, channels);
        store_pixels(out, i * channels, p, n, (x->n - i) * channels >= 16, channels);
    }
}

VNNI static void across(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x, int channels, void *work)
{
    if (channels == 3) across_n(out, row, x, 3, work);
    else across_n(out, row, x, 4, work);
}

/* --- down: 64 bytes of a row at a time --------------------------------------------------------------- */

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

VNNI static void down(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y, int64_t i,
                      int64_t n)
{
    for (int64_t b = 0; b < n; b += 64) {
        __mmask64 mask = n - b >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (n - b)) - 1;
        const int32_t *w = weights(y, i), *end = w + groups(y, i) * 3;
        int64_t at = y->first[i] / 4 * 4;
        sums s[4];
        for (int q = 0; q < 4; q++) sums_clear(&s[q]);
        for (; w < end; w += 3, at += 4) {
            __m512i r[4];
            for (int q = 0; q < 4; q++) { /* rows past the last have weight 0, but must be readable */
                int64_t y_at = at + q < rows ? at + q : rows - 1;
                r[q] = _mm512_maskz_loadu_epi8(mask, src + y_at * stride + b);
            }
            add_rows(s, r, w);
        }
        __m512i lo = _mm512_packs_epi32(sums_total(&s[0]), sums_total(&s[1]));
        __m512i hi = _mm512_packs_epi32(sums_total(&s[2]), sums_total(&s[3]));
        _mm512_mask_storeu_epi8(out + b, mask, _mm512_packus_epi16(lo, hi));
    }
}

const resize_kernels resize_vnni = { "vnni", usable, prepare, 16, across, down };
