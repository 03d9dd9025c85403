/* Counts. */
#include "eval/accuracy.h"

#include <stdlib.h>

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

/* How many scores come before class k's: larger ones, and equal ones of lower index. */
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
    accuracy_result r = { .n = t->N, .classes = t->C };
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
