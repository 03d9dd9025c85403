/* Builds the tensors of a case, runs it, and compares backends. */
#include "op_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

static void *own(op_pass *p, size_t bytes)
{
    void *memory = calloc(1, bytes + 64);
    if (p->owned_count < 160) p->owned[p->owned_count++] = memory;
    return memory;
}

static void set(const tensor *t, int64_t i, double v)
{
    if (t->dtype == CLOOB_F64) ((double *)t->data)[i] = v;
    else if (t->dtype == CLOOB_F32) ((float *)t->data)[i] = (float)v;
    else if (t->dtype == CLOOB_BF16) ((uint16_t *)t->data)[i] = bf16_from_float((float)v);
    else if (t->dtype == CLOOB_I32) ((int32_t *)t->data)[i] = (int32_t)v;
    else ((uint8_t *)t->data)[i] = (uint8_t)v;
}

/* F64 passes check slopes: there everything that is real is F64. */
static cloob_dtype type_of(input_kind kind, cloob_dtype type)
{
    if (kind == INPUT_BYTES) return CLOOB_U8;
    if (kind == INPUT_TOKENS || kind == INPUT_INDEX || kind == INPUT_STARTS || kind == INPUT_DISTINCT) return CLOOB_I32;
    return kind == INPUT_VALUES || type == CLOOB_F64 ? type : CLOOB_F32;
}

static double draw_one(input_kind kind, int64_t bound, uint64_t key, int64_t i)
{
    if (kind == INPUT_BYTES) return (double)rng_below(key, (uint64_t)i, 256);
    if (kind == INPUT_TOKENS || kind == INPUT_INDEX) return (double)rng_below(key, (uint64_t)i, (uint64_t)bound);
    return kind == INPUT_POSITIVE ? 0.5 + rng_uniform(key, (uint64_t)i) : rng_normal(key, (uint64_t)i);
}

static void draw(const tensor *t, input_kind kind, int64_t bound, uint64_t key)
{
#pragma omp parallel for
    for (int64_t i = 0; i < tensor_count(t); i++) set(t, i, draw_one(kind, bound, key, i));
}

void harness_draw(const tensor *t, input_kind kind, uint64_t key) { draw(t, kind, 0, key); }

/* The first sequence has one row, the second as many as may be, the others any number; some rows are left over. */
static void draw_starts(const tensor *t, int64_t most, int64_t rows, uint64_t key)
{
    int32_t *start = t->data, at = 0;
    for (int32_t n = 0, N = (int32_t)t->dim[0]; n < N; n++) {
        int64_t left = rows - at - (N - 1 - n), length = n == 0 ? 1
                                                         : n == 1
                                                             ? most
                                                             : 1 + (int64_t)rng_below(key, (uint64_t)n, (uint64_t)most);
        start[n] = at;
        at += (int32_t)(length < left ? length : left);
    }
}

/* Rows of numbers below `bound`, no two of a row alike. */
static void draw_several(const tensor *t, int64_t bound, uint64_t key)
{
    for (int64_t i = 0, K = t->dim[1]; i < tensor_count(t); i++)
        ((int32_t *)t->data)[i] = (int32_t)rng_permute(key + (uint64_t)(i / K), (uint64_t)(i % K), (uint64_t)bound);
}

static void make_input(op_pass *p, const op_case *c, int k, cloob_dtype type, uint64_t seed)
{
    tensor *t = &p->forward.in[k];
    input_kind kind = c->in[k].kind;
    t->ndim = -1;
    if (!kind) return;
    t->dtype = c->op == OP_IMAGE_INPUT && kind == INPUT_VALUES ? CLOOB_F32 : type_of(kind, type);
    for (t->ndim = 0; t->ndim < 7 && c->in[k].dim[t->ndim]; t->ndim++) t->dim[t->ndim] = c->in[k].dim[t->ndim];
    t->data = own(p, tensor_bytes(t));
    if (kind == INPUT_STARTS) draw_starts(t, c->attr.tokens, c->in[k].dim[7], rng_key(seed, c->name));
    else if (kind == INPUT_DISTINCT) draw_several(t, c->in[k].dim[7], rng_key(seed, c->name));
    else draw(t, kind, c->in[k].dim[7], rng_key(seed, c->name) + 1000 * (uint64_t)k);
}

static void keep_inputs(op_pass *p)
{
    for (int k = 0; k < OP_INPUTS; k++) {
        const tensor *t = &p->forward.in[k];
        if (t->ndim < 0) continue;
        p->before[k] = own(p, tensor_bytes(t));
        memcpy(p->before[k], t->data, tensor_bytes(t));
    }
}

