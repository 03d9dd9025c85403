/* Fuses a GEMM with the pass over its result that follows it (the last ops of nn/op_list.h), in the
 * finished list of forward and backward ops: nothing is differentiated afterwards. The rules of convolutions are here,
 * those of a transformer's linear layers in fuse_linear.c. */
#include "graph/fuse_rules.h"

node fuse_node(op_id op, op_attr attr, int segment)
{
    node n = { .op = op, .attr = attr, .segment = segment };
    for (int k = 0; k < OP_INPUTS; k++) n.in[k] = NO_VALUE;
    for (int k = 0; k < OP_OUTPUTS; k++) n.out[k] = NO_VALUE;
    return n;
}

/* How many operands read the content of v. */
int fuse_readers(const graph *g, value_id v)
{
    int n = 0;
    for (int i = 0; i < g->nodes * OP_INPUTS; i++) {
        const node *of = &g->node[i / OP_INPUTS];
        n += of->op != OP_COUNT && of->in[i % OP_INPUTS] == v && !op_lends_shape(of->op, i % OP_INPUTS);
    }
    return n;
}

/* The first node behind i that reads v as its first operand by this op; -1: none. */
static int reader(const graph *g, int i, op_id op, value_id v)
{
    for (int k = i + 1; k < g->nodes; k++)
        if (g->node[k].op == op && g->node[k].in[0] == v) return k;
    return -1;
}

/* The node of this op that makes v for one reader alone; -1: none. */
static int maker(const graph *g, op_id op, value_id v)
{
    int i = v == NO_VALUE ? -1 : graph_producer(g, v);
    return i >= 0 && g->node[i].op == op && g->node[i].out[0] == v && graph_uses(g, v) == 1 && !g->value[v].keep ? i
                                                                                                                 : -1;
}

static bool is_point(const graph *g, const node *conv)
{
    return g->value[conv->in[1]].t.dim[1] == 1 && conv->attr.stride == 1 && conv->attr.pad == 0 && !conv->attr.relu;
}

/* A 3 x 3 convolution of at most so many channels: 40 as in a ResNet's stem, 64 and 80 as in its first blocks, 320
 * as in RN50x4's third. w: its weight. */
enum { STEM = 40, FIRST_BLOCKS = 80, WIDE = 320 };
static bool is_small(const graph *g, const node *conv, value_id w, int channels)
{
    const tensor *t = &g->value[w].t;
    return t->dim[1] == 3 && t->dim[3] <= channels && conv->attr.pad == 1 && !conv->attr.relu;
}

static void fuse_stats(graph *g, int i)
{
    node conv = g->node[i];
    int at = reader(g, i, OP_BN_STATS, conv.out[0]);
    if (at < 0 || conv.in[2] != NO_VALUE || conv.in[3] != NO_VALUE) return;
    if (!is_point(g, &conv) && !is_small(g, &conv, conv.in[1], WIDE)) return;
    node stats = g->node[at], n = fuse_node(OP_CONV_STATS, stats.attr, conv.segment);
    n.attr.stride = conv.attr.stride, n.attr.pad = conv.attr.pad;
    n.in[0] = conv.in[0], n.in[1] = conv.in[1], n.in[2] = stats.in[1], n.in[3] = stats.in[2];
    n.out[0] = conv.out[0], n.out[1] = stats.out[0], n.out[2] = stats.out[1];
    g->node[i] = n;
    g->node[at].op = OP_COUNT;
}

/* The gradient of the same weight: both of its factors are operands anyway. */
static void fuse_first_dw(graph *g, int i)
{
    node *n = &g->node[i];
    for (int k = g->forward_nodes; k < g->nodes; k++) {
        node *dw = &g->node[k];
        if (dw->op != OP_CONV2D_DW || dw->in[0] != n->in[0] || dw->in[1] != n->in[8]) continue;
        n->attr.dw = true;
        n->out[4] = dw->out[0];
        dw->op = OP_COUNT;
        return;
    }
}

/* Whether a GEMM has tiles of positions for lines of this length, pairs of them. */
static bool has_tiles(int64_t line)
{
    enum { SHORTEST = 12, LONGEST = 32 };
    if (line % 2 == 0 && line <= LONGEST) return true;
    for (int64_t w = SHORTEST; w <= LONGEST; w += 2)
        if (line % w == 0) return true;
    return false;
}

/* The other gradient comes from a pool (the shortcut of a downsampling block): the reduction spreads it on its way. */
static void fuse_spread(graph *g, int i)
{
    node *n = &g->node[i];
    const tensor *x = &g->value[n->in[3]].t;
    int at = maker(g, OP_AVGPOOL2_BWD, n->in[2]);
    if (at < 0 || x->dim[1] % 2 || !has_tiles(x->dim[2]) || x->dtype != CLOOB_BF16) return;
    n->attr.spread = n->attr.alone = true;
    n->out[5] = n->in[2];
    n->in[2] = g->node[at].in[0];
    g->node[at].op = OP_COUNT;
}

