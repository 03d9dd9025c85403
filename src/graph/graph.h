/* A tower as a list of ops in single-assignment form.
 *
 * Built once per batch shape: the model appends ops to it, fusion rewrites it, differentiation appends the backward
 * ops, and an exec (exec.h) plans its memory and runs it.
 *
 *     graph g;
 *     graph_init(ctx, &g);
 *     value_id x = graph_input(&g, TENSOR(CLOOB_U8, NULL, B, 224, 224, 3), "images");
 *     value_id y = graph_op(&g, OP_CONV2D, (op_attr){ .stride = 2, .pad = 1 }, 2, (value_id[]){ x, w });
 *     CLOOB_TRY(graph_status(&g));         the first error while building
 *
 * Building functions return no status: after an error they do nothing, and graph_status returns it. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "nn/op.h"

typedef int32_t value_id;
enum { NO_VALUE = -1 };

typedef enum value_kind {
    VALUE_TEMP,  /* lives in the planned arena */
    VALUE_INPUT, /* filled by the caller before a run */
    VALUE_PARAM, /* (part of) a parameter in compute precision */
    VALUE_STAT,  /* (part of) a parameter's master copy, F32, updated in place: running statistics */
    VALUE_GRAD   /* (part of) a parameter's gradient, F32 */
} value_kind;

typedef struct value {
    tensor t;
    value_kind kind;
    int param;        /* which parameter, for the last three kinds */
    int64_t offset;   /* first element inside it */
    bool trainable;   /* a parameter with a gradient */
    bool keep;        /* alive until the end: an output */
    const char *name; /* inputs and outputs */
} value;

typedef struct node {
    op_id op; /* OP_COUNT: removed */
    op_attr attr;
    value_id in[OP_INPUTS], out[OP_OUTPUTS];
    int segment;
    int group; /* neighbours with the same number, other than 0, are the members of a group (nn/group.h) */
} node;

typedef struct graph {
    cloob_ctx *ctx;
    cloob_status status;
    value *value;
    node *node;
    int values, nodes;
    int64_t value_cap, node_cap;
    int forward_nodes; /* nodes before this index are the forward pass; set by graph_differentiate */
    int segment;       /* given to new nodes */
    int groups;        /* the last group's number */
    bool plain_pools;  /* inference on a CPU: an average pool is an op of its own, so that batch norm before it folds */
} graph;

void graph_init(cloob_ctx *ctx, graph *g);
void graph_release(graph *g);
cloob_status graph_status(const graph *g);

value_id graph_input(graph *g, tensor t, const char *name);
/* A parameter, or the part of it with the shape of `t` from element `offset` on. */
value_id graph_param(graph *g, int param, tensor t, int64_t offset, bool trainable);
value_id graph_stat(graph *g, int param, tensor t);

/* Appends an op; NO_VALUE for absent inputs. Returns output 0; the others by graph_output. */
value_id graph_op(graph *g, op_id op, op_attr attr, int n_in, const value_id *in);
value_id graph_output(const graph *g, value_id first, int k);

/* Marks a value as a result under a name: it stays until the end of a run. */
void graph_keep(graph *g, value_id v, const char *name);
value_id graph_find(const graph *g, const char *name); /* an input or kept value; NO_VALUE when absent */

/* A segment is a sequence of ops that checkpointing may compute twice (a residual block, a layer). */
void graph_segment(graph *g);

/* ---- passes -------------------------------------------------------------------------------------- */

/* Folds relu, add and pool into batch norm, add into linear: fewer passes over memory. */
void graph_fuse(graph *g);
/* Inference: folds batch norm with fixed statistics into the convolution before it. */
void graph_fold_batchnorm(graph *g);

typedef struct graph_grad_options {
    bool checkpoint;      /* keep only what crosses segments, recompute the rest */
    int checkpoint_share; /* with checkpoint: of this percentage of the segments, from the first on; 0: of all */
    bool recompute;       /* recompute cheap results (batch norm's apply, activations, layer norm), keep none */
} graph_grad_options;

/* Appends the backward pass: `dy` (an input added under the name "d" + output's name) flows from `output` to every
 * trainable parameter. Folds the sums of gradients into the ops that read them. */
void graph_differentiate(graph *g, value_id output, const graph_grad_options *o);

/* The last pass, for backends with kernels for groups: groups of a GEMM and the passes over its result or its left
 * factor, bias gradients summed by the op that writes dy, and 8-bit copies written by the op that writes the factor
 * (fuse_gemm.c). */
void graph_fuse_gemm(graph *g);

/* ---- for passes ---------------------------------------------------------------------------------- */

value_id graph_value(graph *g, tensor t, value_kind kind);
node *graph_node(graph *g, op_id op, op_attr attr); /* appended, all operands absent; NULL after a failure */
int graph_uses(const graph *g, value_id v);         /* how many operands read it */
int graph_producer(const graph *g, value_id v);     /* index of the node that writes it, or -1 */
void graph_remove_dead(graph *g, int from);         /* removes nodes from index `from` whose results are not read */
cloob_status graph_shape(graph *g, node *n);        /* runs the shape rule, makes the missing output values */
void graph_move(graph *g, int from, int to);        /* node `from` ends at index `to`, those between shift by one */

/* Memory planning: every temporary gets an offset in one arena so that two values alive at the same time never
 * overlap. */

typedef struct plan_item {
    size_t bytes;    /* 0: not planned */
    int first, last; /* node indices between which it is alive */
    size_t offset;   /* the result */
} plan_item;

/* Places items; returns the size of the arena. Offsets are multiples of 256. Deterministic. */
cloob_status plan_offsets(cloob_ctx *ctx, plan_item *item, int count, size_t *arena_bytes);

/* A lower bound of any plan: the most bytes alive at one node. */
size_t plan_lower_bound(const plan_item *item, int count, int nodes);

#endif
