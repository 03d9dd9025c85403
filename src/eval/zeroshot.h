/* Zero-shot classification from embeddings: class weights out of prompts, then images in batches.
 *
 *     zeroshot z;
 *     CLOOB_TRY(zeroshot_init(ctx, &z, C, D, false));
 *     for each class c: zeroshot_prompts(ctx, &z, c, text, T);       text: (T, D), one row per template
 *     for each batch:   zeroshot_add(ctx, &z, image, label, n);      image: (n, D)
 *     accuracy_result r = accuracy_finish(&z.count);                       z.count has the per-class table
 *     zeroshot_release(&z);
 *
 * A class's weight: every prompt at unit length, their mean, at unit length again. */
#ifndef EVAL_ZEROSHOT_H
#define EVAL_ZEROSHOT_H

#include "eval/metrics.h"

typedef struct zeroshot {
    int64_t C, D;
    float *weight;   /* (C, D) unit rows; owned */
    float *score;    /* scratch for one batch; owned */
    int64_t room;    /* rows it holds */
    int64_t *group;  /* (C) the answer that each class is; owned; NULL: every class is one */
    int64_t answers; /* C, or the number of groups */
    accuracy_counts count;
} zeroshot;

/* Requires at least two classes. */
cloob_status zeroshot_init(cloob_ctx *ctx, zeroshot *z, int64_t C, int64_t D, bool with_confusion);
void zeroshot_release(zeroshot *z);

/* Sets class c from T >= 1 prompt embeddings (T, D), of any length but zero. NaN, a zero row and prompts that
 * cancel out are refused. */
cloob_status zeroshot_prompts(cloob_ctx *ctx, zeroshot *z, int64_t c, const float *prompt, int64_t T);

/* Groups of classes that count as one answer, whose score is the largest of the group. group: (C) from 0 to answers -
 * 1, copied. Before the first image. */
cloob_status zeroshot_group(cloob_ctx *ctx, zeroshot *z, const int64_t *group, int64_t answers);

/* The cosines of n images of unit length with every class: score (n, C). */
void zeroshot_scores(cloob_ctx *ctx, const zeroshot *z, const float *image, int64_t n, float *score);
/* score (C) becomes the softmax of scale * score. */
void zeroshot_softmax(float *score, int64_t C, double scale);

/* Counts n images (n, D), any length, with labels from 0 to answers - 1; `score` has (n, answers) afterwards. A label
 * out of range or a row that is zero or not finite is refused, naming it (rows counted from `first`), and nothing of
 * the batch is counted. */
cloob_status zeroshot_add(cloob_ctx *ctx, zeroshot *z, const float *image, const int64_t *label, int64_t n,
                          int64_t first);

#endif
