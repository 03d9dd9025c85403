/* exp to within 2 units in the last place by argument reduction and a polynomial, in a form that compilers
 * vectorise without being allowed to reorder sums: partial sums are spelled out, LANES of them. */
#include "loss/cpu_vec.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#    define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#    define CLONES
#endif

enum { LANES = 32 };

static inline float exp_one(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float clipped = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = (clipped * 1.44269504f + magic) - magic;
    float r = (clipped - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}

CLONES void vec_exp(float *x, int64_t n, float shift, float factor)
{
    for (int64_t i = 0; i < n; i++) x[i] = factor * exp_one(x[i] - shift);
}

/* exp(high + low) = exp(high) (1 + low): low is what rounding the argument took. */
CLONES void vec_exp_wide(float *e, const double *s, int64_t n, double factor, double shift)
{
    for (int64_t i = 0; i < n; i++) {
        double x = factor * s[i] - shift;
        float high = (float)x, low = (float)(x - (double)high);
        e[i] = exp_one(high) * (1.0f + low);
    }
}

CLONES void vec_narrow(float *e, const double *s, const double *bias, int64_t n, double factor, double shift)
{
    for (int64_t i = 0; i < n; i++) e[i] = (float)(factor * s[i] + bias[i] - shift);
}

CLONES void vec_add(float *e, const double *bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++) e[i] += (float)bias[i];
}

CLONES void vec_scale_by(float *t, const float *e, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++) t[i] = factor * e[i] * t[i];
}

CLONES float vec_max(const float *x, int64_t n)
{
    float top[LANES], best = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++) top[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    for (int l = 0; l < LANES; l++) best = top[l] > best ? top[l] : best;
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

CLONES double vec_sum_exp(const float *x, int64_t n, float shift)
{
    float sum[LANES] = { 0 };
    double total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) sum[l] += exp_one(x[i + l] - shift);
    for (int l = 0; l < LANES; l++) total += (double)sum[l];
    for (; i < n; i++) total += (double)exp_one(x[i] - shift);
    return total;
}

CLONES double vec_dot(const float *a, const float *b, int64_t n)
{
    double sum[8] = { 0 }, total = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) sum[l] += (double)a[i + l] * (double)b[i + l];
    for (int l = 0; l < 8; l++) total += sum[l];
    for (; i < n; i++) total += (double)a[i] * (double)b[i];
    return total;
}

CLONES void vec_widen(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}
