/* Planning, preparing and running. */
#include "graph/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "graph/graph.h"

struct exec {
    op_env env;
    op_args *args; /* of each op */
    int *group;    /* by op: the number of its group; 0: none */
    int *grads;    /* by op and output: the parameter whose gradient this completes; -1 */
    int ops;
    op_group *call; /* what one kernel computes: an op, or members of a group */
    int calls, forward_ops, forward_calls;
    value *value; /* with device pointers */
    int values;
    int *storage_of; /* by value: itself, or the value in whose place it is stored */
    plan_item *item; /* until addresses are known: values, then one scratch per call */
    void *arena, *inputs;
    bool lent; /* arena and inputs belong to another executor */
    exec_memory memory;
    bool ran_once;
    void (*on_grad)(void *user, int param);
    void *grad_user;
    op_call_fn *on_call;
    void *call_user;
};

static const op_kernel *kernel_of(const exec *e, const op_args *a)
{
    return op_find_kernel(e->env.dev->backend, a->op);
}

/* It depends on weights only: it runs once when they are frozen. */
static bool runs_once(const op_group *g) { return g->member[0]->op == OP_FOLD_BN; }

static const char *name_of(const op_group *g) { return g->kernel ? g->kernel->name : op_table[g->member[0]->op].name; }

/* Until addresses are known, an operand's data holds its value's number; NO_VALUE where nothing writes it. */
static value_id value_in(const tensor *t) { return t->ndim < 0 ? NO_VALUE : (value_id)(intptr_t)t->data; }

/* Operand k of a call: its inputs, then its outputs. */
enum { OPERANDS = OP_INPUTS + OP_OUTPUTS };
static tensor *operand_of(op_args *a, int k) { return k < OP_INPUTS ? &a->in[k] : &a->out[k - OP_INPUTS]; }

static void set_operand(const exec *e, tensor *t, value_id v)
{
    *t = ABSENT;
    if (v == NO_VALUE) return;
    *t = e->value[v].t;
    t->data = (void *)(intptr_t)v;
}

/* ---- 8-bit factors ------------------------------------------------------------------------------- */

/* How many calls read value v as an 8-bit factor; *others: whether something else reads it. mark: these calls read it
 * in 8 bits from now on, from the value `copy` where there is one. */
static int rounded_readers(exec *e, value_id v, bool *others, bool mark, value_id copy)
{
    int readers = 0;
    *others = e->value[v].keep;
    for (int i = 0; i < e->ops * OP_INPUTS; i++) {
        op_args *a = &e->args[i / OP_INPUTS];
        int k = i % OP_INPUTS;
        if (value_in(&a->in[k]) != v) continue;
        bool reads = k == 0 && op_reads_rounded(&e->env, a);
        readers += reads;
        *others |= !reads;
        if (!reads || !mark) continue;
        a->attr.rounded_in = true;
        if (copy != NO_VALUE) set_operand(e, &a->in[OP_ROUNDED_IN], copy);
    }
    return readers;
}

/* int8 inference on a CPU: the op that writes the left factor of GEMMs rounds it to 8 bits as well, or, where nothing
 * else reads it, instead (OP_ROUNDED_IN). A result that may take a residual's place is never stored in 8 bits there:
 * rows have another size. */
static void choose_rounding(exec *e)
{
    for (int i = 0; i < e->ops; i++) {
        op_args *a = &e->args[i];
        value_id v = value_in(&a->out[0]), copy = NO_VALUE;
        bool others;
        if (v == NO_VALUE || e->value[v].kind != VALUE_TEMP || !op_writes_rounded(&e->env, a)) continue;
        if (rounded_readers(e, v, &others, false, NO_VALUE) == 0) continue;
        if (others || op_has(&a->in[OP_RESIDUAL])) {
            copy = e->values++;
            e->value[copy] = (value){ .t = TENSOR(CLOOB_U8, NULL, op_rounded_bytes(&a->out[0])), .kind = VALUE_TEMP };
            set_operand(e, &a->out[OP_ROUNDED_OUT], copy);
        }
        a->attr.rounded_out = true;
        rounded_readers(e, v, &others, true, copy);
    }
}

/* ---- building ------------------------------------------------------------------------------------ */

