/* What the backward pass recomputes is written by an op that reads the same input anyway.
 *
 * An activation or normalisation whose result was not stored is recomputed for the weight gradient of the next layer.
 * A little later its own backward op reads the same x. So the weight gradient moves behind that op, which writes the
 * result on the side: one reading of x less. */
#include "graph/graph.h"

typedef struct partner {
    op_id forward, backward;
    int x, recomputed; /* the backward op's operand that is x; its output for the result */
} partner;

static const partner partners[] = { { OP_BN_APPLY, OP_BN_BWD_REDUCE, 2, 4 },
                                    { OP_ACT, OP_ACT_BWD, 1, 1 },
                                    { OP_LAYERNORM, OP_LAYERNORM_BWD, 1, 3 } };

static const partner *partner_of(const node *n)
{
    if (n->op == OP_BN_APPLY && n->in[5] != NO_VALUE)
        return NULL; /* with a residual its backward op knows only a part */
    for (size_t i = 0; i < sizeof partners / sizeof *partners; i++)
        if (n->op == partners[i].forward) return &partners[i];
    return NULL;
}

static bool reads(const node *n, value_id v)
{
    for (int k = 0; k < OP_INPUTS && n->op != OP_COUNT; k++)
        if (n->in[k] == v && !op_lends_shape(n->op, k)) return true;
    return false;
}

static bool is_weight_gradient(const node *n) { return n->op == OP_CONV2D_DW || n->op == OP_LINEAR_DW; }

/* The backward op after node i that reads the same x; -1 when there is none, or when somebody but weight gradients
 * reads the result before it. */
static int find_backward(const graph *g, int i, const partner *p)
{
    value_id x = g->node[i].in[0], result = g->node[i].out[0];
    for (int b = i + 1; b < g->nodes; b++) {
        const node *n = &g->node[b];
        if (n->op == p->backward && n->in[p->x] == x && n->out[0] != NO_VALUE)
            return n->out[p->recomputed] == NO_VALUE ? b : -1;
        if (reads(n, result) && !is_weight_gradient(n)) return -1;
    }
    return -1;
}

/* Gradients of weights that read v, from i on, go behind node b, in their order. */
static void move_behind(graph *g, int i, int b, value_id v)
{
    for (int from = b - 1; from > i; from--)
        if (is_weight_gradient(&g->node[from]) && reads(&g->node[from], v)) graph_move(g, from, b--);
}

/* Layer norm's statistics would be recomputed, too: the first ones are small and are stored instead. */
static void use_first_statistics(graph *g, const node *recomputed, node *backward)
{
    for (int i = 0; i < g->forward_nodes; i++) {
        const node *first = &g->node[i];
        if (first->op != OP_LAYERNORM || first->in[1] != recomputed->in[1]) continue;
        for (int k = 1; k < 3; k++) backward->in[k + 1] = first->out[k];
        return;
    }
}

static void fuse_one(graph *g, int i, int b, const partner *p)
{
    node *recomputed = &g->node[i], *backward = &g->node[b];
    if (recomputed->op == OP_LAYERNORM) {
        use_first_statistics(g, recomputed, backward);
        backward->in[6] = recomputed->in[2];
    }
    backward->out[p->recomputed] = recomputed->out[0];
    move_behind(g, i, b, recomputed->out[0]);
    recomputed->op = OP_COUNT;
}

void graph_fuse_recompute(graph *g, int from)
{
    for (int i = from; i < g->nodes; i++) {
        const partner *p = partner_of(&g->node[i]);
        int b = p ? find_backward(g, i, p) : -1;
        if (b >= 0) fuse_one(g, i, b, p);
    }
}
