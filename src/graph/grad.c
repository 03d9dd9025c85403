/* Differentiation: from the last node to the first, the backward rule of each appends its steps. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

typedef struct walk {
    graph *g;
    graph_grad_options o;
    value_id *grad;  /* by value: its gradient so far */
    value_id *stand; /* by value: the copy of it that the backward pass reads (recomputed), or itself */
    bool *requires;  /* by value: it depends on a trainable parameter */
    int forward_nodes;
} walk;

static bool alloc_tables(walk *w)
{
    size_t n = (size_t)w->g->values + 1;
    w->grad = malloc(n * sizeof *w->grad);
    w->stand = malloc(n * sizeof *w->stand);
    w->requires = calloc(n, sizeof *w->requires);
    if (!w->grad || !w->stand || !w->requires) {
        w->g->status = ctx_no_memory(w->g->ctx, n * 9, "a graph");
        return false;
    }
    for (size_t i = 0; i < n; i++) w->grad[i] = NO_VALUE, w->stand[i] = (value_id)i;
    return true;
}

static void find_required(walk *w)
{
    graph *g = w->g;
    for (int v = 0; v < g->values; v++) w->requires[v] = g->value[v].trainable;
    for (int i = 0; i < g->nodes; i++) {
        node *n = &g->node[i];
        if (n->op == OP_COUNT || !op_table[n->op].grad || n->out[0] == NO_VALUE) continue;
        for (int k = 0; k < OP_INPUTS; k++)
            if (n->in[k] != NO_VALUE && w->requires[n->in[k]]) w->requires[n->out[0]] = true;
    }
}

/* ---- recomputation ------------------------------------------------------------------------------- */

/* Appends a copy of node i that writes new values; the backward pass reads those from now on. */
static void redo_node(walk *w, int i)
{
    graph *g = w->g;
    node from = g->node[i], *n = graph_node(g, from.op, from.attr);
    if (!n) return;
    n->segment = from.segment;
    n->attr.keep_stats = true;
    for (int k = 0; k < OP_INPUTS; k++) n->in[k] = from.in[k] == NO_VALUE ? NO_VALUE : w->stand[from.in[k]];
    node copy = *n;
    g->status = graph_shape(g, &copy);
    g->node[g->nodes - 1] = copy;
    for (int k = 0; k < OP_OUTPUTS && g->status == CLOOB_OK; k++)
        if (from.out[k] != NO_VALUE) w->stand[from.out[k]] = copy.out[k];
}

static bool leaves_segment(const graph *g, value_id v, int segment, int forward_nodes)
{
    if (g->value[v].keep) return true;
    for (int i = 0; i < forward_nodes; i++)
        for (int k = 0; k < OP_INPUTS && g->node[i].op != OP_COUNT; k++)
            if (g->node[i].in[k] == v && g->node[i].segment != segment) return true;
    return false;
}

static bool is_redone(const walk *w, int segment)
{
    int share = w->o.checkpoint_share > 0 ? w->o.checkpoint_share : 100;
    return w->o.checkpoint && 100 * segment < share * (w->g->segment + 1);
}

/* What other segments read is stored anyway; everything else of the segment is recomputed. */
static void redo_segment(walk *w, int segment)
{
    graph *g = w->g;
    for (int i = 0; i < w->forward_nodes && g->status == CLOOB_OK; i++) {
        if (g->node[i].segment != segment || g->node[i].op == OP_COUNT) continue;
        value_id first = g->node[i].out[0];
        if (!leaves_segment(g, first, segment, w->forward_nodes)) redo_node(w, i);
    }
}

/* One pass over memory and no sums worth keeping: cheaper to recompute than to hold until the backward pass. */
static bool is_cheap(const node *n)
{
    switch (n->op) {
    case OP_ACT:
    case OP_LAYERNORM:
    case OP_RELU:
    case OP_AVGPOOL2:
    case OP_IMAGE_INPUT:
    case OP_MEAN_TOKENS:
    case OP_CLASS_TOKENS: return true;
    case OP_BN_APPLY: return n->in[5] == NO_VALUE; /* with a residual it would need that, too */
    default: return false;
    }
}

/* The value the backward pass reads in place of forward value v. */
static value_id saved(walk *w, value_id v)
{
    if (v == NO_VALUE || w->stand[v] != v || !w->o.recompute) return v == NO_VALUE ? v : w->stand[v];
    int i = graph_producer(w->g, v);
    if (i >= 0 && i < w->forward_nodes && w->g->node[i].out[0] == v && is_cheap(&w->g->node[i]) && !w->g->value[v].keep)
        redo_node(w, i);
    return w->stand[v];
}

/* ---- one node ------------------------------------------------------------------------------------ */

