#include "eval/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "core/rng.h"
#include "eval/rows.h"

double accuracy_by_group(const unsigned char *right, const int64_t *group, int64_t n, int64_t groups, double *accuracy,
                         int64_t *count)
{
    double worst = NAN;
    for (int64_t g = 0; g < groups; g++) accuracy[g] = 0, count[g] = 0;
    for (int64_t i = 0; i < n; i++) accuracy[group[i]] += right[i] != 0, count[group[i]]++;
    for (int64_t g = 0; g < groups; g++) {
        accuracy[g] = count[g] ? accuracy[g] / (double)count[g] : NAN;
        if (count[g] && !(accuracy[g] >= worst)) worst = accuracy[g];
    }
    return worst;
}

cloob_status means_over_classes(cloob_ctx *ctx, const int64_t *label, const int64_t *predicted, int64_t n, int64_t C,
                                class_means *out)
{
    int64_t *of_class = calloc((size_t)C * 3, sizeof *of_class), *predicted_as = of_class + C, *both = of_class + 2 * C;
    int64_t seen = 0;
    if (!of_class) return ctx_no_memory(ctx, (size_t)C * 3 * sizeof *of_class, "counts per class");
    *out = (class_means){ 0 };
    for (int64_t i = 0; i < n; i++) {
        of_class[label[i]]++, predicted_as[predicted[i]]++;
        both[label[i]] += label[i] == predicted[i];
    }
    for (int64_t c = 0; c < C; c++) {
        if (!of_class[c]) continue;
        out->recall += (double)both[c] / (double)of_class[c];
        out->f1 += 2.0 * (double)both[c] / (double)(of_class[c] + predicted_as[c]);
        seen++;
    }
    if (seen) out->recall /= (double)seen, out->f1 /= (double)seen;
    free(of_class);
    return CLOOB_OK;
}

/* ---- average precision ----------------------------------------------------------------------------- */

typedef struct ranked {
    float score;
    int32_t row;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

static double one_class(ranked *r, const float *score, const unsigned char *positive, int64_t n, int64_t C)
{
    int64_t found = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) r[i] = (ranked){ score[i * C], (int32_t)i };
    qsort(r, (size_t)n, sizeof *r, by_score);
    for (int64_t i = 0; i < n; i++)
        if (positive[r[i].row * C]) sum += (double)++found / (double)(i + 1);
    return found ? sum / (double)found : 0;
}

cloob_status average_precision(cloob_ctx *ctx, const float *score, const unsigned char *positive, int64_t n, int64_t C,
                               double *ap)
{
    if (n > INT32_MAX) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a ranking of %lld rows is too long", (long long)n);
    ranked *r = malloc((size_t)(n ? n : 1) * sizeof *r);
    if (!r) return ctx_no_memory(ctx, (size_t)n * sizeof *r, "a ranking");
    for (int64_t c = 0; c < C; c++) ap[c] = one_class(r, score + c, positive + c, n, C);
    free(r);
    return CLOOB_OK;
}

/* ---- calibration ----------------------------------------------------------------------------------- */

static int bin_of(double p, int bins)
{
    int b = (int)ceil(p * bins) - 1;
    return b < 0 ? 0 : b >= bins ? bins - 1 : b;
}

cloob_status calibration_measure(cloob_ctx *ctx, const double *p, const unsigned char *right, int64_t n, int bins,
                                 calibration *out)
{
    *out = (calibration){ .n = n, .bins = bins };
    if (bins < 1 || bins > CALIBRATION_BINS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%d bins: 1 to %d are possible", bins, CALIBRATION_BINS);
    for (int64_t i = 0; i < n; i++) {
        if (!(p[i] >= 0 && p[i] <= 1))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "row %lld: %g is no probability", (long long)i, p[i]);
        calibration_bin *b = &out->bin[bin_of(p[i], bins)];
        b->n++, b->confidence += p[i], b->accuracy += right[i] != 0;
        out->confidence += p[i] / (double)n, out->accuracy += (right[i] != 0) / (double)n;
        double miss = p[i] - (right[i] != 0);
        out->brier += miss * miss / (double)n;
    }
    for (int k = 0; k < bins; k++) {
        calibration_bin *b = &out->bin[k];
        if (!b->n) continue;
        b->confidence /= (double)b->n, b->accuracy /= (double)b->n;
        double gap = fabs(b->confidence - b->accuracy);
        out->ece += gap * (double)b->n / (double)n;
        if (gap > out->mce) out->mce = gap;
    }
    return CLOOB_OK;
}

/* ---- two models on the same images ----------------------------------------------------------- */

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
static void intervals(const unsigned char *cell, int64_t n, int64_t resamples, uint64_t seed, double level,
                      double *value, paired_result *out)
{
    uint64_t key = rng_key(seed, "bootstrap");
    double *a = value, *b = value + resamples, *d = value + 2 * resamples;
    for (int64_t r = 0; r < resamples; r++) {
        int64_t count[4] = { 0 };
        for (int64_t i = 0; i < n; i++) count[cell[rng_below(key, (uint64_t)(r * n + i), (uint64_t)n)]]++;
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

/* ---- nearest neighbours ---------------------------------------------------------------------- */

static int64_t vote(const near_row *best, int64_t n, const int64_t *label)
{
    int64_t winner = label[best[0].entry], max = 0;
    double weight = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t votes = 0;
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            if (label[best[j].entry] == label[best[i].entry]) votes++, sum += (double)best[j].score;
        if (votes < max || (votes == max && sum <= weight)) continue;
        winner = label[best[i].entry], max = votes, weight = sum;
    }
    return winner;
}

cloob_status knn_predict(cloob_ctx *ctx, const rows *train, const int64_t *label, const rows *test, int64_t k,
                         int64_t *predicted)
{
    unit_rows a, b;
    if (k < 1 || k > KNN_MAX)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld neighbours: 1 to %d are possible", (long long)k, KNN_MAX);
    if (train->D != test->D)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has rows of %lld, %s of %lld", train->name, (long long)train->D,
                        test->name, (long long)test->D);
    if (k > train->N) k = train->N;
    CLOOB_TRY(unit_rows_init(ctx, &a, test));
    cloob_status status = unit_rows_init(ctx, &b, train);
    if (status != CLOOB_OK) return unit_rows_release(&a), status;
    near_row *best = malloc((size_t)(test->N * k) * sizeof *best);
    status = best ? nearest_rows(ctx, &a, &b, k, best)
                  : ctx_no_memory(ctx, (size_t)(test->N * k) * sizeof *best, "neighbours");
    for (int64_t i = 0; i < test->N && status == CLOOB_OK; i++) predicted[i] = vote(best + i * k, k, label);
    free(best);
    unit_rows_release(&a), unit_rows_release(&b);
    return status;
}
