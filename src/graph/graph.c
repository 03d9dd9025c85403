/* Building a graph: values, nodes, and shapes as they are appended. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"

void graph_init(cloob_ctx *ctx, graph *g) { *g = (graph){ .ctx = ctx, .status = CLOOB_OK }; }

void graph_release(graph *g)
{
    free(g->value);
    free(g->node);
    *g = (graph){ .ctx = g->ctx };
}

cloob_status graph_status(const graph *g) { return g->status; }

/* Grows the array by one element; false when out of memory. */
static bool grow(graph *g, void *data, int count, int64_t *cap, size_t size)
{
    if (heap_grow(data, count, cap, size)) return true;
    g->status = ctx_no_memory(g->ctx, (size_t)count * size, "a graph");
    return false;
}

value_id graph_value(graph *g, tensor t, value_kind kind)
{
    if (g->status != CLOOB_OK || !grow(g, &g->value, g->values, &g->value_cap, sizeof *g->value)) return NO_VALUE;
    t.data = NULL;
    g->value[g->values] = (value){ .t = t, .kind = kind, .param = -1 };
    return g->values++;
}

value_id graph_input(graph *g, tensor t, const char *name)
{
    value_id v = graph_value(g, t, VALUE_INPUT);
    if (v != NO_VALUE) g->value[v].name = name;
    return v;
}

value_id graph_param(graph *g, int param, tensor t, int64_t offset, bool trainable)
{
    value_id v = graph_value(g, t, VALUE_PARAM);
    if (v == NO_VALUE) return v;
    g->value[v].param = param;
    g->value[v].offset = offset;
    g->value[v].trainable = trainable;
    return v;
}

value_id graph_stat(graph *g, int param, tensor t)
{
    value_id v = graph_value(g, t, VALUE_STAT);
    if (v != NO_VALUE) g->value[v].param = param;
    return v;
}

node *graph_node(graph *g, op_id op, op_attr attr)
{
    if (g->status != CLOOB_OK || !grow(g, &g->node, g->nodes, &g->node_cap, sizeof *g->node)) return NULL;
    node *n = &g->node[g->nodes++];
    *n = (node){ .op = op, .attr = attr, .segment = g->segment };
    for (int k = 0; k < OP_INPUTS; k++) n->in[k] = NO_VALUE;
    for (int k = 0; k < OP_OUTPUTS; k++) n->out[k] = NO_VALUE;
    return n;
}

/* Outputs that are already set keep their value, which must then have the right shape (a parameter's gradient). */
cloob_status graph_shape(graph *g, node *n)
{
    op_args a = { .attr = n->attr };
    for (int k = 0; k < OP_INPUTS; k++) {
        if (n->in[k] == NO_VALUE) a.in[k].ndim = -1;
        else a.in[k] = g->value[n->in[k]].t;
    }
    for (int k = 0; k < OP_OUTPUTS; k++) a.out[k].ndim = -1;
    CLOOB_TRY(op_table[n->op].shape(g->ctx, &a));
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (a.out[k].ndim >= 0 && n->out[k] == NO_VALUE) n->out[k] = graph_value(g, a.out[k], VALUE_TEMP);
    return g->status;
}

value_id graph_op(graph *g, op_id op, op_attr attr, int n_in, const value_id *in)
{
    node *n = graph_node(g, op, attr);
    if (!n) return NO_VALUE;
    for (int k = 0; k < n_in; k++) n->in[k] = in[k];
    g->status = graph_shape(g, n);
    return g->status == CLOOB_OK ? n->out[0] : NO_VALUE;
}

int graph_producer(const graph *g, value_id v)
{
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < OP_OUTPUTS && g->node[i].op != OP_COUNT; k++)
            if (g->node[i].out[k] == v) return i;
    return -1;
}

value_id graph_output(const graph *g, value_id first, int k)
{
    int i = first == NO_VALUE ? -1 : graph_producer(g, first);
    return i < 0 ? NO_VALUE : g->node[i].out[k];
}

int graph_uses(const graph *g, value_id v)
{
    int uses = g->value[v].keep;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < OP_INPUTS && g->node[i].op != OP_COUNT; k++) uses += g->node[i].in[k] == v;
    return uses;
}

void graph_keep(graph *g, value_id v, const char *name)
{
    if (v == NO_VALUE) return;
    g->value[v].keep = true;
    g->value[v].name = name;
}

value_id graph_find(const graph *g, const char *name)
{
    for (int v = 0; v < g->values; v++)
        if (g->value[v].name && strcmp(g->value[v].name, name) == 0) return v;
    return NO_VALUE;
}

void graph_segment(graph *g) { g->segment++; }

void graph_move(graph *g, int from, int to)
{
    node moved = g->node[from];
    for (; from < to; from++) g->node[from] = g->node[from + 1];
    for (; from > to; from--) g->node[from] = g->node[from - 1];
    g->node[to] = moved;
}

static bool wanted(const graph *g, value_id v, const bool *used)
{
    return v != NO_VALUE && (used[v] || g->value[v].keep || g->value[v].kind == VALUE_GRAD);
}

/* An op that updates statistics in place is kept even when nothing reads its outputs. */
static bool has_effect(const node *n) { return n->op == OP_BN_STATS && !n->attr.keep_stats; }

void graph_remove_dead(graph *g, int from)
{
    bool *used = calloc((size_t)g->values + 1, sizeof *used);
    if (!used) {
        g->status = ctx_no_memory(g->ctx, (size_t)g->values, "a graph");
        return;
    }
    for (int i = g->nodes - 1; i >= 0; i--) {
        node *n = &g->node[i];
        bool alive = i < from || has_effect(n);
        for (int k = 0; k < OP_OUTPUTS; k++) alive = alive || wanted(g, n->out[k], used);
        if (!alive) n->op = OP_COUNT;
        for (int k = 0; k < OP_INPUTS && n->op != OP_COUNT; k++)
            if (n->in[k] != NO_VALUE && !op_lends_shape(n->op, k)) used[n->in[k]] = true;
    }
    free(used);
}
