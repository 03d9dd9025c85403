/* Functions of single floats that the compiler turns into vector code in a loop: no branches, no calls, no errno. Such
 * a loop is marked `omp simd`, as it may work in place, and compiled with -fno-trapping-math (src/nn/CMakeLists.txt).
 *
 * exp comes in two forms, with the same polynomial and within 2 units in the last place. They round x / ln 2 to a
 * whole number in two ways and so may differ in the last bit; both stay, so that training gives the same bytes. */
#ifndef TENSOR_CPU_VMATH_H
#define TENSOR_CPU_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Of NaN the whole number is whatever the processor makes of it; it multiplies NaN. The sanitizers pass over that. */
#define VMATH_OF_NAN __attribute__((no_sanitize("float-cast-overflow", "shift")))

/* 2^n e^r for |r| <= ln 2 / 2, -126 <= n <= 127. */
VMATH_OF_NAN static inline float vmath_exp_parts(float r, int32_t n)
{
    float p = 1.9875691500e-4f, scale;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (n + 127) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* e^x, x cut to -87..88: for activations and softmax, where rounding is one instruction. */
VMATH_OF_NAN static inline float vmath_exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = __builtin_rintf(x * 1.44269504f);
    return vmath_exp_parts(x - n * 0.693359375f + n * 2.12194440e-4f, (int32_t)n); /* ln 2 in two parts */
}

/* e^x, 0 below -87, x cut to 88: for sums of many terms, in which what is negligible has to vanish. Rounds without the
 * rounding instruction, which the oldest machines lack. */
VMATH_OF_NAN static inline float vmath_exp_or_zero(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float clipped = x < -87.0f ? -87.0f : x;
    clipped = clipped > 88.0f ? 88.0f : clipped;
    float n = (clipped * 1.44269504f + magic) - magic;
    float y = vmath_exp_parts((clipped - n * 0.693359375f) - n * -2.12194440e-4f, (int32_t)n);
    return x < -87.0f ? 0.0f : y;
}

/* The error function, within 2e-7. Odd. Up to 1 it is x p(x^2); beyond, 1 - exp(q(x)), q fitted to log erfc on 1..4.
 * Both are fitted at Chebyshev points. */
static inline float vmath_erf(float x)
{
    float a = fabsf(x), u = a * a;
    a = a > 4.0f ? 4.0f : a; /* 1 - erf 4 is 1.5e-8 */
    float p = -5.6541059e-4f;
    p = p * u + 4.9232775e-3f;
    p = p * u - 2.6716385e-2f;
    p = p * u + 1.12803645e-1f;
    p = p * u - 3.76123488e-1f;
    p = p * u + 1.12837911f;
    float q = -1.3309390e-5f;
    q = q * a + 3.1757203e-4f;
    q = q * a - 3.4368676e-3f;
    q = q * a + 2.2621986e-2f;
    q = q * a - 1.03318982e-1f;
    q = q * a - 6.39093339e-1f;
    q = q * a - 1.12592590f;
    q = q * a - 7.5696863e-4f;
    float small = a * p, large = 1.0f - vmath_exp(q);
    return copysignf(a < 1.0f ? small : large, x);
}

/* The arc whose sine is x, |x| <= 1 (beyond counts as 1). Odd, so that errors cancel over symmetric data;
 * error 1e-7 or less, relative near 0. Above 1/2: asin x = pi/2 - 2 asin sqrt((1 - x) / 2). */
static inline float vmath_asin(float x)
{
    float a = fabsf(x);
    a = a > 1.0f ? 1.0f : a;
    float u = a < 0.5f ? a * a : 0.5f - 0.5f * a, z = sqrtf(u);
    z = a < 0.5f ? a : z;
    /* asin z = z + z u q(u), u = z^2 <= 1/4; q fitted at Chebyshev points, off by at most 9e-9 */
    float q = 3.82064995e-2f;
    q = q * u + 2.64943201e-2f;
    q = q * u + 4.50106788e-2f;
    q = q * u + 7.49880941e-2f;
    q = q * u + 1.66666728e-1f;
    float p = z + z * u * q;
    return copysignf(a < 0.5f ? p : 1.57079633f - 2.0f * p, x);
}

#endif
