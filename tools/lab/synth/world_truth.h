/* What a model keeps of a world whose factors are known (`cloob synth`): for every factor, can it be read off
 * the images' embeddings, by prompts and by a linear probe? An encoder that explains factors away keeps the
 * few that identify a caption and loses the others.
 *
 *     factors_result f;
 *     factors_measure(ctx, m, "world", 1, &f);
 *     printf("%.2f of %lld factors kept\n", f.kept, (long long)f.count);
 */
#ifndef LAB_SYNTH_WORLD_TRUTH_H
#define LAB_SYNTH_WORLD_TRUTH_H

#include "cloob/model.h"
#include "data/text/prompts.h"
#include "eval/rows.h"

enum { WORLD_FACTORS = 32 }; /* a world has at most so many */

typedef struct factor_result {
    char name[64];
    int64_t values;
    double chance;   /* the share of the commonest value among the tested images */
    double zeroshot; /* accuracy by the world's prompts; -1 without them */
    double probe;    /* accuracy of a linear probe */
    double kept;     /* (probe - chance) / (1 - chance), cut to 0..1: how much of it is linearly there */
} factor_result;

typedef struct factors_result {
    int64_t count, trained, tested, bad; /* factors; images for the probe, for the scores, unreadable */
    double kept;                         /* sum over factors: how many of them the embedding keeps */
    double zeroshot, probe;              /* means over factors */
    factor_result row[WORLD_FACTORS];    /* in the order of factors.tsv */
} factors_result;

/* world: a folder of cloob synth, in either layout. Of its validation images the even ones, drawn like
 * training data, train the probe; the odd ones, combinations that training never shows, are scored. lambda:
 * of the probe; 1 is a fair choice for unit rows. Nothing to release. */
cloob_status factors_measure(cloob_ctx *ctx, cloob_model *m, const char *world, double lambda, factors_result *out);
char *factors_json(const factors_result *f); /* free() it; NULL when memory is out */
/* factors.json in a folder that is made when absent. */
cloob_status factors_write(cloob_ctx *ctx, const factors_result *f, const char *folder);

/* ---- the ground truth on disk: factors.tsv and prompts.json ---------------------------------------- */

typedef struct world_truth {
    int64_t F, N;                    /* factors, validation images */
    const char *name[WORLD_FACTORS]; /* of the factors */
    const prompt_set *set[WORLD_FACTORS];
    int64_t *label[WORLD_FACTORS]; /* (N) positions among the set's classes */
    prompts prompts;
    arena memory; /* owns the names and labels */
} world_truth;

/* *out: whether a folder has the two files. */
cloob_status world_truth_find(cloob_ctx *ctx, const char *dir, bool *out);
/* Release the truth, also after a failure. */
cloob_status world_truth_read(cloob_ctx *ctx, const char *dir, world_truth *w);
void world_truth_release(world_truth *w);

/* ---- one factor at a time -------------------------------------------------------------------------- */

typedef struct factor {
    const char *name;
    const int64_t *label; /* (N) values 0..C-1 of every image */
    int64_t C;
    const float *weight; /* (C, D) unit class weights from prompts (eval/zeroshot.h), or NULL: no zero-shot */
} factor;

/* x: images. Rows 0, 2, 4, ... train the probe, rows 1, 3, 5, ... test. A factor with one value among the training rows
 * is refused by name. */
cloob_status factors_run(cloob_ctx *ctx, factors_result *out, const rows *x, const factor *f, int64_t F, double lambda);

#endif
