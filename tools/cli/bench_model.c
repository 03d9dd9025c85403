/* cloob bench step and cloob bench embed: speed of training and embedding. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "lab/bench/bench.h"

static struct {
    const char *model, *method, *fit_memory;
    int64_t batch, accum, repeats, text_length;
    bool checkpointing, pack_texts, text, invariant;
} o;

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
    if (o.accum > 0) b->accum = o.accum;
    if (o.method) cloob_method_from_name(o.method, &b->method);
}

static void print(const char *unit, const bench_result *r)
{
    const char *precision = common.precision ? common.precision : "fp32";
    char rate[32];
    if (!common.json) {
        printf("%.2f ms, %.1f %s/s, peak %.0f MiB (%s, %s, %s, batch %lld)\n", r->ms, r->items_per_s, unit,
               (double)r->peak_bytes / 1048576.0, o.model, r->device, precision, (long long)o.batch);
        return;
    }
    snprintf(rate, sizeof rate, "%s_per_s", unit);
    json_out_open(NULL, '{');
    json_out_number("ms", r->ms, 7);
    json_out_number(rate, r->items_per_s, 7);
    json_out_int("peak_bytes", r->peak_bytes);
    json_out_text("device", r->device);
    json_out_text("precision", precision);
    json_out_text("model", o.model);
    json_out_int("batch", o.batch);
    json_out_number("cpu_ms", r->cpu_ms, 6);
    json_out_number("first_ms", r->first_ms, 6);
    json_out_int("planned_bytes", r->planned_bytes);
    json_out_number("loss", r->loss, 9);
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
