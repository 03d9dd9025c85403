/* Planning, preparing and running. */
#include "graph/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "graph/graph.h"

typedef struct call {
    op_id op;
    const op_kernel *kernel;
    op_args args;
    bool once;             /* depends on weights only: run once when they are frozen */
    int grads[OP_OUTPUTS]; /* parameters whose gradient this completes; -1 */
} call;

struct exec {
    op_env env;
    call *call;
    int calls, forward_calls;
    value *value; /* with device pointers */
    int values;
    int *lies;       /* by value: itself, or the value in whose place it lies */
    plan_item *item; /* until addresses are known: values, then one scratch per call */
    void *arena, *inputs;
    bool lent; /* arena and inputs are another's */
    exec_memory memory;
    bool ran_once, keep_stats;
    void (*on_grad)(void *user, int param);
    void *grad_user;
    void (*on_call)(void *user, op_id op, const op_args *args);
    void *call_user;
};

/* ---- layout -------------------------------------------------------------------------------------- */

enum { CHANNELS = 16 }; /* an image in blocks has a multiple of them, whatever the machine's blocks are */

/* Marks every image of a call as plain; true when one was not yet. */
static bool mark_plain(const call *c, bool *plain)
{
    bool changed = false;
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
        const tensor *t = k < OP_INPUTS ? &c->args.in[k] : &c->args.out[k - OP_INPUTS];
        if (t->ndim != 4 || plain[(intptr_t)t->data]) continue;
        plain[(intptr_t)t->data] = changed = true;
    }
    return changed;
}

static bool has_plain(const call *c, const bool *plain)
{
    for (int k = 0; k < OP_INPUTS; k++)
        if (c->args.in[k].ndim == 4 && plain[(intptr_t)c->args.in[k].data]) return true;
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (c->args.out[k].ndim == 4 && plain[(intptr_t)c->args.out[k].data]) return true;
    return false;
}

/* Of a kernel that mixes layouts: a plain residual makes the output it is added to plain, and the other way round. */
static bool residual_as_output(const call *c, bool *plain)
{
    const tensor *residual = &c->args.in[OP_RESIDUAL], *y = &c->args.out[0];
    if (residual->ndim != 4 || y->ndim != 4) return false;
    bool *from = &plain[(intptr_t)residual->data], *to = &plain[(intptr_t)y->data], alike = *from == *to;
    *from = *to = *from || *to;
    return !alike;
}

/* On the CPU an image in F32 whose every reader and writer can take it is laid out in blocks of channels; outputs of
 * the graph are plain. Where a kernel wants all its images laid out alike, one plain image makes the others plain, and
 * so on to its neighbours. */
static void choose_layout(exec *e)
{
    bool *plain = calloc((size_t)e->values + 1, sizeof *plain), changed = true;
    if (!plain) return; /* plain everywhere is right, only slower */
    for (int v = 0; v < e->values; v++) {
        const tensor *t = &e->value[v].t;
        plain[v] = e->value[v].kind != VALUE_TEMP || e->value[v].keep || t->dtype != CLOOB_F32 || t->ndim != 4 ||
                   t->dim[3] % CHANNELS != 0;
    }
    for (int i = 0; i < e->calls; i++)
        if (!e->call[i].kernel->blocked) mark_plain(&e->call[i], plain);
    while (changed) {
        changed = false;
        for (int i = 0; i < e->calls; i++) {
            const call *c = &e->call[i];
            if (c->kernel->mixes) changed |= residual_as_output(c, plain);
            else if (has_plain(c, plain)) changed |= mark_plain(c, plain);
        }
    }
    for (int v = 0; v < e->values; v++)
        if (!plain[v]) e->value[v].t.block = op_image_block();
    free(plain);
}

/* ---- building ------------------------------------------------------------------------------------ */

/* A gradient with several contributions is complete after the last of them. */
static void keep_last_writers(exec *e)
{
    for (int i = 0; i < e->calls * OP_OUTPUTS; i++) {
        int *param = &e->call[i / OP_OUTPUTS].grads[i % OP_OUTPUTS];
        for (int later = i + 1; *param >= 0 && later < e->calls * OP_OUTPUTS; later++)
            if (e->call[later / OP_OUTPUTS].grads[later % OP_OUTPUTS] == *param) *param = -1;
    }
}

