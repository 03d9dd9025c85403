/* Fuses the GEMMs of a transformer's MLP with the activation between them: linear and the act behind it, and backward
 * the gradient of the second linear's input and the act_bwd behind it. Part of graph_fuse_gemm, after biases have moved
 * into the activation and their sums into its backward op. */
#include "graph/fuse_act.h"

/* How many ops read v's content. */
static int readers(const graph *g, value_id v)
{
    int n = 0;
    for (int i = 0; i < g->nodes * OP_INPUTS; i++) {
        const node *of = &g->node[i / OP_INPUTS];
        n += of->op != OP_COUNT && of->in[i % OP_INPUTS] == v && !op_lends_shape(of->op, i % OP_INPUTS);
    }
    return n;
}

/* The activation of v in the same pass, forward or backward, as node i; -1: none. */
static int act_of(const graph *g, int i, value_id v)
{
    int end = i < g->forward_nodes ? g->forward_nodes : g->nodes;
    for (int k = i + 1; k < end; k++)
        if (g->node[k].op == OP_ACT && g->node[k].in[0] == v) return k;
    return -1;
}

/* A GEMM in 16 bits with nothing else inside, whose result has whole strips of columns and whole stages of depth. */
static bool is_plain(const graph *g, const node *n, int64_t columns, int64_t depth)
{
    return !n->attr.transposed && n->attr.fp8 == OP_FP8_NEVER && n->in[OP_ROUNDED_IN] == NO_VALUE &&
           g->value[n->in[1]].t.dtype == CLOOB_BF16 && columns % 128 == 0 && depth % 64 == 0;
}

static node act_node(op_id op, const node *act, int segment)
{
    node n = { .op = op, .attr = act->attr, .segment = segment };
    for (int k = 0; k < OP_INPUTS; k++) n.in[k] = NO_VALUE;
    for (int k = 0; k < OP_OUTPUTS; k++) n.out[k] = NO_VALUE;
    return n;
}

void fuse_linear_act(graph *g, int i)
{
    node linear = g->node[i];
    value_id pre = linear.out[0];
    const tensor *w = &g->value[linear.in[1]].t;
    int at = act_of(g, i, pre);
    if (at < 0 || linear.in[2] != NO_VALUE || linear.in[3] != NO_VALUE || g->value[pre].keep ||
        !is_plain(g, &linear, w->dim[0], w->dim[1]) || g->node[at].out[OP_ROUNDED_OUT] != NO_VALUE)
        return;
    node n = act_node(OP_LINEAR_ACT, &g->node[at], linear.segment);
    n.in[0] = linear.in[0], n.in[1] = linear.in[1], n.in[2] = g->node[at].in[1];
    n.out[1] = g->node[at].out[0];
    g->node[at].op = OP_COUNT;
    if (readers(g, pre)) n.out[0] = pre;
    g->node[i] = n;
}

void fuse_dx_act(graph *g, int i)
{
    node act = g->node[i];
    value_id dy = act.in[0];
    int at = g->value[dy].keep ? -1 : graph_producer(g, dy);
    if (at < 0 || g->node[at].op != OP_LINEAR_DX || readers(g, dy) != 1 || act.out[0] == NO_VALUE ||
        act.out[OP_ROUNDED_OUT] != NO_VALUE)
        return;
    node dx = g->node[at];
    const tensor *w = &g->value[dx.in[1]].t;
    if (!is_plain(g, &dx, w->dim[1], w->dim[0])) return;
    node n = act_node(OP_LINEAR_DX_ACT, &act, act.segment);
    n.in[0] = dx.in[0], n.in[1] = dx.in[1], n.in[2] = act.in[1], n.in[3] = act.in[2];
    for (int k = 0; k < 3; k++) n.out[k] = act.out[k];
    g->node[i] = n; /* behind the weight's gradient, which may be the last to read the activation */
    g->node[at].op = OP_COUNT;
}
