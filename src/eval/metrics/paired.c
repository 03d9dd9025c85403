#include "eval/metrics/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "core/rng.h"

double mcnemar_exact(int64_t a_only, int64_t b_only)
{
    int64_t n = a_only + b_only, min = a_only < b_only ? a_only : b_only;
    double sum = 0;
    if (a_only == b_only) return 1;
    for (int64_t k = 0; k <= min; k++) /* binomial coefficients by their logarithms: n may be large */
        sum += exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) - (double)n * M_LN2);
    return fmin(1, 2 * sum);
}

double mcnemar_chi2(int64_t a_only, int64_t b_only)
{
    double n = (double)(a_only + b_only), gap = fabs((double)(a_only - b_only)) - 1;
    if (n == 0) return 1;
    if (gap < 0) gap = 0;
    return erfc(sqrt(gap * gap / n / 2)); /* the upper tail of chi-squared(1) at x is erfc(sqrt(x/2)) */
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* NumPy's quantile: linear between the two values around it. */
static double quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)floor(at);
    if (below >= n - 1) return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

static void interval(double *value, int64_t n, double level, double out[2])
{
    qsort(value, (size_t)n, sizeof *value, ascending);
    out[0] = quantile(value, n, (1 - level) / 2), out[1] = quantile(value, n, (1 + level) / 2);
}

/* Of one bootstrap sample only the number of images in each of the four cells matters, and an image's cell is one
 * number, drawn with its image. */
static void resample(const unsigned char *cell, int64_t n, uint64_t key, int64_t r, int64_t count[4])
{
    for (int64_t i = 0; i < n; i++) count[cell[rng_below(key, (uint64_t)(r * n + i), (uint64_t)n)]]++;
}

static void intervals(const unsigned char *cell, int64_t n, int64_t resamples, uint64_t seed, double level,
                      double *value, paired_result *out)
{
    uint64_t key = rng_key(seed, "bootstrap");
    double *a = value, *b = value + resamples, *d = value + 2 * resamples;
    for (int64_t r = 0; r < resamples; r++) {
        int64_t count[4] = { 0 };
        resample(cell, n, key, r, count);
        a[r] = (double)(count[1] + count[3]) / (double)n, b[r] = (double)(count[2] + count[3]) / (double)n;
        d[r] = (double)(count[1] - count[2]) / (double)n;
    }
    interval(a, resamples, level, out->interval_a);
    interval(b, resamples, level, out->interval_b);
    interval(d, resamples, level, out->interval_difference);
}

cloob_status paired_compare(cloob_ctx *ctx, const unsigned char *right_a, const unsigned char *right_b, int64_t n,
                            int64_t resamples, uint64_t seed, double level, paired_result *out)
{
    if (n < 1 || resamples < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "nothing to compare: %lld rows", (long long)n);
    unsigned char *cell = malloc((size_t)n);
    double *value = malloc((size_t)resamples * 3 * sizeof *value);
    *out = (paired_result){ .n = n };
    if (!cell || !value) {
        free(cell), free(value);
        return ctx_no_memory(ctx, (size_t)n + (size_t)resamples * 3 * sizeof *value, "resamples");
    }
    for (int64_t i = 0; i < n; i++) {
        bool a = right_a[i], b = right_b[i];
        cell[i] = (unsigned char)(a + 2 * b);
        out->both += a && b, out->a_only += a && !b, out->b_only += b && !a, out->neither += !a && !b;
    }
    out->accuracy_a = (double)(out->both + out->a_only) / (double)n;
    out->accuracy_b = (double)(out->both + out->b_only) / (double)n;
    out->difference = (double)(out->a_only - out->b_only) / (double)n;
    out->p_exact = mcnemar_exact(out->a_only, out->b_only), out->p_chi2 = mcnemar_chi2(out->a_only, out->b_only);
    intervals(cell, n, resamples, seed, level, value, out);
    free(cell), free(value);
    return CLOOB_OK;
}