static cloob_status take_ops(exec *e, const graph *g)
{
    bool differentiated = g->forward_nodes > 0 && g->forward_nodes < g->nodes;
    for (int i = 0; i < g->nodes; i++) {
        const node *n = &g->node[i];
        if (n->op == OP_COUNT) continue;
        op_args *a = &e->args[e->ops];
        *a = (op_args){ .op = n->op, .attr = n->attr };
        if (!kernel_of(e, a))
            return ctx_fail(e->env.ctx, CLOOB_ERR_UNSUPPORTED, "%s: no kernel for %s", op_table[n->op].name,
                            e->env.dev->name);
        for (int k = 0; k < OP_INPUTS; k++) set_operand(e, &a->in[k], n->in[k]);
        for (int k = 0; k < OP_OUTPUTS; k++) {
            set_operand(e, &a->out[k], n->out[k]);
            bool grad = n->out[k] != NO_VALUE && g->value[n->out[k]].kind == VALUE_GRAD;
            e->grads[e->ops * OP_OUTPUTS + k] = grad ? g->value[n->out[k]].param : -1;
        }
        e->group[e->ops++] = n->group;
        if (!differentiated || i < g->forward_nodes) e->forward_ops = e->ops;
    }
    return CLOOB_OK;
}

/* A gradient with several contributions is complete after the last of them. Within a group the order does not count. */
static void keep_last_writers(exec *e)
{
    for (int i = 0; i < e->ops * OP_OUTPUTS; i++)
        for (int later = i + 1; e->grads[i] >= 0 && later < e->ops * OP_OUTPUTS; later++)
            if (e->grads[later] == e->grads[i]) e->grads[i] = -1;
}

static int group_end(const exec *e, int from)
{
    int to = from + 1;
    while (e->group[from] && to < e->ops && e->group[to] == e->group[from]) to++;
    return to;
}

/* Logs how long ops took to prepare. */
static void log_preparation(const exec *e, const double *seconds)
{
    for (int op = 0; op <= OP_COUNT; op++)
        if (seconds[op] > 0.01)
            ctx_log(e->env.ctx, CLOOB_LOG_DEBUG, "prepared %s: %.3f s", op < OP_COUNT ? op_table[op].name : "groups",
                    seconds[op]);
}

/* A kernel prepares with shapes and layouts but without addresses. */
static cloob_status prepare_op(exec *e, op_args *a)
{
    const op_kernel *kernel = kernel_of(e, a);
    op_args bare = *a;
    for (int k = 0; k < OPERANDS; k++) {
        tensor *t = operand_of(&bare, k);
        t->data = NULL;
    }
    if (kernel->prepare) CLOOB_TRY(kernel->prepare(&e->env, &bare));
    a->scratch_bytes = bare.scratch_bytes;
    a->state = bare.state;
    return CLOOB_OK;
}

/* Bit k of read[i]: output k of member i of a group is read outside the group. */
static void find_readers(const exec *e, int from, int to, unsigned *read)
{
    for (int i = from; i < to; i++) {
        read[i - from] = 0;
        for (int k = 0; k < OP_OUTPUTS; k++) {
            value_id v = value_in(&e->args[i].out[k]);
            bool wanted = v != NO_VALUE && (e->value[v].keep || e->value[v].kind != VALUE_TEMP);
            for (int other = 0; v != NO_VALUE && !wanted && other < e->ops; other++)
                wanted = (other < from || other >= to) && group_reads(&e->args[other], &e->args[i].out[k]);
            read[i - from] |= (unsigned)wanted << k;
        }
    }
}

static cloob_status prepare_group(exec *e, int from, int to)
{
    op_group part[GROUP_MEMBERS];
    unsigned read[GROUP_MEMBERS];
    int parts;
    assert(to - from <= GROUP_MEMBERS);
    find_readers(e, from, to, read);
    CLOOB_TRY(group_plan(&e->env, group_table_of(e->env.dev->backend), &e->args[from], to - from, read, part, &parts));
    for (int i = 0; i < parts; i++) {
        group_mark_inner(&part[i], (void *)(intptr_t)NO_VALUE); /* they get no memory */
        e->call[e->calls++] = part[i];
    }
    return CLOOB_OK;
}

static cloob_status prepare_calls(exec *e)
{
    double seconds[OP_COUNT + 1] = { 0 };
    for (int i = 0; i < e->ops; i++) {
        double from = clock_seconds();
        CLOOB_TRY(prepare_op(e, &e->args[i]));
        seconds[e->args[i].op] += clock_seconds() - from;
    }
    for (int i = 0, to; i < e->ops; i = to) {
        double from = clock_seconds();
        if (i == e->forward_ops) e->forward_calls = e->calls;
        to = group_end(e, i);
        if (to - i > 1) CLOOB_TRY(prepare_group(e, i, to));
        else e->call[e->calls++] = (op_group){ .member = { &e->args[i] }, .members = 1 };
        if (to - i > 1) seconds[OP_COUNT] += clock_seconds() - from;
    }
    log_preparation(e, seconds);
    return CLOOB_OK;
}

