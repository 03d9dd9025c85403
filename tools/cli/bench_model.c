/* cloob bench step and cloob bench embed: speed of training and embedding. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "lab/bench/bench.h"

static struct {
    const char *model, *method, *fit_memory;
    int64_t batch, accum, repeats, text_length;
    bool checkpointing, pack_texts, text, invariant, profile;
} o;
static profile ops; /* of --profile */

#define SHARED_ROWS                                                                                                    \
    { "model", OPT_STRING, &o.model, "RN50", "MODEL", "a model's name or a .json file", 0 },                           \
    {                                                                                                                  \
        "repeats", OPT_INT, &o.repeats, "5", "R", "timed runs after a warm-up run", OPT_POSITIVE                       \
    }

static const opt_row step_rows[] = {
    SHARED_ROWS,
    { "batch-size", OPT_INT, &o.batch, "32", "B", "pairs per micro-batch", OPT_POSITIVE },
    { "accum-freq", OPT_INT, &o.accum, "1", "N", "micro-batches per step", OPT_POSITIVE },
    { "method", OPT_STRING, &o.method, "cloob", "cloob|clip|infoloob|infonce-hopfield|siglip", "objective", 0 },
    { "grad-checkpointing", OPT_FLAG, &o.checkpointing, NULL, NULL, "less memory, one more forward pass", 0 },
    { "fit-memory", OPT_STRING, &o.fit_memory, NULL, "SIZE",
      "recompute just enough activations to fit into SIZE, such as 80G", 0 },
    { "pack-texts", OPT_FLAG, &o.pack_texts, NULL, NULL,
      "skip padding: the text tower computes tokens up to each end token only", 0 },
    { "text-length", OPT_INT, &o.text_length, "0", "L",
      "mean tokens per text, uniform from L/2 to 3L/2; 0: from 4 to the context length", OPT_NOT_NEGATIVE },
    { "profile", OPT_FLAG, &o.profile, NULL, NULL, "also print the time of every op; such a step is slower", 0 },
    OPT_END
};

static const opt_row embed_rows[] = {
    SHARED_ROWS,
    { "batch-size", OPT_INT, &o.batch, "32", "B", "images or texts per batch", OPT_POSITIVE },
    { "text", OPT_FLAG, &o.text, NULL, NULL, "embed texts instead of images", 0 },
    { "invariant", OPT_FLAG, &o.invariant, NULL, NULL, "a row has the same bytes in any batch, as in cloob embed", 0 },
    OPT_END
};

static void fill(bench_options *b)
{
    bench_options_init(b);
    b->model = o.model;
    b->device = common.device;
    b->precision = common.precision;
    b->batch = o.batch;
    b->repeats = (int)o.repeats;
    b->seed = (uint64_t)common.seed;
    b->text = o.text;
    b->invariant = o.invariant;
    b->grad_checkpointing = o.checkpointing;
    b->pack_texts = o.pack_texts;
    b->fit_memory = o.fit_memory;
    b->text_length = o.text_length;
    b->profile = o.profile ? &ops : NULL;
    if (o.accum > 0) b->accum = o.accum;
    if (o.method) cloob_method_from_name(o.method, &b->method);
}

static void print_profile(void)
{
    printf("%10s %7s %7s  %s\n", "ms", "share", "calls", "op");
    for (int i = 0; i < ops.rows; i++)
        printf("%10.3f %5.1f %% %7lld  %s\n", ops.row[i].ms, 100 * ops.row[i].ms / ops.step_ms,
               (long long)ops.row[i].calls, ops.row[i].name);
    printf("%10.3f %5.1f %% %7s  objective, optimizer, copies\n", ops.rest_ms, 100 * ops.rest_ms / ops.step_ms, "");
}

static void put_profile(void)
{
    json_out_open("ops", '[');
    for (int i = 0; i < ops.rows; i++) {
        json_out_open(NULL, '{');
        json_out_text("op", ops.row[i].name);
        json_out_int("calls", ops.row[i].calls);
        json_out_number("ms", ops.row[i].ms, 6);
        json_out_close();
    }
    json_out_close();
    json_out_number("rest_ms", ops.rest_ms, 6);
}

static void print(const char *unit, const bench_result *r)
{
    char rate[32];
    if (!common.json) {
        printf("%.2f ms, %.1f %s/s, peak %.0f MiB (%s, %s, %s, batch %lld)\n", r->ms, r->items_per_s, unit,
               (double)r->peak_bytes / 1048576.0, o.model, r->device, r->precision, (long long)o.batch);
        if (o.profile) print_profile();
        return;
    }
    snprintf(rate, sizeof rate, "%s_per_s", unit);
    json_out_open(NULL, '{');
    json_out_members(J_NUMBER("ms", r->ms, 7), J_NUMBER(rate, r->items_per_s, 7), J_OF(r, peak_bytes), J_OF(r, device),
                     J_OF(r, precision), J_OF(&o, model), J_OF(&o, batch), J_NUMBER("cpu_ms", r->cpu_ms, 6),
                     J_NUMBER("first_ms", r->first_ms, 6), J_OF(r, planned_bytes), J_NUMBER("loss", r->loss, 9));
    if (o.profile) put_profile();
    json_out_close();
}

typedef cloob_status bench_fn(cloob_ctx *ctx, const bench_options *o, bench_result *out);

static int run(const command *self, cloob_ctx *ctx, bench_fn *bench, const char *unit)
{
    bench_options b;
    bench_result r;
    fill(&b);
    cloob_status status = bench(ctx, &b, &r);
    if (status == CLOOB_OK) print(unit, &r);
    return cli_exit(self, ctx, status);
}

static int run_step(const command *self, cloob_ctx *ctx) { return run(self, ctx, step_timing, "pairs"); }
static int run_embed(const command *self, cloob_ctx *ctx) { return run(self, ctx, embed_timing, "items"); }

const command bench_step = {
    .name = "bench step",
    .run = run_step,
    .stray = "unexpected argument",
    .help = "time and memory of a full training step",
    .options = step_rows,
    .uses = USES_SEED | USES_PRECISION,
    .usage = "--model RN50 --batch-size B [--method M] [--precision bf16]",
    .details =
        "Random pairs, freshly initialised weights: both towers forward, the objective, backward, AdamW. ms is "
        "the median.\n"
        "peak_bytes is the process's largest resident size, on a GPU the memory in use there.\n"
        "--profile lists the ops of both towers with their calls and time in one step, the slowest first. The device\n"
        "waits for each of them, so the step is slower than without.\n"
        "\n"
        "  cloob bench step --model RN50 --batch-size 512 --method cloob --device cuda --precision amp_bf16 --json",
};

const command bench_embed = {
    .name = "bench embed",
    .run = run_embed,
    .stray = "unexpected argument",
    .help = "time of embedding images or texts",
    .options = embed_rows,
    .uses = USES_SEED | USES_PRECISION,
    .usage = "--model RN50 --batch-size B [--text]",
    .details =
        "From bytes or tokens in host memory to unit rows in host memory; random inputs, freshly initialised weights.\n"
        "\n"
        "  cloob bench embed --model RN50 --batch-size 1 --device cpu --json",
};
