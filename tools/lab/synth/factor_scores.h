/* What an embedding keeps of a world whose factors are known (shape, colour, place, ...): for every factor,
 * can it be read off the embeddings, by prompts (zero-shot) and by a linear probe? An encoder that explains
 * factors away keeps the few that identify a caption and loses the others. */
#ifndef LAB_SYNTH_FACTOR_SCORES_H
#define LAB_SYNTH_FACTOR_SCORES_H

#include "eval/rows.h"

typedef struct factor {
    const char *name;
    const int64_t *label; /* (N) values 0..C-1 of every image */
    int64_t C;
    const float *weight; /* (C, D) unit class weights from prompts (eval/zeroshot.h), or NULL: no zero-shot */
} factor;

typedef struct factor_score {
    double chance;   /* the share of the commonest value among the test rows */
    double zeroshot; /* accuracy on the test rows; -1 without weights */
    double probe;    /* accuracy on the test rows of a probe trained on the others */
    double kept;     /* (probe - chance) / (1 - chance), cut to 0..1: how much of the factor is linearly there */
} factor_score;

typedef struct factor_summary {
    double kept;            /* sum over factors: how many of them an embedding keeps */
    double zeroshot, probe; /* means over factors; zeroshot over those with weights */
} factor_summary;

/* x: images. Rows 0, 2, 4, ... train, rows 1, 3, 5, ... test. lambda: of the probe, 1 is a fair choice for
 * unit rows. A factor with one value among the training rows is refused by name. score: (F), written. */
cloob_status factors_run(cloob_ctx *ctx, factor_score *score, factor_summary *sum, const rows *x, const factor *f,
                         int64_t F, double lambda);

#endif