static device *large_calls; /* the cpu backend in tests that set it */

void harness_use_cpu(device *cpu) { large_calls = cpu; }

/* Prepares, runs and releases one call. */
static cloob_status call(cloob_ctx *ctx, device *dev, op_id op, op_args *a)
{
    op_env env = { .ctx = ctx, .dev = dev, .stream = dev->stream, .ranks = 1 };
    const op_kernel *kernel = op_find_kernel(dev->backend, op);
    if (kernel->prepare) CLOOB_TRY(kernel->prepare(&env, a));
    if (a->scratch_bytes) CLOOB_TRY(dev->alloc(ctx, dev, a->scratch_bytes, "scratch", &a->scratch));
    cloob_status status = kernel->run(&env, a);
    if (status == CLOOB_OK) status = dev->sync(ctx, dev);
    if (kernel->release) kernel->release(&env, a);
    if (a->scratch) dev->free(dev, a->scratch);
    return status;
}

/* Whether ref, which is one thread of plain loops, takes long. The cpu backend has no FP8. */
static bool is_large(op_id op, const op_args *a)
{
    static const op_id slow[] = { OP_CONV2D,    OP_CONV2D_DX, OP_CONV2D_DW, OP_LINEAR,
                                  OP_LINEAR_DX, OP_LINEAR_DW, OP_ATTENTION, OP_ATTENTION_BWD };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        if (op == slow[i]) return a->attr.fp8 == OP_FP8_NEVER;
    return false;
}

/* On the cpu backend in F32: BF16 inputs are widened and outputs rounded, so that nothing else is, as in ref. */
static cloob_status run_wide(cloob_ctx *ctx, device *cpu, op_id op, op_args *a)
{
    op_args wide = *a;
    if (wide.attr.dtype == CLOOB_BF16) wide.attr.dtype = CLOOB_F32;
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
        tensor *t = k < OP_INPUTS ? &wide.in[k] : &wide.out[k - OP_INPUTS];
        if (t->ndim < 0 || t->dtype != CLOOB_BF16) continue;
        float *copy = calloc((size_t)tensor_count(t), sizeof *copy);
        if (k < OP_INPUTS) dtype_convert(CLOOB_F32, copy, CLOOB_BF16, t->data, tensor_count(t));
        t->dtype = CLOOB_F32;
        t->data = copy;
    }
    cloob_status status = call(ctx, cpu, op, &wide);
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
        tensor *t = k < OP_INPUTS ? &wide.in[k] : &wide.out[k - OP_INPUTS];
        const tensor *to = k < OP_INPUTS ? &a->in[k] : &a->out[k - OP_INPUTS];
        if (t->ndim < 0 || to->dtype != CLOOB_BF16) continue;
        if (k >= OP_INPUTS) dtype_convert(CLOOB_BF16, to->data, CLOOB_F32, t->data, tensor_count(t));
        free(t->data);
    }
    return status;
}

bool harness_run_ref(cloob_ctx *ctx, op_id op, op_args *a)
{
    device dev = { .backend = BACKEND_REF };
    op_env env = { .ctx = ctx, .dev = &dev, .ranks = 1 };
    const op_kernel *k = op_find_kernel(BACKEND_REF, op);
    if (large_calls && is_large(op, a) && run_wide(ctx, large_calls, op, a) == CLOOB_OK) return true;
    if (k && k->run(&env, a) == CLOOB_OK) return true;
    printf("  %s: %s\n", op_table[op].name, cloob_error(ctx));
    return false;
}

static bool shape_and_allocate(cloob_ctx *ctx, op_pass *p, op_id op, op_args *a)
{
    for (int k = 0; k < OP_OUTPUTS; k++) a->out[k] = (tensor){ .ndim = -1 };
    if (op_table[op].shape(ctx, a) != CLOOB_OK) {
        printf("  %s: %s\n", op_table[op].name, cloob_error(ctx));
        return false;
    }
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (a->out[k].ndim >= 0) a->out[k].data = own(p, tensor_bytes(&a->out[k]));
    return true;
}

/* mean and rstd of bn_apply are those of x, as in training. */
static bool refresh_statistics(cloob_ctx *ctx, op_pass *p)
{
    op_args stats = { .attr = { .eps = p->forward.attr.eps, .keep_stats = true } };
    stats.in[0] = p->forward.in[0];
    stats.out[0] = p->forward.in[1];
    stats.out[1] = p->forward.in[2];
    return harness_run_ref(ctx, OP_BN_STATS, &stats);
}

