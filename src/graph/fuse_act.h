/* Rules of graph_fuse_gemm for a transformer's MLP (fuse_act.c); each leaves node i as it is where it does not fit. */
#ifndef GRAPH_FUSE_ACT_H
#define GRAPH_FUSE_ACT_H

#include "graph/graph.h"

void fuse_linear_act(graph *g, int i); /* node i: a linear */
void fuse_dx_act(graph *g, int i);     /* node i: an act_bwd */

#endif
