/* Resize kernels with AVX2: vpmaddwd adds two products of 16-bit numbers to a 32-bit sum, so a 22-bit weight
 * is split,
 *
 *     k = low + 4096 high,      sum k p = sum low p + (sum high p << 12)
 *
 * which is exact. */
#include <immintrin.h>
#include <string.h>

#include "data/view/resize.h"
#include "data/view/resize_weights.h"

#define AVX2 __attribute__((target("avx2")))

static bool usable(void) { return __builtin_cpu_supports("avx2"); }

/* Two weights: their low parts in one word, their high parts in another. False when a weight is too large. */
static bool split(const int32_t k[2], int32_t word[2])
{
    int16_t part[2][2];
    for (int t = 0; t < 2; t++) {
        int32_t low = ((k[t] + 2048) & 4095) - 2048, high = (k[t] - low) >> 12;
        if (high < -32768 || high > 32767) return false;
        part[0][t] = (int16_t)low;
        part[1][t] = (int16_t)high;
    }
    memcpy(word, part, sizeof part);
    return true;
}

static bool prepare(resize_axis *a)
{
    for (int64_t i = 0; i < a->n * a->taps / 2; i++)
        if (!split(a->k + 2 * i, a->half + 2 * i)) return false;
    return true;
}

typedef struct sums {
    __m256i low, high;
} sums;

AVX2 static inline void sums_clear(sums *s)
{
    s->low = _mm256_set1_epi32(RESIZE_HALF);
    s->high = _mm256_setzero_si256();
}

/* Two taps as pairs of 16-bit pixels, and their weights. */
AVX2 static inline void sums_add(sums *s, __m256i pixels, const int32_t w[2])
{
    s->low = _mm256_add_epi32(s->low, _mm256_madd_epi16(pixels, _mm256_set1_epi32(w[0])));
    s->high = _mm256_add_epi32(s->high, _mm256_madd_epi16(pixels, _mm256_set1_epi32(w[1])));
}

AVX2 static inline __m256i sums_total(const sums *s)
{
    return _mm256_srai_epi32(_mm256_add_epi32(s->low, _mm256_slli_epi32(s->high, 12)), RESIZE_BITS);
}

/* --- across: two rows at a time, one per 128-bit lane ------------------------------------------------ */

/* Taps 0 and 1 (or 2 and 3) of each channel, widened: R0 R1 G0 G1 B0 B1 and the fourth channel's, if there is
 * one. */
AVX2 static inline __m256i pair_order(int channels, int pair)
{
    const __m128i three = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m128i four = _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m128i even = _mm_set1_epi16((short)(2 * channels)); /* added to the low byte of each pair, never to a -1 */
    __m128i v = channels == 3 ? three : four;
    if (pair) v = _mm_or_si128(_mm_add_epi8(v, even), _mm_and_si128(v, _mm_set1_epi8(-128)));
    return _mm256_broadcastsi128_si256(v);
}

AVX2 static inline __m256i pixel_across(const uint8_t *const *row, const resize_axis *x, int64_t i, int channels,
                                        const __m256i order[2])
{
    const int32_t *w = x->half + i * x->taps;
    const uint8_t *a = row[0] + x->first[i] * (int64_t)channels, *b = row[1] + x->first[i] * (int64_t)channels;
    sums s;
    sums_clear(&s);
    for (int32_t t = 0; t < x->count[i]; t += 4, w += 4, a += 4 * channels, b += 4 * channels) {
        __m256i p = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a));
        p = _mm256_inserti128_si256(p, _mm_loadu_si128((const __m128i *)b), 1);
        sums_add(&s, _mm256_shuffle_epi8(p, order[0]), w);
        sums_add(&s, _mm256_shuffle_epi8(p, order[1]), w + 2);
    }
    __m256i v = sums_total(&s);
    return _mm256_packus_epi16(_mm256_packs_epi32(v, v), v);
}

/* Each pixel is stored as four bytes: with three channels the last is the next pixel's, which is stored
 * later. */
AVX2 static inline void across_two(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x,
                                   const int channels)
{
    const __m256i order[2] = { pair_order(channels, 0), pair_order(channels, 1) };
    for (int64_t i = 0; i < x->n; i++) {
        __m256i v = pixel_across(row, x, i, channels, order);
        int32_t pixel[2] = { _mm256_extract_epi32(v, 0), _mm256_extract_epi32(v, 4) };
        for (int r = 0; r < 2; r++) {
            if (i + 1 < x->n) memcpy(out[r] + i * channels, &pixel[r], 4);
            else memcpy(out[r] + i * channels, &pixel[r], (size_t)channels);
        }
    }
}

AVX2 static void across(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x, int channels)
{
    if (channels == 3) across_two(out, row, x, 3);
    else across_two(out, row, x, 4);
}

/* --- down: 32 bytes of a row at a time --------------------------------------------------------------- */

/* Two rows of 32 bytes as pairs, in four sums; in-lane order, which the packing at the end undoes. */
AVX2 static inline void add_rows(sums s[4], const uint8_t *r0, const uint8_t *r1, const int32_t *w)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i a = _mm256_loadu_si256((const __m256i *)r0), b = _mm256_loadu_si256((const __m256i *)r1);
    __m256i lo = _mm256_unpacklo_epi8(a, b), hi = _mm256_unpackhi_epi8(a, b);
    sums_add(&s[0], _mm256_unpacklo_epi8(lo, zero), w);
    sums_add(&s[1], _mm256_unpackhi_epi8(lo, zero), w);
    sums_add(&s[2], _mm256_unpacklo_epi8(hi, zero), w);
    sums_add(&s[3], _mm256_unpackhi_epi8(hi, zero), w);
}

AVX2 static void down_32(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y,
                         int64_t i)
{
    const int32_t *w = y->half + i * y->taps;
    sums s[4];
    for (int q = 0; q < 4; q++) sums_clear(&s[q]);
    for (int32_t t = 0; t < y->count[i]; t += 2, w += 2) {
        int64_t a = y->first[i] + t, b = a + 1 < rows ? a + 1 : rows - 1; /* a row past the last has weight 0 */
        add_rows(s, src + a * stride, src + b * stride, w);
    }
    __m256i lo = _mm256_packs_epi32(sums_total(&s[0]), sums_total(&s[1]));
    __m256i hi = _mm256_packs_epi32(sums_total(&s[2]), sums_total(&s[3]));
    _mm256_storeu_si256((__m256i *)out, _mm256_packus_epi16(lo, hi));
}

static void down(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y, int64_t i,
                 int64_t n)
{
    int64_t b = 0;
    for (; b + 32 <= n; b += 32) down_32(out + b, src + b, stride, rows, y, i);
    if (b < n) resize_plain.down(out + b, src + b, stride, rows, y, i, n - b);
}

const resize_kernels resize_avx2 = { "avx2", usable, prepare, 2, across, down };