/* mean and rstd of layernorm_bwd are those of x where what layernorm made of it is asked for. */
static bool refresh_rows(cloob_ctx *ctx, op_pass *p)
{
    op_args forward = { .attr = { .eps = p->forward.attr.eps } };
    forward.in[0] = p->forward.in[1];
    forward.in[1] = p->forward.in[4];
    forward.in[2] = p->forward.in[6];
    forward.out[0] = p->forward.in[1];
    forward.out[0].data = own(p, tensor_bytes(&p->forward.in[1]));
    forward.out[1] = p->forward.in[2];
    forward.out[2] = p->forward.in[3];
    return harness_run_ref(ctx, OP_LAYERNORM, &forward);
}

bool op_pass_forward(cloob_ctx *ctx, const op_case *c, op_pass *p)
{
    if (c->op == OP_BN_APPLY && !refresh_statistics(ctx, p)) return false;
    return harness_run_ref(ctx, c->op, &p->forward);
}

/* ---- the backward rule --------------------------------------------------------------------------- */

static tensor *resolve(op_pass *p, tensor *temporary, op_ref r)
{
    int k = r % REF_STEP;
    switch (r - k) {
    case REF_IN: return &p->forward.in[k];
    case REF_OUT: return &p->forward.out[k];
    case REF_G: return &p->g;
    case REF_D: return &p->d[k];
    default: return &temporary[k];
    }
}

static bool run_step(cloob_ctx *ctx, op_pass *p, tensor *temporary, int s)
{
    const op_step *rule = &p->rule[s];
    op_args *a = &p->step[s];
    *a = (op_args){ .attr = rule->attr };
    for (int k = 0; k < OP_INPUTS; k++) {
        if (rule->in[k] == REF_NONE) a->in[k].ndim = -1;
        else a->in[k] = *resolve(p, temporary, rule->in[k]);
    }
    if (rule->op == OP_COUNT) {
        *resolve(p, temporary, rule->out[0]) = a->in[0];
        return true;
    }
    if (!shape_and_allocate(ctx, p, rule->op, a)) return false;
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (rule->out[k] == REF_NONE) a->out[k] = (tensor){ .ndim = -1 };
    if (!harness_run_ref(ctx, rule->op, a)) return false;
    for (int k = 0; k < OP_OUTPUTS; k++)
        if (rule->out[k] != REF_NONE) *resolve(p, temporary, rule->out[k]) = a->out[k];
    return true;
}

static bool run_backward(cloob_ctx *ctx, const op_case *c, op_pass *p, uint64_t seed)
{
    tensor temporary[8] = { { 0 } };
    unsigned inputs = 0;
    for (int k = 0; k < OP_INPUTS; k++) inputs |= p->forward.in[k].ndim >= 0 ? 1u << k : 0;
    if (!op_table[c->op].grad || (c->op == OP_CONV2D && inputs & 12)) return true;
    p->g = p->forward.out[0];
    p->g.data = own(p, tensor_bytes(&p->g));
    harness_draw(&p->g, INPUT_VALUES, rng_key(seed, "g"));
    p->steps = op_table[c->op].grad(&p->forward.attr, inputs, p->rule);
    for (int s = 0; s < p->steps; s++)
        if (!run_step(ctx, p, temporary, s)) return false;
    return true;
}

bool op_pass_run(cloob_ctx *ctx, const op_case *c, cloob_dtype type, uint64_t seed, op_pass *p)
{
    *p = (op_pass){ .forward = { .attr = c->attr } };
    p->forward.attr.dtype = type;
    for (int k = 0; k < OP_INPUTS; k++) make_input(p, c, k, type, seed);
    if (c->op == OP_BN_APPLY && !refresh_statistics(ctx, p)) return false;
    if (c->op == OP_LAYERNORM_BWD && p->forward.in[6].ndim >= 0 && !refresh_rows(ctx, p)) return false;
    keep_inputs(p);
    return shape_and_allocate(ctx, p, c->op, &p->forward) && op_pass_forward(ctx, c, p) &&
           run_backward(ctx, c, p, seed);
}

void op_pass_release(op_pass *p)
{
    for (int i = 0; i < p->owned_count; i++) free(p->owned[i]);
    p->owned_count = 0;
}

/* ---- another backend ----------------------------------------------------------------------------- */

