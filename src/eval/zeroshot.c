/* Weights, scores, counts. */
#include "eval/zeroshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/gemm.h"

cloob_status zeroshot_init(cloob_ctx *ctx, zeroshot *z, int64_t C, int64_t D, bool with_confusion)
{
    memset(z, 0, sizeof *z);
    if (C < 2)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "zero-shot classification needs at least two classes, not %lld",
                        (long long)C);
    z->C = z->answers = C, z->D = D;
    CLOOB_TRY(accuracy_init(ctx, &z->count, C, with_confusion));
    z->weight = calloc((size_t)(C * D), sizeof *z->weight);
    if (z->weight) return CLOOB_OK;
    zeroshot_release(z);
    return ctx_no_memory(ctx, (size_t)(C * D) * sizeof *z->weight, "class weights");
}

void zeroshot_release(zeroshot *z)
{
    free(z->weight), free(z->score), free(z->group);
    accuracy_release(&z->count);
    memset(z, 0, sizeof *z);
}

static double length(const float *x, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)x[i] * x[i];
    return sqrt(square);
}

cloob_status zeroshot_prompts(cloob_ctx *ctx, zeroshot *z, int64_t c, const float *prompt, int64_t T)
{
    int64_t D = z->D;
    float *w = z->weight + c * D;
    if (c < 0 || c >= z->C || T < 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "class %lld of %lld with %lld prompts", (long long)c, (long long)z->C,
                        (long long)T);
    double *mean = calloc((size_t)D, sizeof *mean), square = 0;
    if (!mean) return ctx_no_memory(ctx, (size_t)D * sizeof *mean, "a class weight");
    cloob_status status = CLOOB_OK;
    for (int64_t t = 0; t < T && status == CLOOB_OK; t++) {
        double size = length(prompt + t * D, D);
        if (!(size > 0) || !isfinite(size))
            status = ctx_fail(ctx, CLOOB_ERR_NUMERIC, "class %lld: the embedding of prompt %lld is zero or not finite",
                              (long long)c, (long long)t);
        else
            for (int64_t i = 0; i < D; i++) mean[i] += (double)prompt[t * D + i] / size;
    }
    for (int64_t i = 0; i < D; i++) square += mean[i] * mean[i];
    if (status == CLOOB_OK && sqrt(square) < 1e-6 * (double)T)
        status = ctx_fail(ctx, CLOOB_ERR_NUMERIC, "class %lld: its prompts cancel out", (long long)c);
    for (int64_t i = 0; i < D && status == CLOOB_OK; i++) w[i] = (float)(mean[i] / sqrt(square));
    free(mean);
    return status;
}

static cloob_status check_batch(cloob_ctx *ctx, const zeroshot *z, const float *image, const int64_t *label, int64_t n,
                                int64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        long long row = (long long)(first + i);
        double size = length(image + i * z->D, z->D);
        if (label[i] < 0 || label[i] >= z->answers)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "image %lld has label %lld; classes are 0 to %lld", row,
                            (long long)label[i], (long long)z->answers - 1);
        if (!isfinite(size) || size == 0)
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "image %lld: its embedding is zero or not finite", row);
    }
    return CLOOB_OK;
}

cloob_status zeroshot_group(cloob_ctx *ctx, zeroshot *z, const int64_t *group, int64_t answers)
{
    bool confusion = z->count.confusion != NULL;
    if (answers < 2)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "zero-shot classification needs at least two classes, not %lld",
                        (long long)answers);
    z->group = malloc((size_t)z->C * sizeof *z->group);
    if (!z->group) return ctx_no_memory(ctx, (size_t)z->C * sizeof *z->group, "classes");
    memcpy(z->group, group, (size_t)z->C * sizeof *z->group);
    z->answers = answers;
    accuracy_release(&z->count);
    return accuracy_init(ctx, &z->count, answers, confusion);
}

/* (n, C) to (n, answers), in place: a row's answers are never more than its classes. */
static cloob_status join_groups(cloob_ctx *ctx, const zeroshot *z, int64_t n)
{
    float *best = malloc((size_t)z->answers * sizeof *best);
    if (!best) return ctx_no_memory(ctx, (size_t)z->answers * sizeof *best, "scores");
    for (int64_t i = 0; i < n; i++) {
        const float *score = z->score + i * z->C;
        for (int64_t k = 0; k < z->answers; k++) best[k] = -INFINITY;
        for (int64_t c = 0; c < z->C; c++)
            if (score[c] > best[z->group[c]]) best[z->group[c]] = score[c];
        memcpy(z->score + i * z->answers, best, (size_t)z->answers * sizeof *best);
    }
    free(best);
    return CLOOB_OK;
}

void zeroshot_scores(cloob_ctx *ctx, const zeroshot *z, const float *image, int64_t n, float *score)
{
    cpu_sgemm(ctx, false, true, n, z->C, z->D, 1, image, z->D, z->weight, z->D, 0, score, z->C);
}

void zeroshot_softmax(float *score, int64_t C, double scale)
{
    double max = score[0], sum = 0;
    for (int64_t i = 1; i < C; i++) max = score[i] > max ? score[i] : max;
    for (int64_t i = 0; i < C; i++) sum += exp(scale * ((double)score[i] - max));
    for (int64_t i = 0; i < C; i++) score[i] = (float)(exp(scale * ((double)score[i] - max)) / sum);
}

cloob_status zeroshot_add(cloob_ctx *ctx, zeroshot *z, const float *image, const int64_t *label, int64_t n,
                          int64_t first)
{
    CLOOB_TRY(check_batch(ctx, z, image, label, n, first));
    if (n > z->room) {
        float *more = realloc(z->score, (size_t)(n * z->C) * sizeof *more);
        if (!more) return ctx_no_memory(ctx, (size_t)(n * z->C) * sizeof *more, "scores");
        z->score = more, z->room = n;
    }
    /* An image's length scales all of its scores, so normalising is not needed. */
    zeroshot_scores(ctx, z, image, n, z->score);
    if (z->group) CLOOB_TRY(join_groups(ctx, z, n));
    accuracy_add(&z->count, z->score, label, n);
    return CLOOB_OK;
}
