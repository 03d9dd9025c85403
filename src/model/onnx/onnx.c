/* The model around a graph: inputs, outputs, metadata, file. */
#include "model/interchange.h"

#include <stdlib.h>

#include "core/file.h"
#include "model/onnx/graph.h"
#include "model/params.h"
#include "model/tower.h"

/* Field numbers of onnx.proto. */
enum {
    MODEL_IR = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_META = 14
};
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP = 4 };
enum { INFO_NAME = 1, INFO_TYPE = 2, TYPE_TENSOR = 1, TENSOR_ELEMENT = 1, TENSOR_SHAPE = 2 };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_NAME = 2, OPSET_DOMAIN = 1, OPSET_VERSION = 2, PAIR_KEY = 1, PAIR_VALUE = 2 };
enum { ELEMENT_FLOAT = 1, ELEMENT_INT64 = 7, IR_VERSION = 8, OPSET = 17 };

/* An input or output; the first dimension is the batch. */
static void put_info(sbuf *out, int field, const char *name, int element, const int64_t *dim, int ndim)
{
    sbuf info = { 0 }, type = { 0 }, elements = { 0 }, shape = { 0 };
    for (int i = 0; i < ndim; i++) {
        sbuf d = { 0 };
        if (i == 0) proto_text(&d, DIM_NAME, "batch");
        else proto_int(&d, DIM_VALUE, dim[i]);
        proto_message(&shape, SHAPE_DIM, &d);
    }
    proto_int(&elements, TENSOR_ELEMENT, element);
    proto_message(&elements, TENSOR_SHAPE, &shape);
    proto_message(&type, TYPE_TENSOR, &elements);
    proto_text(&info, INFO_NAME, name);
    proto_message(&info, INFO_TYPE, &type);
    proto_message(out, field, &info);
}

static void put_pair(sbuf *model, const char *key, sbuf *text)
{
    sbuf pair = { 0 };
    proto_text(&pair, PAIR_KEY, key);
    proto_message(&pair, PAIR_VALUE, text);
    proto_message(model, MODEL_META, &pair);
}

/* The result under its public name. */
static void put_result(onnx_graph *x, const char *name, int64_t D)
{
    sbuf m = { 0 };
    proto_text(&m, NODE_INPUT, x->of[graph_find(x->g, "output")].s);
    proto_text(&m, NODE_OUTPUT, name);
    proto_text(&m, NODE_OP, "Identity");
    proto_message(&x->content, GRAPH_NODE, &m);
    put_info(&x->content, GRAPH_OUTPUT, name, ELEMENT_FLOAT, (int64_t[]){ 0, D }, 2);
}

static cloob_status put_graph(onnx_graph *x, bool text)
{
    const char *name = text ? "tokens" : "images";
    const model_config *c = &x->p->config;
    value_id first = graph_find(x->g, name);
    const tensor *t = &x->g->value[first].t;
    snprintf(x->of[first].s, sizeof x->of[first].s, "%s", name);
    put_info(&x->content, GRAPH_INPUT, name, text ? ELEMENT_INT64 : ELEMENT_FLOAT, t->dim, t->ndim);
    for (int i = 0; i < x->g->nodes; i++) CLOOB_TRY(onnx_op(x, &x->g->node[i]));
    put_result(x, text ? "text_embeddings" : "image_embeddings", c->embed);
    proto_text(&x->content, GRAPH_NAME, text ? "text tower" : "image tower");
    return CLOOB_OK;
}

static void put_model(onnx_graph *x, sbuf *model)
{
    sbuf opset = { 0 }, config = { 0 }, preprocess = { 0 };
    proto_int(model, MODEL_IR, IR_VERSION);
    proto_text(model, MODEL_PRODUCER, "cloob");
    proto_text(model, MODEL_PRODUCER_VERSION, cloob_version());
    proto_text(&opset, OPSET_DOMAIN, "");
    proto_int(&opset, OPSET_VERSION, OPSET);
    proto_message(model, MODEL_OPSET, &opset);
    model_config_to_json(&x->p->config, &config);
    model_config_to_preprocess(&x->p->config, &preprocess);
    put_pair(model, "config", &config);
    put_pair(model, "preprocess", &preprocess);
    proto_message(model, MODEL_GRAPH, &x->content);
}

static cloob_status export_tower(cloob_ctx *ctx, const char *path, const params *p, const graph *g, bool text)
{
    sbuf model = { 0 };
    onnx_graph x = { .ctx = ctx, .g = g, .p = p };
    x.of = calloc((size_t)g->values + 1, sizeof *x.of);
    x.constant = calloc((size_t)g->values + 1, sizeof *x.constant);
    cloob_status status = x.of && x.constant ? put_graph(&x, text) : ctx_no_memory(ctx, (size_t)g->values, path);
    if (status == CLOOB_OK) put_model(&x, &model);
    if (status == CLOOB_OK && model.failed) status = ctx_no_memory(ctx, model.len, path);
    if (status == CLOOB_OK) status = file_write(ctx, path, model.data, model.len);
    sbuf_release(&model);
    sbuf_release(&x.content);
    arena_release(&x.memory);
    free(x.of);
    free(x.constant);
    return status;
}

static cloob_status check_size(cloob_ctx *ctx, const char *path, const params *p, bool text)
{
    const double max = 2147483647.0;
    double bytes = 1e6;
    for (int i = 0; i < p->count; i++)
        if (model_is_image(p->row[i].name) != text) bytes += (double)p->row[i].count * sizeof(float);
    if (bytes < max) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "%s: the tower has %.1f GB of weights, and an ONNX file of this kind holds 2", path, bytes / 1e9);
}

static cloob_status write_from(cloob_ctx *ctx, const char *path, params *p, const weights *w, bool text)
{
    graph g;
    tower_options o = { .batch = 1, .float_images = true };
    CLOOB_TRY(check_size(ctx, path, p, text));
    CLOOB_TRY(params_load(ctx, p, w));
    cloob_status status = text ? tower_text(ctx, p, &o, &g) : tower_image(ctx, p, &o, &g);
    if (status == CLOOB_OK) status = export_tower(ctx, path, p, &g, text);
    graph_release(&g);
    return status;
}

cloob_status onnx_write(cloob_ctx *ctx, const char *path, const weights *w, bool text)
{
    device *dev;
    params *p;
    CLOOB_TRY(device_open(ctx, "cpu", &dev));
    cloob_status status = params_create(ctx, &w->config, dev, CLOOB_F32, PARAMS_INFER, &p);
    if (status == CLOOB_OK) {
        status = write_from(ctx, path, p, w, text);
        params_destroy(p);
    }
    device_close(dev);
    return status;
}
