/* The ground truth of a world on disk (cloob synth): factors.tsv and prompts.json. */
#ifndef INFER_WORLD_TRUTH_H
#define INFER_WORLD_TRUTH_H

#include "cloob/factors.h"
#include "data/text/prompts.h"

typedef struct world_truth {
    int64_t F, N;                    /* factors, validation images */
    const char *name[CLOOB_FACTORS]; /* of the factors */
    const prompt_set *set[CLOOB_FACTORS];
    int64_t *label[CLOOB_FACTORS]; /* (N) positions among the set's classes */
    prompts prompts;
    arena memory; /* owns the names and labels */
} world_truth;

/* Of the validation images, even ones are drawn like training data; odd ones are combinations that training never
 * shows. */
static inline bool world_never_seen(int64_t index) { return index % 2 == 1; }

/* *out: whether a folder has the two files. */
cloob_status world_truth_find(cloob_ctx *ctx, const char *dir, bool *out);
/* Release the truth, also after a failure. */
cloob_status world_truth_read(cloob_ctx *ctx, const char *dir, world_truth *w);
void world_truth_release(world_truth *w);

#endif