/* Of a parameter that is read several times, the sum of the parts is the gradient; the parts become temporary. */
static void sum_becomes_gradient(graph *g, value_id part, value_id d, value_id sum)
{
    if (sum == NO_VALUE || g->value[d].kind != VALUE_GRAD) return;
    g->value[sum].kind = VALUE_GRAD;
    g->value[sum].param = g->value[d].param;
    g->value[sum].offset = g->value[d].offset;
    g->value[part].kind = g->value[d].kind = VALUE_TEMP;
}

static void contribute(walk *w, value_id v, value_id d)
{
    value_id part = w->grad[v];
    if (part == NO_VALUE) {
        w->grad[v] = d;
        return;
    }
    w->grad[v] = graph_op(w->g, OP_ADD, (op_attr){ 0 }, 2, (value_id[]){ part, d });
    sum_becomes_gradient(w->g, part, d, w->grad[v]);
}

/* A parameter's gradient is written directly to its buffer. */
static value_id grad_place(walk *w, value_id v)
{
    value of = w->g->value[v];
    if (of.kind != VALUE_PARAM) return NO_VALUE;
    of.t.dtype = CLOOB_F32;
    value_id d = graph_value(w->g, of.t, VALUE_GRAD);
    if (d == NO_VALUE) return d;
    w->g->value[d].param = of.param;
    w->g->value[d].offset = of.offset;
    return d;
}

static value_id operand(walk *w, const node *of, const value_id *temporary, op_ref r)
{
    int k = r % REF_STEP;
    if (r == REF_NONE) return NO_VALUE;
    switch (r - k) {
    case REF_IN: return saved(w, of->in[k]);
    case REF_OUT: return saved(w, of->out[k]);
    case REF_G: return w->grad[of->out[k]];
    default: return temporary[k];
    }
}

/* The forward value has the shape, also where the backward pass reads another value. */
static value_id shape_of(const node *of, op_ref r)
{
    if (r == REF_NONE) return NO_VALUE;
    return r < REF_OUT ? of->in[r] : of->out[r - REF_OUT];
}

/* Outputs that nothing reads stay absent; a step without outputs is skipped. */
static bool wants(const walk *w, const node *of, op_ref r)
{
    if (r == REF_NONE) return false;
    return r >= REF_T || (of->in[r - REF_D] != NO_VALUE && w->requires[of->in[r - REF_D]]);
}

static void alias_step(walk *w, const node *of, const value_id *temporary, const op_step *s)
{
    if (wants(w, of, s->out[0])) contribute(w, of->in[s->out[0] - REF_D], operand(w, of, temporary, s->in[0]));
}

static void take_step(walk *w, const node *of, value_id *temporary, const op_step *s)
{
    graph *g = w->g;
    bool any = false;
    value_id in[OP_INPUTS], place[OP_OUTPUTS];
    for (int k = 0; k < OP_OUTPUTS; k++) any = any || wants(w, of, s->out[k]);
    if (!any) return;
    for (int k = 0; k < OP_INPUTS; k++)
        in[k] = op_lends_shape(s->op, k) ? shape_of(of, s->in[k])
                                         : operand(w, of, temporary, s->in[k]); /* may append recomputed nodes */
    for (int k = 0; k < OP_OUTPUTS; k++)
        place[k] = wants(w, of, s->out[k]) && s->out[k] < REF_T ? grad_place(w, of->in[s->out[k] - REF_D]) : NO_VALUE;
    node *n = graph_node(g, s->op, s->attr);
    if (!n) return;
    n->segment = of->segment;
    memcpy(n->in, in, sizeof in);
    memcpy(n->out, place, sizeof place);
    node copy = *n;
    if ((g->status = graph_shape(g, &copy)) != CLOOB_OK) return;
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (!wants(w, of, s->out[k])) copy.out[k] = NO_VALUE;
    g->node[g->nodes - 1] = copy;
    for (int k = 0; k < OP_OUTPUTS; k++) {
        if (!wants(w, of, s->out[k])) continue;
        if (s->out[k] >= REF_T) temporary[s->out[k] - REF_T] = copy.out[k];
        else contribute(w, of->in[s->out[k] - REF_D], copy.out[k]);
    }
}

static void backward_of(walk *w, int i)
{
    node of = w->g->node[i];
    op_step step[OP_STEPS];
    value_id temporary[8];
    unsigned inputs = 0;
    if (of.op == OP_COUNT || !op_table[of.op].grad || w->grad[of.out[0]] == NO_VALUE) return;
    for (int k = 0; k < OP_INPUTS; k++) inputs |= of.in[k] != NO_VALUE ? 1u << k : 0;
    for (int k = 0; k < 8; k++) temporary[k] = NO_VALUE;
    int steps = op_table[of.op].grad(&of.attr, inputs, step);
    for (int s = 0; s < steps && w->g->status == CLOOB_OK; s++) {
        if (step[s].op == OP_COUNT) alias_step(w, &of, temporary, &step[s]);
        else take_step(w, &of, temporary, &step[s]);
    }
}