/* Until addresses are known, a tensor's data holds its value's number. */
static void operand(const exec *e, tensor *t, value_id v)
{
    if (v == NO_VALUE) {
        *t = (tensor){ .ndim = -1 };
        return;
    }
    *t = e->value[v].t;
    t->data = (void *)(intptr_t)v;
}

static cloob_status make_calls(exec *e, const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        const node *n = &g->node[i];
        if (i == g->forward_nodes) e->forward_calls = e->calls;
        if (n->op == OP_COUNT) continue;
        call *c = &e->call[e->calls++];
        *c = (call){ .op = n->op, .kernel = op_find_kernel(e->env.dev->backend, n->op), .args = { .attr = n->attr } };
        if (!c->kernel)
            return ctx_fail(e->env.ctx, CLOOB_ERR_UNSUPPORTED, "%s: no kernel for %s", op_table[n->op].name,
                            e->env.dev->name);
        for (int k = 0; k < OP_INPUTS; k++) operand(e, &c->args.in[k], n->in[k]);
        for (int k = 0; k < OP_OUTPUTS; k++) {
            operand(e, &c->args.out[k], n->out[k]);
            bool grad = n->out[k] != NO_VALUE && g->value[n->out[k]].kind == VALUE_GRAD;
            c->grads[k] = grad ? g->value[n->out[k]].param : -1;
        }
        c->once = n->op == OP_FOLD_BN;
    }
    if (g->forward_nodes >= g->nodes || g->forward_nodes == 0) e->forward_calls = e->calls;
    keep_last_writers(e);
    return CLOOB_OK;
}

/* Which ops took how long to prepare: where the start of a run goes. */
static void log_preparation(const exec *e, const double *seconds)
{
    for (int op = 0; op < OP_COUNT; op++)
        if (seconds[op] > 0.01)
            ctx_log(e->env.ctx, CLOOB_LOG_DEBUG, "prepared %s: %.3f s", op_table[op].name, seconds[op]);
}

/* What no call reads any more is not written either. */
static void leave_out(exec *e, intptr_t v)
{
    for (int i = 0; i < e->calls * OP_INPUTS; i++) {
        const tensor *t = &e->call[i / OP_INPUTS].args.in[i % OP_INPUTS];
        if (t->ndim >= 0 && (intptr_t)t->data == v) return;
    }
    for (int i = 0; i < e->calls * OP_OUTPUTS; i++) {
        tensor *t = &e->call[i / OP_OUTPUTS].args.out[i % OP_OUTPUTS];
        if (t->ndim >= 0 && (intptr_t)t->data == v) *t = (tensor){ .ndim = -1 };
    }
}

