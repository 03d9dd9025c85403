/* Groups for kernels that compute a GEMM and the passes over its result or its left factor in one (nn/group.h), in the
 * finished list of forward and backward ops: nothing is differentiated afterwards. A rule moves ops next to each other
 * and numbers them as members of one group; operands stay as they are. A rule leaves
 * node i as it is where it does not fit. */
#include "graph/graph.h"

#include <assert.h>

/* How many operands read the content of v, not its shape alone. */
static int fuse_readers(const graph *g, value_id v)
{
    int n = 0;
    for (int i = 0; i < g->nodes * OP_INPUTS; i++) {
        const node *of = &g->node[i / OP_INPUTS];
        n += of->op != OP_COUNT && of->in[i % OP_INPUTS] == v && !op_lends_shape(of->op, i % OP_INPUTS);
    }
    return n;
}

static int first_of(const graph *g, int i)
{
    while (i > 0 && g->node[i].group && g->node[i - 1].group == g->node[i].group) i--;
    return i;
}

static int last_of(const graph *g, int i)
{
    while (i + 1 < g->nodes && g->node[i].group && g->node[i + 1].group == g->node[i].group) i++;
    return i;
}

/* Whether two nodes are both of the forward or both of the backward pass. */
static bool same_pass(const graph *g, int i, int k) { return (i < g->forward_nodes) == (k < g->forward_nodes); }

/* Node `at`, or the group that it is in, becomes part of node host's group, moved right before or behind it. Returns
 * the index at which it begins then. */
static int join(graph *g, int host, int at, int behind)
{
    assert(same_pass(g, host, at));
    int from = first_of(g, at), count = last_of(g, at) - from + 1;
    if (!g->node[host].group) g->node[host].group = ++g->groups;
    for (int k = 0; k < count; k++) g->node[from + k].group = g->node[host].group;
    for (int k = 0; k < count; k++)
        if (from > host) graph_move(g, from + k, host + behind + k);
        else graph_move(g, from, host - 1 + behind);
    return from > host ? host + behind : host - count + behind;
}

static int fuse_before(graph *g, int host, int at) { return join(g, host, at, 0); }
static int fuse_behind(graph *g, int host, int at) { return join(g, host, at, 1); }

static bool is_free(const graph *g, int i, op_id op) { return i >= 0 && g->node[i].op == op && !g->node[i].group; }

/* The first node behind i, in no group, that reads v as its first operand by this op; -1: none. */
static int reader(const graph *g, int i, op_id op, value_id v)
{
    for (int k = i + 1; k < g->nodes; k++)
        if (is_free(g, k, op) && g->node[k].in[0] == v) return k;
    return -1;
}

/* The node of this op, in no group, that makes v for one reader alone; -1: none. */
static int maker(const graph *g, op_id op, value_id v)
{
    int i = v == NO_VALUE ? -1 : graph_producer(g, v);
    return is_free(g, i, op) && g->node[i].out[0] == v && graph_uses(g, v) == 1 && !g->value[v].keep ? i : -1;
}

/* Whether one op alone reads the result of node i, and the graph's user does not. */
static bool has_one_reader(const graph *g, int i)
{
    value_id v = g->node[i].out[0];
    return fuse_readers(g, v) == 1 && !g->value[v].keep;
}

static bool is_point(const graph *g, const node *conv)
{
    return g->value[conv->in[1]].t.dim[1] == 1 && conv->attr.stride == 1 && conv->attr.pad == 0 && !conv->attr.relu;
}

/* A 3 x 3 convolution of at most so many channels: 40 as in a ResNet's stem, 64 and 80 as in its first blocks. w: its
 * weight. */
enum { STEM = 40, FIRST_BLOCKS = 80 };
static bool is_small(const graph *g, const node *conv, value_id w, int channels)
{
    const tensor *t = &g->value[w].t;
    return t->dim[1] == 3 && t->dim[3] <= channels && conv->attr.pad == 1 && !conv->attr.relu;
}