/* ---- sums of gradients --------------------------------------------------------------------------- */

/* Every reader of v is a batch norm's backward pass, which can add two gradients while it reads them. */
static bool only_batchnorm_reads(const graph *g, value_id v)
{
    for (int i = 0; i < g->nodes; i++) {
        const node *n = &g->node[i];
        for (int k = 0; k < OP_INPUTS && n->op != OP_COUNT; k++) {
            if (n->in[k] != v) continue;
            int second = n->op == OP_BN_BWD_REDUCE ? 1 : n->op == OP_BN_BWD_APPLY ? 7 : 0;
            if (k != 0 || !second || n->in[second] != NO_VALUE) return false;
        }
    }
    return !g->value[v].keep && g->value[v].kind != VALUE_GRAD;
}

static void into_batchnorm(graph *g, node *add)
{
    for (int i = 0; i < g->nodes; i++) {
        node *n = &g->node[i];
        if (n->op == OP_COUNT || n->in[0] != add->out[0]) continue;
        n->in[0] = add->in[0];
        n->in[n->op == OP_BN_BWD_REDUCE ? 1 : 7] = add->in[1];
    }
    add->op = OP_COUNT;
}

/* add(layernorm_bwd or take_rows_bwd, other): they can start from the other gradient. Moved to the add's place. */
static void into_extra(graph *g, node *add)
{
    for (int side = 0; side < 2; side++) {
        int i = graph_producer(g, add->in[side]);
        if (i < 0 || g->node[i].out[0] != add->in[side] || graph_uses(g, add->in[side]) != 1) continue;
        node *host = &g->node[i];
        int slot = host->op == OP_LAYERNORM_BWD ? 5 : host->op == OP_TAKE_ROWS_BWD ? 3 : -1;
        if (slot < 0 || host->in[slot] != NO_VALUE) continue;
        value_id other = add->in[1 - side], out = add->out[0];
        *add = *host;
        add->in[slot] = other;
        add->out[0] = out;
        host->op = OP_COUNT;
        return;
    }
}

static void fuse_sums(graph *g, int from)
{
    for (int i = from; i < g->nodes; i++) {
        node *n = &g->node[i];
        if (n->op != OP_ADD) continue;
        if (only_batchnorm_reads(g, n->out[0])) into_batchnorm(g, n);
        else into_extra(g, n);
    }
}

/* ---- recomputed results ------------------------------------------------------------------------------ */

/* An activation or normalisation whose result was not stored is recomputed for the weight gradient of the next layer. A
 * little later its own backward op reads the same x. So the weight gradient moves behind that op, which writes the
 * result, too: x is read once less. */

typedef struct partner {
    op_id forward, backward;
    int x, recomputed; /* the backward op's operand that is x; its output for the result */
} partner;

static const partner partners[] = { { OP_BN_APPLY, OP_BN_BWD_REDUCE, 2, 4 },
                                    { OP_ACT, OP_ACT_BWD, 1, 1 },
                                    { OP_LAYERNORM, OP_LAYERNORM_BWD, 1, 3 } };

static const partner *partner_of(const node *n)
{
    if (n->op == OP_BN_APPLY && n->in[5] != NO_VALUE) return NULL; /* its backward op does not read the residual */
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

/* The backward op after node i that reads the same x; -1 when there is none, or when an op other than a weight gradient
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

static void fuse_recompute(graph *g, int from)
{
    for (int i = from; i < g->nodes; i++) {
        const partner *p = partner_of(&g->node[i]);
        int b = p ? find_backward(g, i, p) : -1;
        if (b >= 0) fuse_one(g, i, b, p);
    }
}

void graph_differentiate(graph *g, value_id output, const graph_grad_options *o)
{
    walk w = { .g = g, .forward_nodes = g->nodes };
    if (o) w.o = *o;
    if (g->status != CLOOB_OK) return;
    value_id seed = graph_input(g, g->value[output].t, "doutput");
    g->forward_nodes = g->nodes;
    if (g->status == CLOOB_OK && alloc_tables(&w)) {
        int redone = -1;
        find_required(&w);
        w.grad[output] = seed;
        for (int i = w.forward_nodes - 1; i >= 0 && g->status == CLOOB_OK; i--) {
            int segment = g->node[i].segment;
            if (g->node[i].op != OP_COUNT && segment != redone && is_redone(&w, segment))
                redo_segment(&w, redone = segment);
            backward_of(&w, i);
        }
        if (g->status == CLOOB_OK) fuse_sums(g, w.forward_nodes);
        if (g->status == CLOOB_OK) fuse_recompute(g, w.forward_nodes);
        if (g->status == CLOOB_OK) graph_remove_dead(g, w.forward_nodes);
    }
    free(w.grad);
    free(w.stand);
    free(w.requires);
}