/* Kernels prepare with shapes and layouts but without addresses. */
static cloob_status prepare_calls(exec *e)
{
    double seconds[OP_COUNT] = { 0 };
    for (int i = 0; i < e->calls; i++) {
        call *c = &e->call[i];
        op_args bare = c->args;
        for (int k = 0; k < OP_INPUTS; k++)
            bare.in[k].block = bare.in[k].ndim >= 0 ? e->value[(intptr_t)bare.in[k].data].t.block : 0,
            bare.in[k].data = NULL;
        for (int k = 0; k < OP_OUTPUTS; k++)
            bare.out[k].block = bare.out[k].ndim >= 0 ? e->value[(intptr_t)bare.out[k].data].t.block : 0,
            bare.out[k].data = NULL;
        double from = clock_seconds();
        if (c->kernel->prepare) CLOOB_TRY(c->kernel->prepare(&e->env, &bare));
        seconds[c->op] += clock_seconds() - from;
        for (int k = 0; k < OP_INPUTS; k++) {
            intptr_t v = (intptr_t)c->args.in[k].data;
            if (bare.in[k].ndim >= 0 || c->args.in[k].ndim < 0) continue;
            c->args.in[k] = (tensor){ .ndim = -1 };
            leave_out(e, v);
        }
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (bare.out[k].ndim < 0) c->args.out[k] = (tensor){ .ndim = -1 };
        c->args.scratch_bytes = bare.scratch_bytes;
        c->args.state = bare.state;
    }
    log_preparation(e, seconds);
    return CLOOB_OK;
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void touch(plan_item *it, int at)
{
    if (it->first < 0 || at < it->first) it->first = at;
    if (at > it->last) it->last = at;
}

/* Items: values first, then one scratch per call. What is derived from frozen weights lives from beginning to end. */
static void find_lifetimes(const exec *e, plan_item *item)
{
    for (int v = 0; v < e->values; v++)
        item[v] = (plan_item){ .bytes = e->value[v].kind == VALUE_TEMP ? tensor_bytes(&e->value[v].t) : 0,
                               .first = -1,
                               .last = -1 };
    for (int i = 0; i < e->calls; i++) {
        const op_args *a = &e->call[i].args;
        for (int k = 0; k < OP_INPUTS; k++)
            if (a->in[k].ndim >= 0 && !op_lends_shape(e->call[i].op, k)) touch(&item[(intptr_t)a->in[k].data], i);
        for (int k = 0; k < OP_OUTPUTS; k++) {
            if (a->out[k].ndim < 0) continue;
            touch(&item[(intptr_t)a->out[k].data], i);
            if (e->call[i].once)
                touch(&item[(intptr_t)a->out[k].data], 0), touch(&item[(intptr_t)a->out[k].data], e->calls);
        }
        item[e->values + i] = (plan_item){ .bytes = a->scratch_bytes, .first = i, .last = i };
    }
    for (int v = 0; v < e->values; v++) {
        if (e->value[v].keep) item[v].last = e->calls;
        if (item[v].first < 0) item[v].bytes = 0; /* nobody touches it */
    }
}

/* The operand whose place a call's result may take; its index, or -1. */
static int replaced_operand(const call *c)
{
    int k = c->kernel->in_place ? 0 : c->kernel->adds_in_place ? OP_RESIDUAL : -1;
    if (k < 0 || c->args.in[k].ndim < 0 || c->args.out[0].ndim < 0) return -1;
    for (int other = 0; k == OP_RESIDUAL && other < OP_INPUTS; other++)
        if (other != k && c->args.in[other].ndim >= 0 && c->args.in[other].data == c->args.in[k].data) return -1;
    return k;
}

/* A result takes the place of an operand that dies with its making, where the kernel allows it. */
static void share_places(exec *e, plan_item *item)
{
    for (int v = 0; v < e->values; v++) e->lies[v] = v;
    for (int i = 0; i < e->calls; i++) {
        const op_args *a = &e->call[i].args;
        int k = replaced_operand(&e->call[i]);
        if (k < 0) continue;
        intptr_t from = (intptr_t)a->in[k].data, to = (intptr_t)a->out[0].data;
        plan_item *place = &item[e->lies[from]];
        bool temporary = e->value[from].kind == VALUE_TEMP && e->value[to].kind == VALUE_TEMP;
        if (!temporary || item[from].last != i || item[to].first != i || item[to].bytes == 0 ||
            item[to].bytes != place->bytes)
            continue;
        e->lies[to] = e->lies[from];
        place->last = item[to].last;
        item[to].bytes = 0;
    }
}

static cloob_status plan_memory(exec *e)
{
    e->item = calloc((size_t)(e->values + e->calls + 1), sizeof *e->item);
    if (!e->item) return ctx_no_memory(e->env.ctx, (size_t)e->values * sizeof *e->item, "a memory plan");
    find_lifetimes(e, e->item);
    share_places(e, e->item);
    CLOOB_TRY(plan_offsets(e->env.ctx, e->item, e->values + e->calls, &e->memory.arena_bytes));
    e->memory.lower_bound_bytes = plan_lower_bound(e->item, e->values + e->calls, e->calls);
    for (int v = 0; v < e->values; v++)
        if (e->value[v].kind == VALUE_INPUT) e->memory.input_bytes += (tensor_bytes(&e->value[v].t) + 255) / 256 * 256;
    return CLOOB_OK;
}

static cloob_status take_memory(exec *e)
{
    device *d = e->env.dev;
    CLOOB_TRY(d->alloc(e->env.ctx, d, e->memory.arena_bytes, "activations", &e->arena));
    return d->alloc(e->env.ctx, d, e->memory.input_bytes, "inputs", &e->inputs);
}

/* Others with the same inputs work in the first one's memory. */
static cloob_status share_memory(exec *const *e, int count)
{
    for (int i = 1; i < count; i++)
        if (e[i]->memory.arena_bytes > e[0]->memory.arena_bytes) e[0]->memory.arena_bytes = e[i]->memory.arena_bytes;
    CLOOB_TRY(take_memory(e[0]));
    for (int i = 1; i < count; i++) {
        assert(e[i]->memory.input_bytes == e[0]->memory.input_bytes);
        e[i]->arena = e[0]->arena, e[i]->inputs = e[0]->inputs, e[i]->lent = true;
    }
    return CLOOB_OK;
}

static void assign_addresses(exec *e, const exec_bindings *b)
{
    const plan_item *item = e->item;
    char *input = e->inputs;
    for (int v = 0; v < e->values; v++) {
        value *x = &e->value[v];
        const tensor *home = x->kind == VALUE_PARAM ? b->param : x->kind == VALUE_STAT ? b->master : b->grad;
        if (x->kind == VALUE_TEMP)
            x->t.data = item[e->lies[v]].bytes ? (char *)e->arena + item[e->lies[v]].offset : NULL;
        else if (x->kind == VALUE_INPUT) x->t.data = input, input += (tensor_bytes(&x->t) + 255) / 256 * 256;
        else x->t.data = (char *)home[x->param].data + (size_t)x->offset * dtype_size(home[x->param].dtype);
    }
    for (int i = 0; i < e->calls; i++) {
        op_args *a = &e->call[i].args;
        for (int k = 0; k < OP_INPUTS; k++)
            if (a->in[k].ndim >= 0) a->in[k] = e->value[(intptr_t)a->in[k].data].t;
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (a->out[k].ndim >= 0) a->out[k] = e->value[(intptr_t)a->out[k].data].t;
        if (a->scratch_bytes) a->scratch = (char *)e->arena + item[e->values + i].offset;
    }
    free(e->item);
    e->item = NULL;
}

/* b NULL: only measures. */
static cloob_status build(exec *e, const graph *g, const exec_bindings *b)
{
    CLOOB_TRY(make_calls(e, g));
    if (e->env.dev->backend == BACKEND_CPU) choose_layout(e);
    if (b || e->env.dev->backend != BACKEND_CUDA) CLOOB_TRY(prepare_calls(e));
    else
        for (int i = 0; i < e->calls; i++)
            e->call[i].args.scratch_bytes = op_scratch_bound(e->call[i].op, &e->call[i].args);
    return plan_memory(e);
}

static void set_env(exec *e, cloob_ctx *ctx, device *dev, const exec_bindings *b)
{
    e->env = (op_env){ .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 };
    if (!b) return;
    if (b->stream) e->env.stream = b->stream;
    if (b->ranks > 1) e->env.ranks = b->ranks, e->env.sum_ranks = b->sum_ranks;
    e->env.sum_user = b->sum_user;
    e->env.frozen_weights = b->frozen_weights;
    e->env.cache = b->cache;
    e->env.invariant = b->invariant;
    e->env.int8 = b->int8;
    e->env.int8_fast = b->int8_fast;
}

static cloob_status make(cloob_ctx *ctx, const graph *g, device *dev, const exec_bindings *b, exec **out)
{
    CLOOB_TRY(graph_status(g));
    exec *e = calloc(1, sizeof *e);
    if (!e) return ctx_no_memory(ctx, sizeof *e, "an executor");
    set_env(e, ctx, dev, b);
    e->values = g->values;
    e->value = malloc((size_t)(g->values + 1) * sizeof *e->value);
    e->call = calloc((size_t)(g->nodes + 1), sizeof *e->call);
    e->lies = malloc((size_t)(g->values + 1) * sizeof *e->lies);
    cloob_status status = CLOOB_OK;
    if (!e->value || !e->call || !e->lies)
        status = ctx_no_memory(ctx, (size_t)g->nodes * sizeof *e->call, "an executor");
    if (status == CLOOB_OK) {
        memcpy(e->value, g->value, (size_t)g->values * sizeof *e->value);
        status = build(e, g, b);
    }
    if (status != CLOOB_OK) {
        exec_destroy(e);
        return status;
    }
    *out = e;
    return CLOOB_OK;
}

cloob_status exec_create_family(cloob_ctx *ctx, const graph *g, int count, device *dev, const exec_bindings *b,
                                exec **out)
{
    cloob_status status = CLOOB_OK;
    for (int i = 0; i < count; i++) out[i] = NULL;
    for (int i = 0; i < count && status == CLOOB_OK; i++) status = make(ctx, &g[i], dev, b, &out[i]);
    if (status == CLOOB_OK) status = share_memory(out, count);
    for (int i = count - 1; i >= 0; i--) {
        if (status == CLOOB_OK) assign_addresses(out[i], b);
        else exec_destroy(out[i]), out[i] = NULL;
    }
    return status;
}

cloob_status exec_create(cloob_ctx *ctx, const graph *g, device *dev, const exec_bindings *b, exec **out)
{
    return exec_create_family(ctx, g, 1, dev, b, out);
}

cloob_status exec_measure(cloob_ctx *ctx, const graph *g, device *dev, exec_memory *out)
{
    exec *e;
    CLOOB_TRY(make(ctx, g, dev, NULL, &e));
    *out = e->memory;
    exec_destroy(e);
    return CLOOB_OK;
}

void exec_destroy(exec *e)
{
    if (!e) return;
    for (int i = 0; e->call && i < e->calls; i++)
        if (e->call[i].kernel && e->call[i].kernel->release) e->call[i].kernel->release(&e->env, &e->call[i].args);
    if (e->arena && !e->lent) e->env.dev->free(e->env.dev, e->arena);
    if (e->inputs && !e->lent) e->env.dev->free(e->env.dev, e->inputs);
    free(e->item);
    free(e->lies);
    free(e->value);
    free(e->call);
    free(e);
}

/* ---- running ------------------------------------------------------------------------------------- */

static cloob_status run_call(exec *e, call *c)
{
    if (op_updates_running(c->op) && e->keep_stats) {
        op_args still = c->args;
        still.attr.keep_stats = true;
        CLOOB_TRY(c->kernel->run(&e->env, &still));
    } else {
        CLOOB_TRY(c->kernel->run(&e->env, &c->args));
    }
    for (int k = 0; k < OP_OUTPUTS && e->on_grad; k++)
        if (c->grads[k] >= 0) e->on_grad(e->grad_user, c->grads[k]);
    return CLOOB_OK;
}

/* Kernels that failed to launch name themselves. */
static cloob_status name_op(cloob_ctx *ctx, cloob_status status, const char *op)
{
    return strncmp(cloob_error(ctx), op, strlen(op)) == 0 ? status : ctx_wrap(ctx, status, "%s", op);
}

static cloob_status run_range(exec *e, int from, int to)
{
    for (int i = from; i < to; i++) {
        call *c = &e->call[i];
        if (c->once && e->env.frozen_weights && e->ran_once) continue;
        if (e->on_call) e->on_call(e->call_user, c->op, &c->args);
        cloob_status status = run_call(e, c);
        if (status != CLOOB_OK) return name_op(e->env.ctx, status, op_table[c->op].name);
    }
    if (e->on_call) e->on_call(e->call_user, OP_COUNT, NULL);
    return CLOOB_OK;
}

cloob_status exec_forward(exec *e)
{
    CLOOB_TRY(run_range(e, 0, e->forward_calls));
    e->ran_once = true;
    return CLOOB_OK;
}

cloob_status exec_recompute_forward(exec *e)
{
    e->keep_stats = true;
    cloob_status status = exec_forward(e);
    e->keep_stats = false;
    return status;
}

cloob_status exec_backward(exec *e) { return run_range(e, e->forward_calls, e->calls); }

int64_t exec_history_count(const exec *e)
{
    int64_t n = 0;
    for (int i = 0; i < e->calls; i++)
        if (e->call[i].kernel->history) n += OP_HISTORY;
    return n;
}

cloob_status exec_history(exec *e, float *numbers, bool set)
{
    for (int i = 0; i < e->calls; i++) {
        const call *c = &e->call[i];
        if (!c->kernel->history) continue;
        CLOOB_TRY(c->kernel->history(&e->env, &c->args, numbers, set));
        numbers += OP_HISTORY;
    }
    return CLOOB_OK;
}

const tensor *exec_tensor(const exec *e, const char *name)
{
    for (int v = 0; v < e->values; v++)
        if (e->value[v].name && strcmp(e->value[v].name, name) == 0) return &e->value[v].t;
    return NULL;
}

exec_memory exec_memory_of(const exec *e) { return e->memory; }

void exec_set_part(exec *e, op_live sequences, op_live rows) { e->env.part[0] = sequences, e->env.part[1] = rows; }

void exec_set_ctx(exec *e, cloob_ctx *ctx) { e->env.ctx = ctx; }

void exec_on_grad(exec *e, void (*fn)(void *user, int param), void *user)
{
    e->on_grad = fn;
    e->grad_user = user;
}

void exec_on_call(exec *e, void (*fn)(void *user, op_id op, const op_args *args), void *user)
{
    e->on_call = fn;
    e->call_user = user;
}
