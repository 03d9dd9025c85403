/* In a form that compilers vectorise without being allowed to reorder sums: partial sums are spelled out, LANES of
 * them. */
#include "loss/cpu_vec.h"

#include <math.h>
#include <string.h>

#include "tensor/cpu/vmath.h"

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&          \
    !defined(__SANITIZE_THREAD__) /* clang names the clones so that other files do not find them */
#    define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#    define CLONES
#endif

enum { LANES = 32 };

CLONES void vec_exp(float *x, int64_t n, float shift, float factor)
{
    for (int64_t i = 0; i < n; i++) x[i] = factor * vmath_exp_or_zero(x[i] - shift);
}

/* exp(high + low) = exp(high) (1 + low): low is what rounding the argument took. */
CLONES void vec_exp_wide(float *e, const double *s, int64_t n, double factor, double shift)
{
    for (int64_t i = 0; i < n; i++) {
        double x = factor * s[i] - shift;
        float high = (float)x, low = (float)(x - (double)high);
        e[i] = vmath_exp_or_zero(high) * (1.0f + low);
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
        for (int l = 0; l < LANES; l++) sum[l] += vmath_exp_or_zero(x[i + l] - shift);
    for (int l = 0; l < LANES; l++) total += (double)sum[l];
    for (; i < n; i++) total += (double)vmath_exp_or_zero(x[i] - shift);
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
