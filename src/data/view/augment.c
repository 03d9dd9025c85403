/* Pillow's ImageEnhance and HSV arithmetic: what torchvision's ColorJitter does to a PIL image. */
#include "data/view/transform.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"

/* from + factor (to - from), clamped to a byte and rounded toward zero. With a factor from 0 to 1 it cannot leave the
 * range. */
static uint8_t blend(int from, int to, float factor)
{
    float v = (float)from + factor * (float)(to - from);
    return (uint8_t)(v <= 0.0f ? 0 : v >= 255.0f ? 255 : (uint8_t)v);
}

/* ITU-R 601 luma in 16-bit fixed point. */
static int luma(const uint8_t *p) { return (p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16; }

void augment_brightness(uint8_t *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < 3 * n; i++) rgb[i] = blend(0, rgb[i], factor);
}

void augment_contrast(uint8_t *rgb, int64_t n, float factor)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += luma(rgb + 3 * i);
    int mean = (int)((double)sum / (double)n + 0.5);
    for (int64_t i = 0; i < 3 * n; i++) rgb[i] = blend(mean, rgb[i], factor);
}

void augment_saturation(uint8_t *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++, rgb += 3) {
        int gray = luma(rgb);
        for (int c = 0; c < 3; c++) rgb[c] = blend(gray, rgb[c], factor);
    }
}

void augment_gray(uint8_t *rgb, int64_t n)
{
    for (int64_t i = 0; i < n; i++, rgb += 3) memset(rgb, luma(rgb), 3);
}

/* --- hue --------------------------------------------------------------------------------------------- */

static uint8_t byte_of(double v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : (int)v); }

/* Hue and saturation as bytes; value is the largest channel. Uses single precision in the same places as Pillow. */
static void to_hsv(const uint8_t *p, uint8_t hsv[3])
{
    int hi = p[0] > p[1] ? p[0] : p[1], lo = p[0] < p[1] ? p[0] : p[1];
    if (p[2] > hi) hi = p[2];
    if (p[2] < lo) lo = p[2];
    hsv[0] = hsv[1] = 0;
    hsv[2] = (uint8_t)hi;
    if (hi == lo) return;
    float range = (float)(hi - lo), s = range / (float)hi, h;
    float r = (float)(hi - p[0]) / range, g = (float)(hi - p[1]) / range, b = (float)(hi - p[2]) / range;
    if (p[0] == hi) h = b - g;
    else if (p[1] == hi) h = (float)(2.0 + (double)r - (double)b);
    else h = (float)(4.0 + (double)g - (double)r);
    h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
    hsv[0] = byte_of((double)h * 255.0);
    hsv[1] = byte_of((double)s * 255.0);
}

static void from_hsv(const uint8_t hsv[3], uint8_t *p)
{
    uint8_t v = hsv[2];
    if (hsv[1] == 0) {
        memset(p, v, 3);
        return;
    }
    double at = (double)((float)hsv[0]) * 6.0 / 255.0;
    int sector = (int)floor(at);
    float f = (float)(at - (double)sector), s = (float)((double)hsv[1] / 255.0);
    uint8_t low = byte_of(round((double)v * (1.0 - (double)s)));
    uint8_t down = byte_of(round((double)v * (1.0 - (double)(s * f))));
    uint8_t up = byte_of(round((double)v * (1.0 - (double)s * (1.0 - (double)f))));
    const uint8_t table[6][3] = { { v, up, low },   { down, v, low }, { low, v, up },
                                  { low, down, v }, { up, low, v },   { v, low, down } };
    memcpy(p, table[sector % 6], 3);
}

void augment_hue(uint8_t *rgb, int64_t n, double shift)
{
    uint8_t add = (uint8_t)(int)(shift * 255);
    for (int64_t i = 0; i < n; i++, rgb += 3) {
        uint8_t hsv[3];
        to_hsv(rgb, hsv);
        hsv[0] = (uint8_t)(hsv[0] + add);
        from_hsv(hsv, rgb);
    }
}

/* --- mirror and jitter ------------------------------------------------------------------------------- */

void augment_flip(uint8_t *rgb, int64_t width, int64_t height)
{
    for (int64_t y = 0; y < height; y++, rgb += 3 * width) {
        for (int64_t a = 0, b = width - 1; a < b; a++, b--) {
            uint8_t t[3];
            memcpy(t, rgb + 3 * a, 3);
            memcpy(rgb + 3 * a, rgb + 3 * b, 3);
            memcpy(rgb + 3 * b, t, 3);
        }
    }
}

static double draw(uint64_t key, int i, double centre, double strength)
{
    double lo = centre - strength, hi = centre + strength;
    if (i < 3 && lo < 0) lo = 0;
    return lo + (hi - lo) * rng_uniform(key, (uint64_t)i);
}

void augment_jitter(uint8_t *rgb, int64_t n, const double strength[4], uint64_t key)
{
    for (uint64_t turn = 0; turn < 4; turn++) {
        int what = (int)rng_permute(key, turn, 4);
        if (strength[what] == 0) continue;
        double factor = draw(key, what, what == 3 ? 0.0 : 1.0, strength[what]);
        if (what == 0) augment_brightness(rgb, n, (float)factor);
        else if (what == 1) augment_contrast(rgb, n, (float)factor);
        else if (what == 2) augment_saturation(rgb, n, (float)factor);
        else augment_hue(rgb, n, factor);
    }
}
