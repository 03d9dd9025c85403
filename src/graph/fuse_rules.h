/* What graph_fuse_gemm's rules share, and those of linear layers (fuse_linear.c). A rule leaves node i as it is where
 * it does not fit; a node that has gone into another has the op OP_COUNT. */
#ifndef GRAPH_FUSE_RULES_H
#define GRAPH_FUSE_RULES_H

#include "graph/graph.h"

node fuse_node(op_id op, op_attr attr, int segment); /* without operands and results */
int fuse_readers(const graph *g, value_id v);        /* ops that read v's content, not its shape alone */

void fuse_bias_sums(graph *g, int i);  /* node i: a linear_dw */
void fuse_act_bias(graph *g, int i);   /* an act */
void fuse_rounding(graph *g, int i);   /* a linear or a linear_dx */
void fuse_linear_act(graph *g, int i); /* a linear */
void fuse_dx_act(graph *g, int i);     /* an act_bwd */

#endif
