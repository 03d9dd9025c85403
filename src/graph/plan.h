/* Memory planning: every temporary gets an offset in one arena so that two values alive at the same time never
 * overlap. */
#ifndef GRAPH_PLAN_H
#define GRAPH_PLAN_H

#include "graph/graph.h"

typedef struct plan_item {
    size_t bytes;    /* 0: not planned */
    int first, last; /* node indices between which it is alive */
    size_t offset;   /* the result */
} plan_item;

/* Places items; returns the size of the arena. Offsets are multiples of 256. Deterministic. */
cloob_status plan_offsets(cloob_ctx *ctx, plan_item *item, int count, size_t *arena_bytes);

/* The least any plan could need: the most bytes alive at one node. */
size_t plan_lower_bound(const plan_item *item, int count, int nodes);

#endif
