/* Fusion: an op whose only reader can be folded into it disappears into that reader's place in the list, where all of
 * its operands are known to be ready. */
#include <string.h>

#include "graph/graph.h"

/* The node that makes v, if it is of this kind and v has no other reader. */
static node *sole(graph *g, value_id v, op_id op)
{
    int i = v == NO_VALUE ? -1 : graph_producer(g, v);
    if (i < 0 || g->node[i].op != op || g->node[i].out[0] != v || graph_uses(g, v) != 1) return NULL;
    return &g->node[i];
}

/* Puts `host` in the place of `at`, writing what `at` wrote. */
static void absorb(node *host, node *at)
{
    value_id out = at->out[0];
    int segment = at->segment;
    *at = *host;
    at->out[0] = out;
    at->segment = segment;
    host->op = OP_COUNT;
}

/* add(host(...), r): operand `slot` of the host takes r. Either side of the add may be the host. */
static bool fold_add(graph *g, node *add, op_id op, int slot)
{
    for (int side = 0; side < 2; side++) {
        node *host = sole(g, add->in[side], op);
        value_id other = add->in[1 - side];
        if (!host || host->in[slot] != NO_VALUE || host->attr.relu || host->attr.pool || add->in[0] == add->in[1])
            continue;
        absorb(host, add);
        add->in[slot] = other;
        return true;
    }
    return false;
}

static void fold_relu(graph *g, node *relu)
{
    node *host = sole(g, relu->in[0], OP_BN_APPLY);
    if (!host || host->attr.relu || host->attr.pool) return;
    absorb(host, relu);
    relu->attr.relu = true;
}

static void fold_pool(graph *g, node *pool)
{
    node *host = sole(g, pool->in[0], OP_BN_APPLY);
    if (g->plain_pools || !host || host->attr.pool || host->in[5] != NO_VALUE) return;
    absorb(host, pool);
    pool->attr.pool = true;
}

void graph_fuse(graph *g)
{
    if (g->status != CLOOB_OK) return;
    for (int i = 0; i < g->nodes; i++) {
        node *n = &g->node[i];
        if (n->op == OP_ADD && !fold_add(g, n, OP_BN_APPLY, 5)) fold_add(g, n, OP_LINEAR, 3);
        if (n->op == OP_RELU) fold_relu(g, n);
        if (n->op == OP_AVGPOOL2) fold_pool(g, n);
    }
}

/* ---- inference ----------------------------------------------------------------------------------- */

/* conv -> bn_apply(mean, rstd of bn_running): the convolution gets scaled weights and a bias. */
static void fold_conv(graph *g, int at)
{
    node apply = g->node[at];
    int stats = graph_producer(g, apply.in[1]);
    node *conv = sole(g, apply.in[0], OP_CONV2D);
    if (!conv || stats < 0 || g->node[stats].op != OP_BN_RUNNING || apply.attr.pool) return;
    node running = g->node[stats], folded = *conv;
    value_id w = folded.in[1];
    conv->op = OP_FOLD_BN; /* in the convolution's place: it runs before whatever reads its result */
    conv->attr = (op_attr){ .eps = running.attr.eps };
    for (int k = 0; k < OP_INPUTS; k++) conv->in[k] = NO_VALUE;
    for (int k = 0; k < OP_OUTPUTS; k++) conv->out[k] = NO_VALUE;
    value_id operand[] = { w, apply.in[3], apply.in[4], running.in[0], running.in[1] };
    memcpy(conv->in, operand, sizeof operand);
    node fold = *conv; /* graph_shape appends values, not nodes, but keep no pointer across it */
    g->status = graph_shape(g, &fold);
    *conv = fold;
    folded.in[1] = fold.out[0];
    folded.in[2] = fold.out[1];
    folded.in[3] = apply.in[5];
    folded.attr.relu = apply.attr.relu;
    folded.out[0] = apply.out[0];
    folded.segment = apply.segment;
    g->node[at] = folded;
}

void graph_fold_batchnorm(graph *g)
{
    for (int i = 0; i < g->nodes && g->status == CLOOB_OK; i++)
        if (g->node[i].op == OP_BN_APPLY) fold_conv(g, i);
    if (g->status == CLOOB_OK) graph_remove_dead(g, 0);
}
