/* Labels, and counts of right answers. */
#include "eval/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
                return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: row %lld holds %g; labels are whole numbers from 0 on",
                                name, (long long)(at + i), block[i]);
            out[at + i] = (int64_t)block[i];
        }
    }
    if (dtype_is_float(t->dtype))
        ctx_log(ctx, CLOOB_LOG_INFO, "%s: labels are stored as %s; all are whole numbers", name, dtype_name(t->dtype));
    return CLOOB_OK;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

cloob_status label_set_init(cloob_ctx *ctx, label_set *s, const int64_t *label, int64_t N)
{
    *s = (label_set){ .value = malloc((size_t)(N + 1) * sizeof *s->value) };
    if (!s->value) return ctx_no_memory(ctx, (size_t)N * sizeof *s->value, "labels");
    memcpy(s->value, label, (size_t)N * sizeof *s->value);
    qsort(s->value, (size_t)N, sizeof *s->value, ascending);
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
    const int64_t *at = bsearch(&label, s->value, (size_t)s->C, sizeof label, ascending);
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
