/* Labels, counts of right answers, and metrics beyond accuracy. */
#include "eval/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "eval/rows.h"

enum { BLOCK = 1024 };

cloob_status labels_read(cloob_ctx *ctx, int64_t *out, const tensor *t, int64_t N, const char *name)
{
    char shape[SHAPE_TEXT];
    double block[BLOCK];
    size_t size = dtype_size(t->dtype);
    if (t->ndim != 1 || t->dim[0] != N)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has shape %s, needs (%lld), one label per row of x", name,
                        tensor_shape_text(t, shape), (long long)N);
    for (int64_t at = 0; at < N; at += BLOCK) {
        int64_t n = N - at < BLOCK ? N - at : BLOCK;
        const char *from = (const char *)t->data + (size_t)at * size;
        if (!dtype_convert(CLOOB_F64, block, t->dtype, from, n))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has type %s, needs integers", name, dtype_name(t->dtype));
        for (int64_t i = 0; i < n; i++) {
            if (!(block[i] >= 0 && block[i] < 9e15) || block[i] != floor(block[i]))
                return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: row %lld is %g; labels must be integers of at least 0",
                                name, (long long)(at + i), block[i]);
            out[at + i] = (int64_t)block[i];
        }
    }
    if (dtype_is_float(t->dtype))
        ctx_log(ctx, CLOOB_LOG_INFO, "%s: labels are stored as %s; all are whole numbers", name, dtype_name(t->dtype));
    return CLOOB_OK;
}

cloob_status label_set_init(cloob_ctx *ctx, label_set *s, const int64_t *label, int64_t N)
{
    *s = (label_set){ .value = malloc((size_t)(N + 1) * sizeof *s->value) };
    if (!s->value) return ctx_no_memory(ctx, (size_t)N * sizeof *s->value, "labels");
    memcpy(s->value, label, (size_t)N * sizeof *s->value);
    qsort(s->value, (size_t)N, sizeof *s->value, order_int64);
    for (int64_t i = 0; i < N; i++)
        if (s->C == 0 || s->value[i] != s->value[s->C - 1]) s->value[s->C++] = s->value[i];
    s->gaps = s->C ? s->value[s->C - 1] + 1 - s->C : 0;
    return CLOOB_OK;
}

void label_set_release(label_set *s)
{
    free(s->value);
    s->value = NULL;
}

int64_t label_set_find(const label_set *s, int64_t label)
{
    const int64_t *at = bsearch(&label, s->value, (size_t)s->C, sizeof label, order_int64);
    return at ? at - s->value : -1;
}

/* ---- accuracy -------------------------------------------------------------------------------- */

enum { CONFUSION_LIMIT = 4096 };

cloob_status accuracy_init(cloob_ctx *ctx, accuracy_counts *t, int64_t C, bool with_confusion)
{
    *t = (accuracy_counts){ .C = C };
    if (with_confusion && C > CONFUSION_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a confusion table of %lld classes is too large (at most %d)",
                        (long long)C, CONFUSION_LIMIT);
    t->total = calloc((size_t)C * 3, sizeof *t->total);
    if (with_confusion) t->confusion = calloc((size_t)(C * C), sizeof *t->confusion);
    if (!t->total || (with_confusion && !t->confusion)) {
        accuracy_release(t);
        return ctx_no_memory(ctx, (size_t)(C * C) * sizeof *t->total, "counts per class");
    }
    t->hit1 = t->total + C, t->hit5 = t->hit1 + C;
    return CLOOB_OK;
}

void accuracy_release(accuracy_counts *t)
{
    free(t->total), free(t->confusion);
    t->total = t->confusion = NULL;
}

/* The rank of class k from 0: the number of larger scores, and of equal ones with a lower index. */
static int64_t before(const float *score, int64_t C, int64_t k)
{
    int64_t count = 0;
    for (int64_t j = 0; j < k; j++) count += score[j] >= score[k];
    for (int64_t j = k + 1; j < C; j++) count += score[j] > score[k];
    return count;
}

static int64_t largest(const float *score, int64_t C)
{
    int64_t best = 0;
    for (int64_t j = 1; j < C; j++)
        if (score[j] > score[best]) best = j;
    return best;
}

void accuracy_add(accuracy_counts *t, const float *score, const int64_t *label, int64_t n)
{
    t->N += n;
    for (int64_t i = 0; i < n; i++, score += t->C) {
        int64_t k = label[i];
        if (k < 0) {
            t->unknown++;
            continue;
        }
        int64_t place = before(score, t->C, k);
        t->total[k]++;
        t->hit1[k] += place == 0;
        t->hit5[k] += place < 5;
        if (t->confusion) t->confusion[k * t->C + largest(score, t->C)]++;
    }
}

accuracy_result accuracy_finish(const accuracy_counts *t)
{
    accuracy_result r = { .n = t->N, .classes = t->C, .unknown = t->unknown };
    int64_t hit1 = 0, hit5 = 0;
    double sum = 0;
    for (int64_t k = 0; k < t->C; k++) {
        hit1 += t->hit1[k], hit5 += t->hit5[k];
        if (t->total[k]) sum += (double)t->hit1[k] / (double)t->total[k];
        else r.empty++;
    }
    if (t->N) r.top1 = (double)hit1 / (double)t->N, r.top5 = (double)hit5 / (double)t->N;
    if (r.empty < t->C) r.mean_per_class = sum / (double)(t->C - r.empty);
    return r;
}

/* ---- beyond accuracy ------------------------------------------------------------------------------- */

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
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld neighbours: must be from 1 to %d", (long long)k, KNN_MAX);
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
