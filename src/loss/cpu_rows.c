/* Row operations: widening, normalisation and its gradient, tile memory. */
#include <math.h>
#include <string.h>

#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/vmath.h"

tiles tiles_carve(carver *c, const loss_plan *p)
{
    size_t d = (size_t)p->s.dim, edge = loss_longest(p) < TILE ? (size_t)loss_longest(p) : TILE;
    size_t square = edge * edge * sizeof(float), strip = edge * d * sizeof(float);
    tiles t = { 0 };
    t.e = carve(c, square);
    t.t = carve(c, square);
    t.panel = carve(c, strip);
    t.sums = carve(c, sizeof(double) * d);
    if (loss_is_small(p)) {
        t.wide = carve(c, 2 * square);
        t.wide_a = carve(c, 2 * strip);
        t.wide_b = carve(c, 2 * strip);
        t.wide_r = carve(c, 2 * strip);
    }
    if (p->s.dtype == CLOOB_F32) return t;
    t.a = carve(c, strip);
    t.b = carve(c, strip);
    return t;
}

void wide_scores(cloob_ctx *ctx, const tiles *t, const float *a, const float *b, int64_t m, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < m * d; i++) t->wide_a[i] = (double)a[i];
    for (int64_t i = 0; i < n * d; i++) t->wide_b[i] = (double)b[i];
    cpu_dgemm(ctx, false, true, m, n, d, 1, t->wide_a, d, t->wide_b, d, 0, t->wide, n);
}

void wide_sums(cloob_ctx *ctx, const tiles *t, bool transpose, float *r, int64_t m, int64_t n, int64_t d)
{
    int64_t rows_out = transpose ? n : m, rows_in = transpose ? m : n;
    for (int64_t i = 0; i < m * n; i++) t->wide[i] = (double)t->e[i];
    cpu_dgemm(ctx, transpose, false, rows_out, d, rows_in, 1, t->wide, n, transpose ? t->wide_a : t->wide_b, d, 0,
              t->wide_r, d);
    for (int64_t i = 0; i < rows_out * d; i++) r[i] = (float)((double)r[i] + t->wide_r[i]);
}

const float *rows_f32(const rows *r, int64_t first, int64_t n, float *buffer)
{
    if (r->dtype == CLOOB_F32) return (const float *)r->data + first * r->d;
    vec_widen(buffer, (const uint16_t *)r->data + first * r->d, n * r->d);
    return buffer;
}

typedef struct unit_job {
    float *r, *length;
    const float *g, *mean;
    double *dots;
    int64_t d;
} unit_job;

static void unit_range(void *arg, int64_t begin, int64_t end, int thread)
{
    unit_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *r = j->r + i * j->d;
        double length = sqrt(vec_dot(r, r, j->d));
        j->length[i] = (float)length;
        for (int64_t k = 0; length > 0 && k < j->d; k++) r[k] = (float)((double)r[k] / length);
    }
}

int64_t unit_forward(cloob_ctx *ctx, float *r, float *length, int64_t n, int64_t d)
{
    unit_job j = { .r = r, .length = length, .d = d };
    pool_for(ctx, n, 16, unit_range, &j);
    for (int64_t i = 0; i < n; i++)
        if (!(length[i] > 0) || isinf(length[i])) return i;
    return -1;
}

static void unit_backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    unit_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *unit = j->r + i * j->d;
        const float *g = j->g + i * j->d, *mean = j->mean;
        double along = vec_dot(unit, g, j->d);
        if (mean) along += vec_dot(mean, g, j->d);
        for (int64_t k = 0; k < j->d && j->length; k++) {
            double u = (double)unit[k] + (mean ? (double)mean[k] : 0);
            unit[k] = (float)(((double)g[k] - along * u) / (double)j->length[i]);
        }
        if (!j->length) memcpy(unit, g, (size_t)j->d * sizeof *unit);
        j->dots[i] = along;
    }
}

void unit_backward(cloob_ctx *ctx, float *unit, const float *mean, const float *g, const float *length, double *dots,
                   int64_t n, int64_t d)
{
    unit_job j = { unit, (float *)(uintptr_t)length, g, mean, dots, d };
    pool_for(ctx, n, 16, unit_backward_range, &j);
}

/* ---- vectors ----------------------------------------------------------------------------------- */

/* Partial sums are written out, LANES of them: compilers vectorise them without permission to reorder sums. */

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&          \
    !defined(__SANITIZE_THREAD__) /* with clang, other files cannot link against the clones */
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