/* The pool is done again, for the gradient of the shortcut's weight alone: of y, which the reduction reads anyway. That
 * gradient comes behind it then. */
static void fuse_pooled(graph *g, int i)
{
    node *n = &g->node[i];
    for (int k = g->forward_nodes; k < i && n->attr.spread; k++) {
        node *pool = &g->node[k];
        value_id pooled = pool->out[0];
        if (pool->op != OP_AVGPOOL2 || pool->in[0] != n->in[8] || graph_uses(g, pooled) != 1) continue;
        int at = k + 1;
        while (at < g->nodes && (g->node[at].op != OP_CONV2D_DW || g->node[at].in[1] != pooled)) at++;
        if (at == g->nodes) return;
        n->attr.pooled = true;
        n->out[6] = pooled;
        pool->op = OP_COUNT;
        node dw = g->node[at];
        for (; at < i; at++) g->node[at] = g->node[at + 1];
        if (at == i) g->node[i] = dw;
        return;
    }
}

/* The GEMM moves to the reduction's place, where the other gradient is ready. */
static void fuse_reduce(graph *g, int i)
{
    node reduce = g->node[i];
    if (reduce.in[1] == NO_VALUE || reduce.in[7] == NO_VALUE || !reduce.attr.relu || reduce.attr.pool ||
        reduce.out[4] != NO_VALUE || reduce.out[3] == NO_VALUE)
        return;
    for (int side = 0; side < 2; side++) {
        int at = maker(g, OP_CONV2D_DX, reduce.in[side]);
        if (at < 0 || !is_point(g, &g->node[at])) continue;
        node dx = g->node[at], n = fuse_node(OP_CONV_DX_REDUCE, reduce.attr, reduce.segment);
        n.attr.stride = dx.attr.stride;
        n.in[0] = dx.in[0], n.in[1] = dx.in[1], n.in[2] = reduce.in[1 - side];
        for (int k = 2; k < 8; k++) n.in[k + 1] = reduce.in[k];
        for (int k = 0; k < 4; k++) n.out[k] = reduce.out[k];
        g->node[i] = n;
        g->node[at].op = OP_COUNT;
        fuse_spread(g, i);
        fuse_first_dw(g, i);
        fuse_pooled(g, i);
        return;
    }
}

/* A residual that is nothing but another batch norm's apply (the shortcut of a downsampling block). */
static void fuse_shortcut(graph *g, int i)
{
    node *n = &g->node[i];
    int at = n->in[5] == NO_VALUE ? -1 : graph_producer(g, n->in[5]);
    if (at < 0 || g->node[at].op != OP_BN_APPLY || fuse_readers(g, n->in[5]) != 1 || g->value[n->in[5]].keep) return;
    node *shortcut = &g->node[at];
    if (shortcut->attr.relu || shortcut->attr.pool || shortcut->in[5] != NO_VALUE) return;
    n->op = OP_BN_APPLY_BOTH;
    for (int k = 0; k < 5; k++) n->in[5 + k] = shortcut->in[k];
    shortcut->op = OP_COUNT;
}

/* The pool of what was applied, for a downsampling block's shortcut, on the same side of the graph. */
static void fuse_applied_pool(graph *g, int i)
{
    node *n = &g->node[i];
    const tensor *y = &g->value[n->out[3]].t;
    if (n->attr.alone || n->in[5] == NO_VALUE || n->in[9] != NO_VALUE || y->dim[1] % 2 || y->dim[2] % 2) return;
    int end = i < g->forward_nodes ? g->forward_nodes : g->nodes;
    for (int k = i + 1; k < end; k++) {
        node *pool = &g->node[k];
        if (pool->op != OP_AVGPOOL2 || pool->in[0] != n->out[3]) continue;
        n->attr.pooled = true;
        n->out[4] = pool->out[0];
        pool->op = OP_COUNT;
        return;
    }
}

/* Batch norm's apply and the convolution that reads its result, at the apply's place: weights are ready anyway. */
static void fuse_apply(graph *g, int i)
{
    node conv = g->node[i];
    int at = graph_producer(g, conv.in[0]);
    if (at < 0 || (g->node[at].op != OP_BN_APPLY && g->node[at].op != OP_BN_APPLY_BOTH)) return;
    if (!g->node[at].attr.relu || g->node[at].attr.pool || !is_point(g, &conv)) return;
    node apply = g->node[at], n = fuse_node(OP_APPLY_CONV_STATS, conv.attr, apply.segment);
    value_id y = apply.out[0];
    n.attr.relu = true;
    n.attr.alone = fuse_readers(g, y) == 1 && !g->value[y].keep;
    for (int k = 0; k < 6; k++) n.in[k] = apply.in[k];
    for (int k = 6; k < 10; k++) n.in[k + 3] = apply.in[k];
    for (int k = 0; k < 3; k++) n.in[k + 6] = conv.in[k + 1], n.out[k] = conv.out[k];
    n.out[3] = y;
    g->node[at] = n;
    g->node[i].op = OP_COUNT;
    fuse_applied_pool(g, at);
}

