/* Resize kernels with NEON, which every AArch64 processor has: the definition's 32-bit sums, four in a register, so
 * weights of any size work without preparation. */
#include <arm_neon.h>
#include <string.h>

#include "data/view/resize.h"
#include "data/view/resize_weights.h"

static bool usable(void) { return true; }

static bool prepare(resize_axis *a)
{
    (void)a;
    return true;
}

/* --- across: a lane per channel, four taps of a pixel from one load ------------------------------------ */

/* Moves the bytes of tap t to the low bytes of four lanes; an index past the register gives 0. */
static inline uint8x16_t tap_order(int channels, int t)
{
    uint8_t order[16];
    memset(order, 255, sizeof order);
    for (int c = 0; c < channels; c++) order[4 * c] = (uint8_t)(t * channels + c);
    return vld1q_u8(order);
}

static inline uint8x8_t pixel_across(const uint8_t *in, const int32_t *k, int32_t count, int channels,
                                     const uint8x16_t order[4])
{
    int32x4_t sum = vdupq_n_s32(RESIZE_HALF);
    for (int32_t t = 0; t < count; t += 4, k += 4, in += 4 * channels) {
        uint8x16_t p = vld1q_u8(in);
        for (int j = 0; j < 4; j++) sum = vmlaq_n_s32(sum, vreinterpretq_s32_u8(vqtbl1q_u8(p, order[j])), k[j]);
    }
    uint16x4_t narrow = vqmovun_s32(vshrq_n_s32(sum, RESIZE_BITS));
    return vqmovn_u16(vcombine_u16(narrow, narrow));
}

/* Each pixel is stored as four bytes: with three channels the last is the next pixel's, which is stored later. */
static void across(uint8_t *const *out, const uint8_t *const *row, const resize_axis *x, int channels)
{
    uint8x16_t order[4];
    for (int t = 0; t < 4; t++) order[t] = tap_order(channels, t);
    for (int64_t i = 0; i < x->n; i++) {
        const uint8_t *in = row[0] + x->first[i] * (int64_t)channels;
        uint8x8_t pixel = pixel_across(in, x->k + i * x->taps, x->count[i], channels, order);
        memcpy(out[0] + i * channels, &pixel, i + 1 < x->n ? 4 : (size_t)channels);
    }
}

/* --- down: 16 bytes of a row at a time ------------------------------------------------------------------ */

static void down_16(uint8_t *out, const uint8_t *in, int64_t stride, const int32_t *k, int32_t count)
{
    int32x4_t s[4];
    for (int q = 0; q < 4; q++) s[q] = vdupq_n_s32(RESIZE_HALF);
    for (int32_t t = 0; t < count; t++, in += stride) {
        uint8x16_t p = vld1q_u8(in);
        int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(p)));
        int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(p));
        s[0] = vmlaq_n_s32(s[0], vmovl_s16(vget_low_s16(low)), k[t]);
        s[1] = vmlaq_n_s32(s[1], vmovl_high_s16(low), k[t]);
        s[2] = vmlaq_n_s32(s[2], vmovl_s16(vget_low_s16(high)), k[t]);
        s[3] = vmlaq_n_s32(s[3], vmovl_high_s16(high), k[t]);
    }
    uint16x4_t n[4];
    for (int q = 0; q < 4; q++) n[q] = vqmovun_s32(vshrq_n_s32(s[q], RESIZE_BITS));
    vst1q_u8(out, vcombine_u8(vqmovn_u16(vcombine_u16(n[0], n[1])), vqmovn_u16(vcombine_u16(n[2], n[3]))));
}

static void down(uint8_t *out, const uint8_t *src, int64_t stride, int64_t rows, const resize_axis *y, int64_t i,
                 int64_t n)
{
    const uint8_t *in = src + y->first[i] * stride;
    int64_t b = 0;
    for (; b + 16 <= n; b += 16) down_16(out + b, in + b, stride, y->k + i * y->taps, y->count[i]);
    if (b < n) resize_plain.down(out + b, src + b, stride, rows, y, i, n - b);
}

const resize_kernels resize_neon = { "neon", usable, prepare, 1, across, down };
