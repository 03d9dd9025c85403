/* Profiles a training step on the GPU: records an event before every call of both towers and sums the times per op and
 * per shape.
 *
 *     bench_step_ops MODEL BATCH [keep] [packed] [log]      keep: nothing is recomputed; packed: packed
 *         texts of 7 to 21 tokens; log: how kernels were chosen
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "tensor/cuda/cuda.h"
#include "train/step.h"

enum { MARKS = 8192, STEPS = 5, WARM = 3, NAME = 96, GROUPS = 1024 };

static cloob_ctx *ctx;
static device *dev;

typedef struct mark {
    const char *name;
    const op_group *call;
    cudaEvent_t at;
} mark;
static mark marks[MARKS];
static int mark_count;

typedef struct group {
    char name[NAME];
    double ms, bytes;
    int calls;
} group;
static group by_op[GROUPS], by_shape[GROUPS];

static void fail(const char *what)
{
    fprintf(stderr, "bench_step_ops: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}

static void on_call(void *user, const char *name, const op_group *call)
{
    (void)user;
    if (mark_count == MARKS) return;
    mark *m = &marks[mark_count++];
    if (!m->at) cudaEventCreate(&m->at);
    m->name = name, m->call = call;
    cudaEventRecord(m->at, dev->stream);
}

/* ---- sums ---------------------------------------------------------------------------------------- */

static void add(group *table, const char *name, double ms, double bytes)
{
    int i = 0;
    while (i < GROUPS - 1 && table[i].calls && strcmp(table[i].name, name) != 0) i++;
    snprintf(table[i].name, NAME, "%s", name);
    table[i].ms += ms, table[i].bytes += bytes, table[i].calls++;
}

/* Of what a call reads and writes; what its members have between them counts once, or not at all without memory. */
static double bytes_of(const op_group *g)
{
    double bytes = 0;
    for (int i = 0; i < g->members; i++) {
        const op_args *a = g->member[i];
        for (int k = 0; k < OP_INPUTS; k++) {
            bool inside = false;
            for (int n = 0; n < i * OP_OUTPUTS; n++)
                inside = inside || g->member[n / OP_OUTPUTS]->out[n % OP_OUTPUTS].data == a->in[k].data;
            if (a->in[k].data && !inside && !op_lends_shape(a->op, k)) bytes += (double)tensor_bytes(&a->in[k]);
        }
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (a->out[k].data) bytes += (double)tensor_bytes(&a->out[k]);
    }
    return bytes;
}

static void shape_text(const tensor *t, char *out, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < t->ndim && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, i ? "x%lld" : "%lld", (long long)t->dim[i]);
}

/* By the first member's shapes. */
static void describe(const char *call, const op_group *g, char name[NAME])
{
    const op_args *a = g->member[0];
    char x[32] = "", w[32] = "", y[32] = "";
    unsigned there = 0;
    for (int k = 0; k < OP_INPUTS; k++) there |= (unsigned)(a->in[k].ndim >= 0) << k;
    for (int k = 0; k < OP_OUTPUTS; k++) there |= (unsigned)(a->out[k].ndim >= 0) << (k + OP_INPUTS);
    shape_text(&a->in[0], x, sizeof x);
    if (a->in[1].ndim > 0) shape_text(&a->in[1], w, sizeof w);
    if (a->out[0].ndim > 0) shape_text(&a->out[0], y, sizeof y);
    snprintf(name, NAME, "%-14s %s . %s -> %s%s%s [%x]", call, x, w, y, a->attr.relu ? " relu" : "",
             a->attr.pool ? " pool" : "", there);
}

static void collect(void)
{
    for (int i = 0; i + 1 < mark_count; i++) {
        float ms = 0;
        char name[NAME];
        cudaEventElapsedTime(&ms, marks[i].at, marks[i + 1].at);
        if (!marks[i].name) {
            add(by_op, "(between: inputs, loss, update)", ms, 0);
            continue;
        }
        add(by_op, marks[i].name, ms, bytes_of(marks[i].call));
        describe(marks[i].name, marks[i].call, name);
        add(by_shape, name, ms, bytes_of(marks[i].call));
    }
}

static int by_time(const void *a, const void *b)
{
    double x = ((const group *)a)->ms, y = ((const group *)b)->ms;
    return (x < y) - (x > y);
}

static void print(group *table, const char *title, int max)
{
    qsort(table, GROUPS, sizeof *table, by_time);
    printf("%s: ms per step, calls, GB/s over what is named\n", title);
    for (int i = 0; i < max && table[i].calls; i++)
        printf("%8.3f x%-4d %6.0f  %s\n", table[i].ms / STEPS, table[i].calls / STEPS,
               table[i].bytes / table[i].ms / 1e6, table[i].name);
}