/* Batch norm with relu and the 3 x 3 convolution of few channels that alone reads its result. */
static void fuse_stem_apply(graph *g, int i)
{
    node conv = g->node[i];
    int at = graph_producer(g, conv.in[0]);
    if (at < 0 || g->node[at].op != OP_BN_APPLY || !is_small(g, &conv, conv.in[1], FIRST_BLOCKS)) return;
    node apply = g->node[at], n = fuse_node(OP_APPLY_STEM_STATS, conv.attr, conv.segment);
    value_id y = apply.out[0];
    if (!apply.attr.relu || apply.attr.pool || apply.in[5] != NO_VALUE || fuse_readers(g, y) != 1 || g->value[y].keep)
        return;
    n.attr.relu = true;
    for (int k = 0; k < 5; k++) n.in[k] = apply.in[k];
    for (int k = 0; k < 3; k++) n.in[k + 5] = conv.in[k + 1], n.out[k] = conv.out[k];
    n.out[3] = y;
    g->node[i] = n;
    g->node[at].op = OP_COUNT;
}

/* What `reduce` would write again is applied before node i instead, by a pass of its own; nodes from i on move on. */
static void apply_before(graph *g, int i, int reduce)
{
    node *appended = graph_node(g, OP_BN_APPLY, g->node[reduce].attr);
    if (!appended) return;
    node apply = *appended;
    for (int k = 0; k < 5; k++) apply.in[k] = g->node[reduce].in[k + 2];
    apply.out[0] = g->node[reduce].out[4];
    apply.segment = g->node[i].segment;
    g->node[reduce].out[4] = NO_VALUE;
    for (int k = g->nodes - 1; k > i; k--) g->node[k] = g->node[k - 1];
    g->node[i] = apply;
}

/* Whether our GEMM keeps the sums of a weight's gradient in registers; where the activation before it was pooled, only
 * if that is worth making it by a pass of its own. */
static bool takes_dw(const tensor *w, bool pooled)
{
    bool narrow = (w->dim[0] == 256 && w->dim[3] == 64) || (w->dim[0] == 320 && w->dim[3] == 80),
         wide = w->dim[0] == 512 && w->dim[3] == 128;
    return w->dtype == CLOOB_BF16 && (narrow || (wide && !pooled));
}

/* The reduction of the batch norm before the convolution, of the gradient that the GEMM makes: there is nothing left
 * that it writes but its sums. */
static void fuse_second_reduce(node *n, node *reduce)
{
    if (reduce->in[0] != n->out[1] || reduce->in[1] != NO_VALUE || reduce->in[7] != NO_VALUE ||
        reduce->out[3] != NO_VALUE)
        return;
    n->attr.reduce = true;
    for (int k = 0; k < 3; k++) n->out[k + 4] = reduce->out[k];
    reduce->op = OP_COUNT;
}

/* The rest of what reads the backward apply's result, the weight's gradient, joins it. The activation that the weight
 * saw is applied again there, from the x of its batch norm, so that the reduction of that one need not write it; where
 * a pool has made it smaller than x, by a pass before. */
static void fuse_last_dw(graph *g, int i)
{
    node *n = &g->node[i];
    value_id applied = n->out[0];
    int at = reader(g, i, OP_CONV2D_DW, applied), from = at < 0 ? -1 : graph_producer(g, g->node[at].in[1]);
    if (from < 0 || g->value[applied].keep || fuse_readers(g, applied) != 1) return;
    node *dw = &g->node[at], *reduce = &g->node[from];
    value_id a2 = dw->in[1];
    bool pooled = reduce->attr.pool;
    if (reduce->op != OP_BN_BWD_REDUCE || reduce->out[4] != a2 || !reduce->attr.relu || g->value[a2].keep) return;
    if (!takes_dw(&g->value[n->in[7]].t, pooled) || (!pooled && fuse_readers(g, a2) != 1)) return;
    for (int k = 2; k < 7; k++)
        if (graph_producer(g, reduce->in[k]) > i) return;
    n->attr.alone = true;
    n->out[2] = dw->out[0];
    dw->op = OP_COUNT;
    if (pooled) {
        n->in[8] = a2;
        apply_before(g, i, from);
        return;
    }
    for (int k = 0; k < 5; k++) n->in[k + 8] = reduce->in[k + 2];
    n->out[3] = a2;
    reduce->out[4] = NO_VALUE;
    fuse_second_reduce(n, reduce);
}

