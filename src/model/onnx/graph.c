/* Nodes and constants as fields of a GraphProto. */
#include "model/onnx/graph.h"

#include <stdio.h>
#include <string.h>

/* Field numbers of onnx.proto. */
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { ATTR_NAME = 1, ATTR_FLOAT = 2, ATTR_INT = 3, ATTR_INTS = 8, ATTR_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7 };
enum { ONNX_TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { ELEMENT_FLOAT = 1, ELEMENT_INT64 = 7 };

static onnx_name fresh(onnx_graph *x, char kind)
{
    onnx_name n;
    snprintf(n.s, sizeof n.s, "%c%lld", kind, (long long)x->names++);
    return n;
}

void onnx_attr_int(onnx_attrs *a, const char *name, int64_t v)
{
    sbuf m = { 0 };
    proto_text(&m, ATTR_NAME, name);
    proto_int(&m, ATTR_INT, v);
    proto_int(&m, ATTR_TYPE, TYPE_INT);
    proto_message(&a->content, NODE_ATTRIBUTE, &m);
}

void onnx_attr_ints(onnx_attrs *a, const char *name, const int64_t *v, int n)
{
    sbuf m = { 0 };
    proto_text(&m, ATTR_NAME, name);
    for (int i = 0; i < n; i++) proto_int(&m, ATTR_INTS, v[i]);
    proto_int(&m, ATTR_TYPE, TYPE_INTS);
    proto_message(&a->content, NODE_ATTRIBUTE, &m);
}

void onnx_attr_float(onnx_attrs *a, const char *name, float v)
{
    sbuf m = { 0 };
    proto_text(&m, ATTR_NAME, name);
    proto_float(&m, ATTR_FLOAT, v);
    proto_int(&m, ATTR_TYPE, TYPE_FLOAT);
    proto_message(&a->content, NODE_ATTRIBUTE, &m);
}

onnx_name onnx_node(onnx_graph *x, const char *op, const onnx_name *in, int n_in, onnx_attrs *a)
{
    sbuf m = { 0 };
    onnx_name out = fresh(x, 't');
    for (int i = 0; i < n_in; i++) proto_text(&m, NODE_INPUT, in[i].s);
    proto_text(&m, NODE_OUTPUT, out.s);
    proto_text(&m, NODE_OP, op);
    if (a) {
        sbuf_add(&m, a->content.data ? a->content.data : "", a->content.len);
        m.failed |= a->content.failed;
        sbuf_release(&a->content);
        *a = (onnx_attrs){ { 0 } };
    }
    proto_message(&x->content, GRAPH_NODE, &m);
    return out;
}

onnx_name onnx_unary(onnx_graph *x, const char *op, onnx_name a) { return onnx_node(x, op, &a, 1, NULL); }

onnx_name onnx_binary(onnx_graph *x, const char *op, onnx_name a, onnx_name b)
{
    return onnx_node(x, op, (onnx_name[]){ a, b }, 2, NULL);
}

onnx_name onnx_reshape(onnx_graph *x, onnx_name a, const int64_t *dim, int ndim)
{
    return onnx_binary(x, "Reshape", a, onnx_int64s(x, dim, (int64_t[]){ ndim }, 1));
}

onnx_name onnx_transpose(onnx_graph *x, onnx_name a, const int64_t *order, int ndim)
{
    onnx_attrs attrs = { 0 };
    onnx_attr_ints(&attrs, "perm", order, ndim);
    return onnx_node(x, "Transpose", &a, 1, &attrs);
}

/* ---- constants ----------------------------------------------------------------------------------- */

static onnx_name constant(onnx_graph *x, int type, const void *data, size_t size, const int64_t *dim, int ndim)
{
    sbuf m = { 0 };
    onnx_name name = fresh(x, 'c');
    for (int i = 0; i < ndim; i++) proto_int(&m, ONNX_TENSOR_DIMS, dim[i]), size *= (size_t)dim[i];
    proto_int(&m, TENSOR_TYPE, type);
    proto_text(&m, TENSOR_NAME, name.s);
    proto_bytes(&m, TENSOR_RAW, data, size);
    proto_message(&x->content, GRAPH_INITIALIZER, &m);
    return name;
}

onnx_name onnx_floats(onnx_graph *x, const float *data, const int64_t *dim, int ndim)
{
    return constant(x, ELEMENT_FLOAT, data, sizeof *data, dim, ndim);
}

onnx_name onnx_int64s(onnx_graph *x, const int64_t *data, const int64_t *dim, int ndim)
{
    return constant(x, ELEMENT_INT64, data, sizeof *data, dim, ndim);
}

onnx_name onnx_scalar(onnx_graph *x, float v) { return onnx_floats(x, &v, NULL, 0); }

const float *onnx_data(const onnx_graph *x, value_id v)
{
    const value *of = &x->g->value[v];
    if (x->constant[v]) return x->constant[v];
    return (const float *)x->p->master_view[of->param].data + of->offset;
}

onnx_name onnx_param(onnx_graph *x, value_id v)
{
    const tensor *t = &x->g->value[v].t;
    return onnx_floats(x, onnx_data(x, v), t->dim, t->ndim);
}

onnx_name onnx_param_transposed(onnx_graph *x, value_id v)
{
    const tensor *t = &x->g->value[v].t;
    const float *from = onnx_data(x, v);
    int64_t R = t->dim[0], C = t->dim[1];
    arena scratch = { 0 };
    float *to = arena_push(&scratch, (size_t)(R * C) * sizeof *to);
    onnx_name name = { "" };
    for (int64_t r = 0; to && r < R; r++)
        for (int64_t c = 0; c < C; c++) to[c * R + r] = from[r * C + c];
    if (to) name = onnx_floats(x, to, (int64_t[]){ C, R }, 2);
    else x->content.failed = true;
    arena_release(&scratch);
    return name;
}
