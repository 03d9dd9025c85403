/* Rules of graph_fuse_gemm for a transformer's linear layers: bias gradients where dy is written, biases and 8-bit
 * copies where a factor is written, and, after these, the MLP's GEMMs with the activation between them. */
#include "graph/graph.h"

/* The bias gradient of a linear layer: sums over the rows of dy, taken by the op that writes dy. */
void fuse_bias_sums(graph *g, int i)
{
    static const struct {
        op_id op;
        int sums;
    } makers[] = { { OP_ACT_BWD, 2 }, { OP_LAYERNORM_BWD, 4 }, { OP_ATTENTION_BWD, 1 } };
    node *dw = &g->node[i];
    int at = dw->out[1] == NO_VALUE ? -1 : graph_producer(g, dw->in[0]);
    for (int k = 0; k < 3 && at >= 0; k++) {
        node *maker = &g->node[at];
        if (maker->op != makers[k].op || maker->out[0] != dw->in[0] || maker->out[makers[k].sums] != NO_VALUE) continue;
        maker->attr.sums = true;
        maker->out[makers[k].sums] = dw->out[1];
        dw->out[1] = NO_VALUE;
        return;
    }
}

/* A bias between a GEMM and an activation: the activation and its backward rule add it on their way, while it costs a
 * GEMM a tenth of its time. */
void fuse_act_bias(graph *g, int i)
{
    value_id x = g->node[i].in[0];
    int at = g->value[x].keep ? -1 : graph_producer(g, x), backward = 0;
    if (at < 0 || g->node[at].op != OP_LINEAR || g->node[at].in[3] != NO_VALUE) return;
    value_id bias = g->node[at].in[2];
    if (bias == NO_VALUE || g->value[bias].t.dtype != g->value[x].t.dtype) return;
    for (int k = 0; k < g->nodes; k++) backward += g->node[k].op == OP_ACT_BWD && g->node[k].in[1] == x;
    if (fuse_readers(g, x) != 1 + backward) return;
    for (int k = 0; k < g->nodes; k++)
        if (g->node[k].op == OP_ACT_BWD && g->node[k].in[1] == x) g->node[k].in[2] = bias;
    g->node[i].in[1] = bias;
    g->node[at].in[2] = NO_VALUE;
}

/* Whether an op writes 8-bit copies in the format that its reader takes. */
static bool rounds(op_id op, op_id reader)
{
    if (reader == OP_LINEAR) return op == OP_ACT || op == OP_LAYERNORM;
    return op == OP_ACT_BWD || op == OP_LAYERNORM_BWD || op == OP_ATTENTION_BWD;
}

/* The 8-bit copy of a GEMM's left factor: written by the op that writes the factor. */
void fuse_rounding(graph *g, int i)
{
    value_id x = g->node[i].in[0];
    op_fp8 fp8 = g->node[i].attr.fp8;
    int at =
        fp8 == OP_FP8_NEVER || op_fp8_by_rows(fp8) || g->value[x].t.dtype != CLOOB_BF16 ? -1 : graph_producer(g, x);
    if (at < 0 || g->node[at].out[0] != x || !rounds(g->node[at].op, g->node[i].op)) return;
    tensor copy = { .dtype = CLOOB_U8, .ndim = 1, .dim = { tensor_count(&g->value[x].t) + OP_ROUNDED_TAIL } };
    value_id *rounded = &g->node[at].out[OP_ROUNDED_OUT];
    if (*rounded == NO_VALUE) *rounded = graph_value(g, copy, VALUE_TEMP);
    g->node[i].in[OP_ROUNDED_IN] = *rounded;
}

/* ---- the activation inside the GEMMs ------------------------------------------------------------- */

/* The activation of v in the same pass, forward or backward, as node i; -1: none. */
static int act_of(const graph *g, int i, value_id v)
{
    int end = i < g->forward_nodes ? g->forward_nodes : g->nodes;
    for (int k = i + 1; k < end; k++)
        if (g->node[k].op == OP_ACT && g->node[k].in[0] == v && !g->node[k].group) return k;
    return -1;
}

/* A GEMM in 16 bits with nothing else inside, whose result has whole strips of columns and whole stages of depth. */
static bool is_plain(const graph *g, const node *n, int64_t columns, int64_t depth)
{
    return !n->attr.transposed && n->attr.fp8 == OP_FP8_NEVER && n->in[OP_ROUNDED_IN] == NO_VALUE &&
           g->value[n->in[1]].t.dtype == CLOOB_BF16 && columns % 256 == 0 && depth % 64 == 0;
}

void fuse_linear_act(graph *g, int i)
{
    const node *linear = &g->node[i];
    value_id pre = linear->out[0];
    const tensor *w = &g->value[linear->in[1]].t;
    int at = act_of(g, i, pre);
    if (at < 0 || linear->in[2] != NO_VALUE || linear->in[3] != NO_VALUE || g->value[pre].keep ||
        !is_plain(g, linear, w->dim[0], w->dim[1]) || g->node[at].out[OP_ROUNDED_OUT] != NO_VALUE)
        return;
    fuse_behind(g, i, at);
}

void fuse_dx_act(graph *g, int i)
{
    const node *act = &g->node[i];
    value_id dy = act->in[0];
    int at = g->value[dy].keep ? -1 : graph_producer(g, dy);
    if (at < 0 || g->node[at].op != OP_LINEAR_DX || fuse_readers(g, dy) != 1 || act->out[0] == NO_VALUE ||
        act->out[OP_ROUNDED_OUT] != NO_VALUE)
        return;
    const node *dx = &g->node[at];
    const tensor *w = &g->value[dx->in[1]].t;
    /* at the activation: behind the weight's gradient, which may be the last to read the activation */
    if (is_plain(g, dx, w->dim[1], w->dim[0])) fuse_before(g, i, at);
}
