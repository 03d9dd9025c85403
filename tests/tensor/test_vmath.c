/* Functions of single floats: near the math library's, and the same bytes wherever an element stands in a vector. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "tensor/cpu/clones.h"
#include "tensor/cpu/vmath.h"

enum { N = 4001, LONGEST = 37 };

static float x[N];

static void fill(void)
{
    for (int i = 0; i < N; i++) x[i] = -6.0f + 12.0f * (float)i / (N - 1);
}

static void erf_is_near(void)
{
    double worst = 0;
    fill();
    for (int i = 0; i < N; i++) worst = fmax(worst, fabs((double)vmath_erf(x[i]) - erf((double)x[i])));
    CHECK_NEAR(worst, 0, 2e-7); /* two units in the last place of 1: a fit's error and rounding */
    CHECK(vmath_erf(0.0f) == 0 && vmath_erf(100.0f) > 0.9999999f && vmath_erf(-100.0f) < -0.9999999f);
    for (int i = 0; i < N; i++) CHECK(vmath_erf(-x[i]) == -vmath_erf(x[i]));
}

static void exp_is_near(void)
{
    double worst = 0;
    for (int i = 0; i < N; i++) {
        float at = -87.0f + 175.0f * (float)i / (N - 1);
        worst = fmax(worst, fabs((double)vmath_exp(at) / exp((double)at) - 1));
        worst = fmax(worst, fabs((double)vmath_exp_or_zero(at) / exp((double)at) - 1));
    }
    CHECK_NEAR(worst, 0, 3e-7);
    CHECK(vmath_exp_or_zero(-87.5f) == 0 && vmath_exp(-1000.0f) > 0 && isfinite(vmath_exp(1000.0f)));
    CHECK(isnan(vmath_exp(NAN)));
}

/* As activations and softmax use them. */
CPU_CLONES static void many(const float *from, float *to, int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i] * vmath_erf(from[i]) + 1.0f / (1.0f + vmath_exp(-from[i]));
}

static void an_element_has_its_bytes_in_any_place(void)
{
    float all[N], part[LONGEST];
    fill();
    many(x, all, N);
    for (int n = 1; n <= LONGEST; n++)
        for (int i = 0; i + n <= N; i += 101) {
            many(x + i, part, n);
            CHECK(memcmp(part, all + i, (size_t)n * sizeof *part) == 0);
        }
}

int main(void)
{
    RUN(erf_is_near);
    RUN(exp_is_near);
    RUN(an_element_has_its_bytes_in_any_place);
    return check_summary();
}