/* Images in bytes and the convolution, or its weight gradient, that alone reads what image_input makes of them. */
static void fuse_image(graph *g, int i)
{
    node *conv = &g->node[i];
    bool dw = conv->op == OP_CONV2D_DW;
    value_id x = conv->in[dw ? 1 : 0];
    int at = maker(g, OP_IMAGE_INPUT, x);
    if (at < 0 || !is_small(g, conv, conv->in[dw ? 2 : 1], STEM)) return;
    node *image = &g->node[at];
    if (g->value[image->in[0]].t.dtype != CLOOB_U8) return;
    conv->op = dw ? OP_IMAGE_CONV_DW : OP_IMAGE_CONV_STATS;
    conv->in[dw ? 1 : 0] = image->in[0];
    conv->out[dw ? 1 : 3] = x;
    conv->attr.channels = image->attr.channels, conv->attr.dtype = image->attr.dtype;
    for (int k = 0; k < 3; k++) conv->attr.mean[k] = image->attr.mean[k], conv->attr.std[k] = image->attr.std[k];
    image->op = OP_COUNT;
}

/* Batch norm's backward apply and the gradient of the convolution before it, at the apply's place. */
static void fuse_bwd_apply(graph *g, int i)
{
    node apply = g->node[i];
    int at = reader(g, i, OP_CONV2D_DX, apply.out[0]);
    if (at < 0 || apply.attr.relu || apply.attr.pool || apply.in[7] != NO_VALUE || !is_point(g, &g->node[at])) return;
    node dx = g->node[at], n = fuse_node(OP_BN_BWD_CONV_DX, apply.attr, apply.segment);
    n.attr.stride = dx.attr.stride;
    for (int k = 0; k < 7; k++) n.in[k] = apply.in[k];
    n.in[7] = dx.in[1];
    n.out[0] = apply.out[0], n.out[1] = dx.out[0];
    g->node[i] = n;
    g->node[at].op = OP_COUNT;
    fuse_last_dw(g, i);
}

/* Batch norm's backward apply whose result the first convolution's weight gradient alone reads. */
static void fuse_image_bwd(graph *g, int i)
{
    node dw = g->node[i];
    int at = graph_producer(g, dw.in[0]);
    if (at < 0 || g->node[at].op != OP_BN_BWD_APPLY) return;
    node apply = g->node[at], n = fuse_node(OP_BN_BWD_IMAGE_DW, dw.attr, dw.segment);
    value_id y = apply.out[0];
    if (!apply.attr.relu || apply.attr.pool || apply.in[7] != NO_VALUE || fuse_readers(g, y) != 1 || g->value[y].keep)
        return;
    n.attr.relu = true;
    for (int k = 0; k < 7; k++) n.in[k] = apply.in[k];
    n.in[7] = dw.in[1], n.in[8] = dw.in[2];
    n.out[0] = dw.out[0], n.out[1] = y, n.out[2] = dw.out[1];
    g->node[i] = n;
    g->node[at].op = OP_COUNT;
}

/* What stands before a weight gradient. */
static void fuse_conv_dw(graph *g, int i)
{
    fuse_image(g, i);
    if (g->node[i].op == OP_IMAGE_CONV_DW) fuse_image_bwd(g, i);
}

/* What stands before a convolution with statistics. */
static void fuse_conv_stats(graph *g, int i)
{
    fuse_apply(g, i);
    if (g->node[i].op == OP_CONV_STATS) fuse_image(g, i);
    if (g->node[i].op == OP_CONV_STATS) fuse_stem_apply(g, i);
}

void graph_fuse_gemm(graph *g)
{
    for (int i = 0; i < g->nodes && g->status == CLOOB_OK; i++) {
        switch (g->node[i].op) {
        case OP_CONV2D: fuse_stats(g, i); break;
        case OP_BN_BWD_REDUCE: fuse_reduce(g, i); break;
        case OP_BN_APPLY: fuse_shortcut(g, i); break;
        case OP_LINEAR_DW: fuse_bias_sums(g, i); break;
        case OP_ACT: fuse_act_bias(g, i); break;
        case OP_LINEAR:
        case OP_LINEAR_DX: fuse_rounding(g, i); break;
        default: break;
        }
    }
    for (int i = 0; i < g->nodes && g->status == CLOOB_OK; i++) { /* of what the endings have left */
        switch (g->node[i].op) {
        case OP_CONV_STATS: fuse_conv_stats(g, i); break;
        case OP_BN_BWD_APPLY: fuse_bwd_apply(g, i); break;
        case OP_CONV2D_DW: fuse_conv_dw(g, i); break;
        case OP_LINEAR: fuse_linear_act(g, i); break;
        case OP_ACT_BWD: fuse_dx_act(g, i); break;
        default: break;
        }
    }
}
