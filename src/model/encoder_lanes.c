#include "model/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "graph/exec.h"
#include "model/tower.h"

enum { MAX_LANES = 64 };
#define SMALL_FLOPS 2e8 /* operations per image: a few milliseconds on one core */

typedef struct lane {
    cloob_ctx *ctx; /* for one thread, with its own error text */
    exec *x[2];     /* for bytes, for floats */
    cloob_status status;
} lane;

struct lanes {
    params *p;
    weight_cache *cache;
    lane lane[MAX_LANES];
};

static cloob_status make_graph(cloob_ctx *ctx, const params *p, bool floats, graph *g)
{
    tower_options o = { .batch = 1, .float_images = floats, .features = true };
    return tower_image(ctx, p, &o, g);
}

/* Operations of the convolutions and matrix multiplications in the graph. */
static double flops_of(const graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->nodes; i++) {
        const node *n = &g->node[i];
        if (n->op != OP_CONV2D && n->op != OP_LINEAR) continue;
        const tensor *y = &g->value[n->out[0]].t, *w = &g->value[n->in[1]].t;
        sum += 2.0 * (double)tensor_count(y) * (double)tensor_count(w) / (double)tensor_cols(y);
    }
    return sum;
}

cloob_status lanes_apply(cloob_ctx *ctx, const params *p, bool *out)
{
    graph g;
    *out = false;
    if (p->dev->backend != BACKEND_CPU) return CLOOB_OK;
    cloob_status status = make_graph(ctx, p, false, &g);
    if (status == CLOOB_OK) *out = flops_of(&g) < SMALL_FLOPS;
    graph_release(&g);
    return status;
}

cloob_status lanes_create(cloob_ctx *ctx, params *p, weight_cache *cache, lanes **out)
{
    lanes *l = calloc(1, sizeof *l);
    if (!l) return ctx_no_memory(ctx, sizeof *l, "an encoder");
    l->p = p;
    l->cache = cache;
    *out = l;
    return CLOOB_OK;
}

void lanes_destroy(lanes *l)
{
    for (int i = 0; l && i < MAX_LANES; i++) {
        for (int k = 0; k < 2; k++) exec_destroy(l->lane[i].x[k]);
        cloob_ctx_destroy(l->lane[i].ctx);
    }
    free(l);
}

/* Creates a lane's executor and runs it twice. Lanes are opened one after the other because kernels may pack weights
 * into the shared cache in an executor's second run (nn/cpu/linear_frozen.c). */
static cloob_status lane_open(cloob_ctx *ctx, lanes *l, lane *a, bool floats)
{
    graph g;
    if (!a->ctx && !(a->ctx = ctx_worker(ctx))) return ctx_no_memory(ctx, sizeof *a, "an encoder");
    if (a->x[floats]) return CLOOB_OK;
    exec_bindings b = {
        .param = l->p->compute_view, .master = l->p->master_view, .frozen_weights = true, .cache = l->cache
    };
    cloob_status status = make_graph(a->ctx, l->p, floats, &g);
    if (status == CLOOB_OK) status = exec_create(a->ctx, &g, l->p->dev, &b, &a->x[floats]);
    graph_release(&g);
    for (int i = 0; i < 2 && status == CLOOB_OK; i++) status = exec_forward(a->x[floats]);
    return status == CLOOB_OK ? status : ctx_fail(ctx, status, "%s", cloob_error(a->ctx));
}

typedef struct job {
    lanes *l;
    const lane_rows *rows;
} job;

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const lane_rows *r = j->rows;
    lane *a = &j->l->lane[thread];
    exec *x = a->x[r->floats];
    const tensor *in = exec_tensor(x, "images"), *result = exec_tensor(x, r->result);
    if (!result) result = exec_tensor(x, "raw"); /* without a projection, the features are "raw" */
    a->status = CLOOB_OK;
    for (int64_t i = begin; i < end && a->status == CLOOB_OK; i++) {
        memcpy(in->data, r->images + (size_t)i * r->stride, tensor_bytes(in));
        a->status = exec_forward(x);
        dtype_convert(CLOOB_F32, r->out + i * r->width, result->dtype, result->data, r->width);
    }
}

cloob_status lanes_run(cloob_ctx *ctx, lanes *l, const lane_rows *rows)
{
    job j = { l, rows };
    int64_t grain = (rows->n + MAX_LANES - 1) / MAX_LANES;
    int count = pool_ranges(ctx, rows->n, grain);
    for (int i = 0; i < count; i++) CLOOB_TRY(lane_open(ctx, l, &l->lane[i], rows->floats));
    pool_for(ctx, rows->n, grain, run_range, &j);
    for (int i = 0; i < count; i++)
        if (l->lane[i].status != CLOOB_OK) return ctx_fail(ctx, l->lane[i].status, "%s", cloob_error(l->lane[i].ctx));
    return CLOOB_OK;
}
