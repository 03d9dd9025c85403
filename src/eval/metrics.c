#include "eval/metrics.h"

#include <math.h>
#include <stdlib.h>

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
