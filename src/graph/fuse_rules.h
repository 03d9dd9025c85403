/* What graph_fuse_gemm's rules share, and the rules of linear layers (fuse_linear.c). A rule leaves node i as it is
 * where it does not fit. */
#ifndef GRAPH_FUSE_RULES_H
#define GRAPH_FUSE_RULES_H

#include "graph/graph.h"

int fuse_readers(const graph *g, value_id v); /* ops that read v's content, not its shape alone */

/* Node `at`, or the group that it is in, becomes part of node host's group, moved right before or behind it. Returns
 * the index at which it begins then. */
int fuse_before(graph *g, int host, int at);
int fuse_behind(graph *g, int host, int at);

void fuse_bias_sums(graph *g, int i);  /* node i: a linear_dw */
void fuse_act_bias(graph *g, int i);   /* an act */
void fuse_rounding(graph *g, int i);   /* a linear or a linear_dx */
void fuse_linear_act(graph *g, int i); /* a linear */
void fuse_dx_act(graph *g, int i);     /* an act_bwd */

#endif