static void fuse_stats(graph *g, int i)
{
    const node *conv = &g->node[i];
    int at = reader(g, i, OP_BN_STATS, conv->out[0]);
    if (at < 0 || conv->in[2] != NO_VALUE || conv->in[3] != NO_VALUE) return;
    if (is_point(g, conv) || is_small(g, conv, conv->in[1], FIRST_BLOCKS)) fuse_behind(g, i, at);
}

/* ---- conv2d_dx, then batch norm's backward reduction --------------------------------------------- */

/* The gradient of the weight that conv2d_dx reads: its factors are dy and the reduction's y. */
static int fuse_first_dw(graph *g, int first, value_id dy, value_id y)
{
    for (int k = g->forward_nodes; k < g->nodes; k++)
        if (is_free(g, k, OP_CONV2D_DW) && g->node[k].in[0] == dy && g->node[k].in[1] == y)
            return fuse_before(g, first, k);
    return first;
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

/* The other gradient comes from a pool (the shortcut of a downsampling block): the backward pass of the pool. */
static int spread_of(const graph *g, value_id other)
{
    int at = maker(g, OP_AVGPOOL2_BWD, other);
    const tensor *x = &g->value[other].t;
    return at < 0 || x->dim[1] % 2 || !has_tiles(x->dim[2]) || x->dtype != CLOOB_BF16 ? -1 : at;
}

/* The pool of y is recomputed for the gradient of the shortcut's weight alone. That gradient moves behind the group. */
static void fuse_pooled(graph *g, int first, value_id y)
{
    for (int k = g->forward_nodes; k < first; k++) {
        value_id pooled = g->node[k].out[0];
        if (!is_free(g, k, OP_AVGPOOL2) || g->node[k].in[0] != y || graph_uses(g, pooled) != 1) continue;
        int at = k + 1;
        while (at < g->nodes && (!is_free(g, at, OP_CONV2D_DW) || g->node[at].in[1] != pooled)) at++;
        if (at == g->nodes) return;
        if (at < first) graph_move(g, at, last_of(g, first--));
        fuse_before(g, first, k);
        return;
    }
}

/* conv2d_dx moves to the reduction, where the other gradient is ready. */
static void fuse_reduce(graph *g, int i)
{
    node reduce = g->node[i];
    if (reduce.in[1] == NO_VALUE || reduce.in[7] == NO_VALUE || !reduce.attr.relu || reduce.attr.pool ||
        reduce.out[4] != NO_VALUE || reduce.out[3] == NO_VALUE)
        return;
    for (int side = 0; side < 2; side++) {
        int at = maker(g, OP_CONV2D_DX, reduce.in[side]);
        if (at < 0 || !is_point(g, &g->node[at])) continue;
        value_id dy = g->node[at].in[0];
        int first = fuse_before(g, i, at), spread = spread_of(g, reduce.in[1 - side]);
        if (spread >= 0) first = fuse_before(g, first, spread);
        first = fuse_first_dw(g, first, dy, reduce.in[7]);
        if (spread >= 0) fuse_pooled(g, first, reduce.in[7]);
        return;
    }
}

/* ---- batch norm's apply, then a convolution with statistics -------------------------------------- */

/* A residual that is nothing but another batch norm's apply (the shortcut of a downsampling block). */
static void fuse_shortcut(graph *g, int i)
{
    value_id residual = g->node[i].in[5];
    int at = residual == NO_VALUE ? -1 : graph_producer(g, residual);
    if (!is_free(g, at, OP_BN_APPLY) || !has_one_reader(g, at)) return;
    const node *shortcut = &g->node[at];
    if (!shortcut->attr.relu && !shortcut->attr.pool && shortcut->in[5] == NO_VALUE) fuse_before(g, i, at);
}

/* Batch norm's apply and the 1 x 1 convolution that reads its result, at the apply's place: weights are ready
 * anyway. */
static bool fuse_apply(graph *g, int i)
{
    int at = graph_producer(g, g->node[i].in[0]);
    if (at < 0 || g->node[at].op != OP_BN_APPLY || last_of(g, at) != at || !same_pass(g, at, i)) return false;
    if (!g->node[at].attr.relu || g->node[at].attr.pool || !is_point(g, &g->node[i])) return false;
    fuse_behind(g, at, i);
    return true;
}

/* Images in bytes and the convolution, or its weight gradient, that alone reads what image_input makes of them. */
static bool fuse_image(graph *g, int i)
{
    const node *conv = &g->node[i];
    bool dw = conv->op == OP_CONV2D_DW;
    int at = maker(g, OP_IMAGE_INPUT, conv->in[dw ? 1 : 0]);
    if (at < 0 || !is_small(g, conv, conv->in[dw ? 2 : 1], STEM)) return false;
    if (g->value[g->node[at].in[0]].t.dtype != CLOOB_U8) return false;
    fuse_before(g, i, at);
    return true;
}

/* Batch norm with relu and the 3 x 3 convolution of few channels that alone reads its result. */
static void fuse_stem_apply(graph *g, int i)
{
    int at = graph_producer(g, g->node[i].in[0]);
    if (!is_free(g, at, OP_BN_APPLY) || !is_small(g, &g->node[i], g->node[i].in[1], FIRST_BLOCKS)) return;
    const node *apply = &g->node[at];
    if (apply->attr.relu && !apply->attr.pool && apply->in[5] == NO_VALUE && has_one_reader(g, at))
        fuse_before(g, i, at);
}

/* What comes before a convolution with statistics, a group of two so far. */
static void fuse_conv_stats(graph *g, int i)
{
    if (g->node[i].group && first_of(g, i) == i && !fuse_apply(g, i) && !fuse_image(g, i)) fuse_stem_apply(g, i);
}

/* ---- batch norm's backward apply, then the gradients of a convolution ---------------------------- */

/* Whether cloob's GEMM keeps the sums of a weight's gradient in registers; where the activation before it was pooled,
 * only if that saves more than the separate pass that computes it costs. */
static bool takes_dw(const tensor *w, bool pooled)
{
    bool narrow = (w->dim[0] == 256 && w->dim[3] == 64) || (w->dim[0] == 320 && w->dim[3] == 80),
         wide = w->dim[0] == 512 && w->dim[3] == 128;
    return w->dtype == CLOOB_BF16 && (narrow || (wide && !pooled));
}

/* What node `reduce` would recompute becomes the result of a bn_apply, appended to the list. */
static bool apply_apart(graph *g, int reduce)
{
    node *apply = graph_node(g, OP_BN_APPLY, g->node[reduce].attr);
    if (!apply) return false;
    for (int k = 0; k < 5; k++) apply->in[k] = g->node[reduce].in[k + 2];
    apply->out[0] = g->node[reduce].out[4];
    apply->segment = g->node[reduce].segment;
    g->node[reduce].out[4] = NO_VALUE;
    return true;
}

/* The weight's gradient, the only other reader of the backward apply's result (node i, conv2d_dx behind it). The
 * activation that the weight saw is recomputed in the group, from the x of its batch norm, so that the reduction of
 * that batch norm need not write it; where a pool has made it smaller than x, by a pass before the group. The reduction
 * becomes a member, too, where it reads the gradient that conv2d_dx makes and writes nothing else but its sums. */
static void fuse_last_dw(graph *g, int i)
{
    value_id applied = g->node[i].out[0];
    int at = reader(g, i, OP_CONV2D_DW, applied), from = at < 0 ? -1 : graph_producer(g, g->node[at].in[1]);
    if (!is_free(g, from, OP_BN_BWD_REDUCE) || g->value[applied].keep || fuse_readers(g, applied) != 2) return;
    node dw = g->node[at], reduce = g->node[from];
    value_id a2 = dw.in[1];
    bool pooled = reduce.attr.pool;
    if (reduce.out[4] != a2 || !reduce.attr.relu || g->value[a2].keep) return;
    if (!takes_dw(&g->value[dw.in[2]].t, pooled) || (!pooled && fuse_readers(g, a2) != 1)) return;
    for (int k = 2; k < 7; k++)
        if (graph_producer(g, reduce.in[k]) > i) return;
    int host = i + 1;
    bool sums_alone = reduce.in[0] == g->node[host].out[0] && reduce.in[1] == NO_VALUE && reduce.in[7] == NO_VALUE &&
                      reduce.out[3] == NO_VALUE;
    if (!apply_apart(g, from)) return;
    if (pooled) graph_move(g, g->nodes - 1, i), host++;
    else host = fuse_behind(g, host, g->nodes - 1);
    if (!pooled && sums_alone) host = fuse_behind(g, host, graph_producer(g, reduce.out[2]));
    fuse_behind(g, host, graph_producer(g, dw.out[0]));
}

/* Batch norm's backward apply and the gradient of the convolution before it, at the apply's place. */
static void fuse_bwd_apply(graph *g, int i)
{
    const node *apply = &g->node[i];
    int at = reader(g, i, OP_CONV2D_DX, apply->out[0]);
    if (at < 0 || apply->attr.relu || apply->attr.pool || apply->in[7] != NO_VALUE || !is_point(g, &g->node[at]))
        return;
    fuse_behind(g, i, at);
    fuse_last_dw(g, i);
}

/* ---- linear layers: bias gradients with dy, biases with the activation ---------------- */

/* The bias gradient of a linear layer: sums over the rows of dy, taken by the op that writes dy. */
static void fuse_bias_sums(graph *g, int i)
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
static void fuse_act_bias(graph *g, int i)
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

/* ---- after these, the MLP's GEMMs with the activation between them ------------------------------- */

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
    return !n->attr.transposed && n->attr.fp8 == OP_FP8_NEVER && g->value[n->in[1]].t.dtype == CLOOB_BF16 &&
           columns % 256 == 0 && depth % 64 == 0;
}

