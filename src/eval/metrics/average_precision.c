#include "eval/metrics/average_precision.h"

#include <stdlib.h>

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