double harness_error(const tensor *got, const tensor *want)
{
    enum { CHUNK = 4096 };
    const int64_t n = tensor_count(want), chunks = (n + CHUNK - 1) / CHUNK;
    const size_t size = dtype_size(want->dtype);
    double diff = 0, norm = 0;
    bool finite = true;
#pragma omp parallel for reduction(+ : diff, norm) reduction(&& : finite)
    for (int64_t c = 0; c < chunks; c++) {
        double x[CHUNK], y[CHUNK];
        int64_t first = c * CHUNK, count = n - first < CHUNK ? n - first : CHUNK;
        dtype_convert(CLOOB_F64, x, got->dtype, (const char *)got->data + (size_t)first * size, count);
        dtype_convert(CLOOB_F64, y, want->dtype, (const char *)want->data + (size_t)first * size, count);
        for (int64_t i = 0; i < count; i++) {
            finite = finite && fabs(x[i]) < 1e30;
            diff += (x[i] - y[i]) * (x[i] - y[i]);
            norm += y[i] * y[i];
        }
    }
    if (!finite) return INFINITY;
    return sqrt(diff) / fmax(sqrt(norm), 1e-2); /* the floor keeps true zeros from dividing rounding by nothing */
}

cloob_status guard_up(cloob_ctx *ctx, device *dev, const void *content, guarded_bytes *g, tensor *t)
{
    g->bytes = tensor_bytes(t);
    g->host = malloc(g->bytes + 2 * GUARD_BYTES);
    memset(g->host, 0xAB, g->bytes + 2 * GUARD_BYTES); /* outputs start poisoned too */
    if (content) memcpy(g->host + GUARD_BYTES, content, g->bytes);
    CLOOB_TRY(dev->alloc(ctx, dev, g->bytes + 2 * GUARD_BYTES, "a test tensor", (void **)&g->on_device));
    t->data = g->on_device + GUARD_BYTES;
    return dev->to_device(ctx, dev, g->on_device, g->host, g->bytes + 2 * GUARD_BYTES);
}

bool guard_down(cloob_ctx *ctx, device *dev, guarded_bytes *g)
{
    if (dev->to_host(ctx, dev, g->host, g->on_device, g->bytes + 2 * GUARD_BYTES) != CLOOB_OK) return false;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if ((unsigned char)g->host[i] != 0xAB || (unsigned char)g->host[GUARD_BYTES + g->bytes + i] != 0xAB)
            return false;
    return true;
}

static double collect(cloob_ctx *ctx, device *dev, op_id op, const tensor *want, int count, guarded_bytes *g)
{
    double worst = 0;
    for (int k = 0; k < count; k++) {
        if (!g[k].host) continue;
        if (worst >= 0 && !guard_down(ctx, dev, &g[k])) {
            printf("  %s: wrote outside tensor %d\n", op_table[op].name, k);
            worst = -1;
        }
        tensor got = want[k];
        got.data = g[k].host + GUARD_BYTES;
        if (worst >= 0) worst = fmax(worst, harness_error(&got, &want[k]));
        dev->free(dev, g[k].on_device);
        free(g[k].host);
    }
    return worst;
}

double op_compare(cloob_ctx *ctx, device *dev, op_id op, const op_args *expected, void *const *before, bool *ran)
{
    op_args a = *expected;
    guarded_bytes in[OP_INPUTS] = { { 0 } }, out[OP_OUTPUTS] = { { 0 } };
    cloob_status status = CLOOB_OK;
    *ran = op_find_kernel(dev->backend, op) != NULL;
    if (!*ran) return 0;
    for (int k = 0; k < OP_INPUTS && status == CLOOB_OK; k++)
        if (a.in[k].ndim >= 0) status = guard_up(ctx, dev, before ? before[k] : a.in[k].data, &in[k], &a.in[k]);
    for (int k = 0; k < OP_OUTPUTS && status == CLOOB_OK; k++)
        if (a.out[k].ndim >= 0) status = guard_up(ctx, dev, NULL, &out[k], &a.out[k]);
    if (status == CLOOB_OK) status = call(ctx, dev, op, &a);
    if (status != CLOOB_OK) printf("  %s: %s\n", op_table[op].name, cloob_error(ctx));
    double from_in = collect(ctx, dev, op, expected->in, OP_INPUTS, in); /* in place: running statistics */
    double from_out = collect(ctx, dev, op, expected->out, OP_OUTPUTS, out);
    return status != CLOOB_OK || from_in < 0 || from_out < 0 ? -1 : fmax(from_in, from_out);
}