static void fuse_linear_act(graph *g, int i)
{
    const node *linear = &g->node[i];
    value_id pre = linear->out[0];
    const tensor *w = &g->value[linear->in[1]].t;
    int at = act_of(g, i, pre);
    if (at < 0 || linear->in[2] != NO_VALUE || linear->in[3] != NO_VALUE || g->value[pre].keep ||
        !is_plain(g, linear, w->dim[0], w->dim[1]))
        return;
    fuse_behind(g, i, at);
}

static void fuse_dx_act(graph *g, int i)
{
    const node *act = &g->node[i];
    value_id dy = act->in[0];
    int at = g->value[dy].keep ? -1 : graph_producer(g, dy);
    if (at < 0 || g->node[at].op != OP_LINEAR_DX || fuse_readers(g, dy) != 1 || act->out[0] == NO_VALUE) return;
    const node *dx = &g->node[at];
    const tensor *w = &g->value[dx->in[1]].t;
    /* at the activation: behind the weight's gradient, which may be the last to read the activation */
    if (is_plain(g, dx, w->dim[1], w->dim[0])) fuse_before(g, i, at);
}

void graph_fuse_gemm(graph *g)
{
    for (int i = 0; i < g->nodes && g->status == CLOOB_OK; i++) {
        if (g->node[i].group) continue;
        switch (g->node[i].op) {
        case OP_CONV2D: fuse_stats(g, i); break;
        case OP_BN_BWD_REDUCE: fuse_reduce(g, i); break;
        case OP_BN_APPLY: fuse_shortcut(g, i); break;
        case OP_LINEAR_DW: fuse_bias_sums(g, i); break;
        case OP_ACT: fuse_act_bias(g, i); break;
        default: break;
        }
    }
    for (int i = 0; i < g->nodes && g->status == CLOOB_OK; i++) { /* of the nodes that the first pass left */
        if (g->node[i].op == OP_CONV2D) fuse_conv_stats(g, i);
        if (g->node[i].group) continue;
        switch (g->node[i].op) {
        case OP_BN_BWD_APPLY: fuse_bwd_apply(g, i); break;
        case OP_CONV2D_DW: fuse_image(g, i); break;
        case OP_LINEAR: fuse_linear_act(g, i); break;
        case OP_ACT_BWD: fuse_dx_act(g, i); break;
        default: break;
        }
    }
}
