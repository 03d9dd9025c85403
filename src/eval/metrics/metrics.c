#include "eval/metrics/metrics.h"

#include <math.h>
#include <stdlib.h>

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
