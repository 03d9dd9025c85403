/* The towers of a step as graphs, for step.c and memory_budget.c.
 *
 * A tower is one graph. Packed texts have several, with rising numbers of rows, and a batch uses the first that holds
 * its tokens: shapes are planned, so the number of rows must be fixed. */
#ifndef TRAIN_TOWERS_H
#define TRAIN_TOWERS_H

#include "train/step.h"

enum { TOWER_SIZES = 7 };

typedef struct towers {
    graph g[TOWER_SIZES];
    int64_t rows[TOWER_SIZES]; /* packed texts: of each graph, rising; the last holds full-length texts */
    int count;
} towers;

/* Cheap ops are recomputed in the backward pass; a transformer on a GPU keeps their results instead: a third
 * of its memory for a twentieth of its time (docs/measurements/gpu.md). Release t whatever the status. */
cloob_status towers_build(cloob_ctx *ctx, const step_options *o, const device *dev, const params *p, bool text,
                          towers *t);
void towers_release(towers *t);

/* Which of `count` sizes a micro-batch of tokens (batch, T) in host memory uses. */
int towers_choose(const model_config *c, const int64_t *rows, int count, const int32_t *tokens, int64_t batch,
                  int64_t T);

#endif