/* Calls are timed one after the other: the towers must not run concurrently. */
static bool one_queue(void)
{
    dev->side = NULL;
    return true;
}

/* ---- the step ------------------------------------------------------------------------------------ */

static void fill_inputs(const step_options *o, uint8_t **rgb, int32_t **tokens)
{
    int64_t pixels = o->batch * o->model.image_size * o->model.image_size * 3, T = o->model.context;
    *rgb = malloc((size_t)pixels), *tokens = calloc((size_t)(o->batch * T), sizeof **tokens);
    for (int64_t i = 0; i < pixels; i++) (*rgb)[i] = (uint8_t)rng_u64(1, (uint64_t)i);
    for (int64_t i = 0; i < o->batch * T; i++)
        (*tokens)[i] = i % T == (o->pack_texts ? 6 + i / T % 15 : T / 2)
                           ? (int32_t)o->model.vocab - 1
                           : (int32_t)rng_below(2, (uint64_t)i, (uint64_t)o->model.vocab - 3);
}

static void print_line(void *user, cloob_log_level level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    step_options o;
    step_result r;
    step *s;
    uint8_t *rgb;
    int32_t *tokens;
    float total = 0;
    cudaEvent_t from, to;
    if (argc < 3) return fprintf(stderr, "usage: bench_step_ops MODEL BATCH [keep] [packed] [log]\n"), 2;
    cloob_ctx_options co;
    cloob_ctx_options_init(&co);
    co.log = print_line, co.log_level = CLOOB_LOG_DEBUG;
    for (int i = 3; i < argc && !ctx; i++)
        if (strcmp(argv[i], "log") == 0) ctx = cloob_ctx_create(&co);
    if (!ctx) ctx = cloob_ctx_create(NULL);
    step_options_init(&o);
    o.compute = CLOOB_BF16, o.batch = atoll(argv[2]), o.eager = true;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "keep") == 0) o.grad.recompute = false;
        if (strcmp(argv[i], "packed") == 0) o.pack_texts = true;
    }
    if (model_config_load(ctx, argv[1], &o.model) != CLOOB_OK || device_open(ctx, "cuda", &dev) != CLOOB_OK ||
        !one_queue() || step_create(ctx, &o, dev, NULL, &s) != CLOOB_OK ||
        params_init(ctx, step_params(s), 1) != CLOOB_OK)
        fail("step");
    fill_inputs(&o, &rgb, &tokens);
    for (int i = 0; i < WARM; i++)
        if (step_run(ctx, s, rgb, tokens, 1e-4, &r) != CLOOB_OK) fail("step");
    cudaEventCreate(&from), cudaEventCreate(&to);
    cudaEventRecord(from, dev->stream);
    for (int i = 0; i < STEPS; i++)
        if (step_run(ctx, s, rgb, tokens, 1e-4, &r) != CLOOB_OK) fail("step");
    cudaEventRecord(to, dev->stream);
    cudaEventSynchronize(to);
    cudaEventElapsedTime(&total, from, to);
    for (int t = 0; t < 2; t++) exec_on_call(step_tower(s, t), on_call, NULL);
    for (int i = 0; i < STEPS; i++) {
        if (step_run(ctx, s, rgb, tokens, 1e-4, &r) != CLOOB_OK) fail("step");
        if (dev->sync(ctx, dev) != CLOOB_OK) fail("step");
        on_call(NULL, NULL, NULL);
        dev->sync(ctx, dev);
        collect();
        mark_count = 0;
    }
    step_memory m = step_memory_of(s);
    print(by_shape, "by shape", 70);
    print(by_op, "by op", 60);
    printf("%s batch %lld%s: %.2f ms, %.0f pairs/s, loss %.4f; GiB: params %.2f optimizer %.2f image %.2f text %.2f "
           "loss %.2f total %.2f\n",
           argv[1], (long long)o.batch, o.grad.recompute ? "" : " keep", (double)total / STEPS,
           (double)o.batch * STEPS * 1e3 / (double)total, r.loss, (double)m.params_bytes / 0x1p30,
           (double)m.optimizer_bytes / 0x1p30, (double)m.image_bytes / 0x1p30, (double)m.text_bytes / 0x1p30,
           (double)m.loss_bytes / 0x1p30, (double)m.total_bytes / 0x1p30);
    exec_memory im = exec_memory_of(step_tower(s, false)), tm = exec_memory_of(step_tower(s, true));
    printf("arenas, GiB (least): image %.3f (%.3f), text %.3f (%.3f)\n", (double)im.arena_bytes / 0x1p30,
           (double)im.lower_bound_bytes / 0x1p30, (double)tm.arena_bytes / 0x1p30,
           (double)tm.lower_bound_bytes / 0x1p30);
    step_destroy(s);
    device_close(dev);
    return 0;
}
