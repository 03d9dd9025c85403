/* An ONNX graph under construction: nodes, constants, names. ops.c adds the ops of a tower. Failures
 * are kept in the strings and reported at the end. */
#ifndef MODEL_ONNX_GRAPH_H
#define MODEL_ONNX_GRAPH_H

#include "core/text.h"
#include "graph/graph.h"
#include "model/params.h"

/* The name of a tensor; "" is an absent operand. */
typedef struct onnx_name {
    char s[24];
} onnx_name;

typedef struct onnx_graph {
    cloob_ctx *ctx;
    const graph *g;
    const params *p;
    sbuf content;           /* of the GraphProto, so far */
    int64_t names;          /* given so far */
    onnx_name *of;          /* by value of g */
    const float **constant; /* by value of g: computed while exporting (folded weights); NULL: not */
    arena memory;
} onnx_graph;

/* Attributes of the node to be added next. */
typedef struct onnx_attrs {
    sbuf content;
} onnx_attrs;

void onnx_attr_int(onnx_attrs *a, const char *name, int64_t v);
void onnx_attr_ints(onnx_attrs *a, const char *name, const int64_t *v, int n);
void onnx_attr_float(onnx_attrs *a, const char *name, float v);

/* Adds a node with one output; a NULL or emptied afterwards. */
onnx_name onnx_node(onnx_graph *x, const char *op, const onnx_name *in, int n_in, onnx_attrs *a);
onnx_name onnx_unary(onnx_graph *x, const char *op, onnx_name a);
onnx_name onnx_binary(onnx_graph *x, const char *op, onnx_name a, onnx_name b);
onnx_name onnx_reshape(onnx_graph *x, onnx_name a, const int64_t *dim, int ndim); /* -1: what is left, the batch */
onnx_name onnx_transpose(onnx_graph *x, onnx_name a, const int64_t *order, int ndim);

/* Constants; data are copied. */
onnx_name onnx_floats(onnx_graph *x, const float *data, const int64_t *dim, int ndim);
onnx_name onnx_int64s(onnx_graph *x, const int64_t *data, const int64_t *dim, int ndim);
onnx_name onnx_scalar(onnx_graph *x, float v);

/* The floats of a parameter, or of a constant computed before, in engine layout. */
const float *onnx_data(const onnx_graph *x, value_id v);
/* The same as a constant of the value's own shape, or as (cols, rows) of a matrix. */
onnx_name onnx_param(onnx_graph *x, value_id v);
onnx_name onnx_param_transposed(onnx_graph *x, value_id v);

/* Adds what a node of the tower does; an op that ONNX export does not know is CLOOB_ERR_UNSUPPORTED. */
cloob_status onnx_op(onnx_graph *x, const node *n);

#endif