/* An estimate without kernels: a group is one call, whose scratch is at most the largest scratch of its ops. */
static void bound_calls(exec *e)
{
    for (int i = 0, to; i < e->ops; i = to) {
        op_group g = { .members = 0 };
        if (i == e->forward_ops) e->forward_calls = e->calls;
        to = group_end(e, i);
        for (int k = i; k < to; k++) {
            size_t bytes = op_scratch_bound(e->args[k].op, &e->args[k]);
            if (bytes > g.scratch_bytes) g.scratch_bytes = bytes;
            g.member[g.members++] = &e->args[k];
        }
        e->call[e->calls++] = g;
    }
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void touch(plan_item *it, int at)
{
    if (it->first < 0 || at < it->first) it->first = at;
    if (at > it->last) it->last = at;
}

/* Scratch of a call: a group's kernel has its own. */
static size_t scratch_of(const op_group *c)
{
    return c->scratch_bytes ? c->scratch_bytes : c->kernel ? 0 : c->member[0]->scratch_bytes;
}

/* Items: values first, then one scratch per call. What is derived from frozen weights lives from beginning to end. */
static void find_lifetimes(const exec *e, plan_item *item)
{
    for (int v = 0; v < e->values; v++)
        item[v] = (plan_item){ .bytes = e->value[v].kind == VALUE_TEMP ? tensor_bytes(&e->value[v].t) : 0,
                               .first = -1,
                               .last = -1 };
    for (int i = 0; i < e->calls; i++) {
        const op_group *c = &e->call[i];
        for (int n = 0; n < c->members * OPERANDS; n++) {
            op_args *a = c->member[n / OPERANDS];
            int k = n % OPERANDS;
            value_id v = value_in(operand_of(a, k));
            if (v == NO_VALUE || (k < OP_INPUTS && op_lends_shape(a->op, k))) continue;
            touch(&item[v], i);
            if (runs_once(c) && k >= OP_INPUTS) touch(&item[v], 0), touch(&item[v], e->calls);
        }
        item[e->values + i] = (plan_item){ .bytes = scratch_of(c), .first = i, .last = i };
    }
    for (int v = 0; v < e->values; v++) {
        if (e->value[v].keep) item[v].last = e->calls;
        if (item[v].first < 0) item[v].bytes = 0; /* never used */
    }
}

/* Whether a call reads a value by another operand than input k of its member a. */
static bool reads_twice(const op_group *c, const op_args *a, int k)
{
    for (int i = 0; i < c->members; i++)
        for (int other = 0; other < OP_INPUTS; other++)
            if ((c->member[i] != a || other != k) && value_in(&c->member[i]->in[other]) == value_in(&a->in[k]))
                return true;
    return false;
}

/* The values of which the second may be stored where the first is; false: none. */
static bool replaces(const exec *e, const op_group *c, const op_args *a, value_id *from, value_id *to)
{
    const op_kernel *kernel = kernel_of(e, a);
    int k = kernel->in_place ? 0 : kernel->adds_in_place ? OP_RESIDUAL : -1;
    if (k < 0 || (c->kernel && !c->kernel->in_place)) return false;
    *from = value_in(&a->in[k]), *to = value_in(&a->out[kernel->in_place_out]);
    if (*from == NO_VALUE || *to == NO_VALUE) return false;
    return (k == 0 && c->members == 1 && !kernel->in_place_out) || !reads_twice(c, a, k);
}

/* Stores a result in place of an operand that is not read afterwards, where the kernel allows it. */
static void share_places(exec *e, plan_item *item)
{
    for (int v = 0; v < e->values; v++) e->storage_of[v] = v;
    for (int i = 0; i < e->calls; i++)
        for (int n = 0; n < e->call[i].members; n++) {
            value_id from, to;
            if (!replaces(e, &e->call[i], e->call[i].member[n], &from, &to)) continue;
            plan_item *place = &item[e->storage_of[from]];
            bool temporary = e->value[from].kind == VALUE_TEMP && e->value[to].kind == VALUE_TEMP;
            if (!temporary || item[from].last != i || item[to].first != i || item[to].bytes == 0 ||
                item[to].bytes != place->bytes)
                continue;
            e->storage_of[to] = e->storage_of[from];
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

/* Executors with the same inputs share the memory of the first. */
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
            x->t.data = item[e->storage_of[v]].bytes ? (char *)e->arena + item[e->storage_of[v]].offset : NULL;
        else if (x->kind == VALUE_INPUT) x->t.data = input, input += (tensor_bytes(&x->t) + 255) / 256 * 256;
        else x->t.data = (char *)home[x->param].data + (size_t)x->offset * dtype_size(home[x->param].dtype);
    }
    for (int i = 0; i < e->ops * OPERANDS; i++) {
        tensor *t = operand_of(&e->args[i / OPERANDS], i % OPERANDS);
        if (t->ndim >= 0 && value_in(t) == NO_VALUE) t->data = NULL;
        else if (t->ndim >= 0) *t = e->value[value_in(t)].t;
    }
    for (int i = 0; i < e->calls; i++) {
        op_group *g = &e->call[i];
        void *scratch = scratch_of(&e->call[i]) ? (char *)e->arena + item[e->values + i].offset : NULL;
        if (g->kernel) g->scratch = scratch;
        else g->member[0]->scratch = scratch;
    }
    free(e->item);
    e->item = NULL;
}

/* b NULL: only measures. */
static cloob_status build(exec *e, const graph *g, const exec_bindings *b)
{
    CLOOB_TRY(take_ops(e, g));
    keep_last_writers(e);
    if (e->env.dev->backend == BACKEND_CPU && e->env.int8) choose_rounding(e);
    if (b || e->env.dev->backend != BACKEND_CUDA) CLOOB_TRY(prepare_calls(e));
    else bound_calls(e);
    if (e->forward_ops == e->ops) e->forward_calls = e->calls;
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
    size_t values = (size_t)(g->values + g->nodes + 1); /* choose_rounding adds one per op at most */
    e->value = malloc(values * sizeof *e->value);
    e->storage_of = malloc(values * sizeof *e->storage_of);
    e->args = malloc((size_t)(g->nodes + 1) * sizeof *e->args);
    e->group = malloc((size_t)(g->nodes + 1) * sizeof *e->group);
    e->grads = malloc((size_t)(g->nodes + 1) * OP_OUTPUTS * sizeof *e->grads);
    e->call = malloc((size_t)(g->nodes + 1) * sizeof *e->call);
    cloob_status status = CLOOB_OK;
    if (!e->value || !e->storage_of || !e->args || !e->group || !e->grads || !e->call)
        status = ctx_no_memory(ctx, (size_t)g->nodes * sizeof *e->args, "an executor");
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
    for (int i = 0; i < e->calls; i++) {
        op_group *g = &e->call[i];
        if (g->kernel && g->kernel->release) g->kernel->release(&e->env, g);
    }
    for (int i = 0; i < e->ops; i++)
        if (kernel_of(e, &e->args[i])->release) kernel_of(e, &e->args[i])->release(&e->env, &e->args[i]);
    if (e->arena && !e->lent) e->env.dev->free(e->env.dev, e->arena);
    if (e->inputs && !e->lent) e->env.dev->free(e->env.dev, e->inputs);
    free(e->item);
    free(e->storage_of);
    free(e->value);
    free(e->args);
    free(e->group);
    free(e->grads);
    free(e->call);
    free(e);
}

/* ---- running ------------------------------------------------------------------------------------- */

static cloob_status run_call(exec *e, const op_group *g)
{
    CLOOB_TRY(g->kernel ? g->kernel->run(&e->env, g) : kernel_of(e, g->member[0])->run(&e->env, g->member[0]));
    for (int i = 0; i < g->members && e->on_grad; i++) {
        const int *grads = &e->grads[(g->member[i] - e->args) * OP_OUTPUTS];
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (grads[k] >= 0) e->on_grad(e->grad_user, grads[k]);
    }
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
        const op_group *g = &e->call[i];
        if (runs_once(g) && e->env.frozen_weights && e->ran_once) continue;
        if (e->on_call) e->on_call(e->call_user, name_of(g), g);
        cloob_status status = run_call(e, g);
        if (status != CLOOB_OK) return name_op(e->env.ctx, status, name_of(g));
    }
    if (e->on_call) e->on_call(e->call_user, NULL, NULL);
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
    e->env.keep_stats = true;
    cloob_status status = exec_forward(e);
    e->env.keep_stats = false;
    return status;
}

cloob_status exec_backward(exec *e) { return run_range(e, e->forward_calls, e->calls); }

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

void exec_on_call(exec *e, op_call_fn *fn, void *user)
{
    e->on_call = fn;
    e->call_user = user;
}
