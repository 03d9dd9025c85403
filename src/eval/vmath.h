/* Functions of many floats that the compiler turns into vector code: no branches, no calls, no errno. */
#ifndef EVAL_VMATH_H
#define EVAL_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x for x <= 88; 0 below -87. Relative error 2e-7. */
static inline float vmath_exp(float x)
{
    float kept = x < -87.0f ? -87.0f : x;
    float n = kept * 1.44269504f + 12582912.0f; /* 1.5 x 2^23: the sum's low bits are the nearest whole number */
    int32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= 12582912.0f;
    float r = (kept - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts; |r| <= ln 2 / 2 */
    /* e^r = 1 + r + r^2 q(r); q fitted at the Chebyshev points of that interval, off by at most 8e-9 */
    float q = 1.39337332e-3f;
    q = q * r + 8.36323538e-3f;
    q = q * r + 4.16664642e-2f;
    q = q * r + 1.66665766e-1f;
    q = q * r + 0.5f;
    float p = q * r * r + r + 1.0f;
    int32_t scale_bits = (int32_t)((uint32_t)(bits - 0x4B400000 + 127) << 23);
    float scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
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
