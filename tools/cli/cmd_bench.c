/* cloob bench: the speed of one component on random inputs. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "loss/loss.h"
#include "data/sets/dataset.h"
#include "lab/bench/bench.h"

#define METHODS "cloob|clip|infoloob|infonce-hopfield|siglip"

static const char *method;

/* ---- training and embedding ------------------------------------------------------------------------ */

static bench_options model;
static profile ops; /* rows of --profile */
static bool profiled;

#define MODEL_ROWS                                                                                                     \
    { "model", OPT_STRING, &model.model, "RN50", "MODEL", "a model's name or a .json file", 0 },                       \
        { "repeats", OPT_INT, &model.repeats, "5", "R", "timed runs after a warm-up run", OPT_POSITIVE },              \
    {                                                                                                                  \
        "profile", OPT_FLAG, &profiled, NULL, NULL, "also print the time of every op; a profiled run is slower", 0     \
    }

static const opt_row step_rows[] = {
    MODEL_ROWS,
    { "batch-size", OPT_INT, &model.batch, "32", "B", "pairs per micro-batch", OPT_POSITIVE },
    { "accum-freq", OPT_INT, &model.accum, "1", "N", "micro-batches per step", OPT_POSITIVE },
    { "method", OPT_STRING, &method, "cloob", METHODS, "objective", 0 },
    { "grad-checkpointing", OPT_FLAG, &model.grad_checkpointing, NULL, NULL, "less memory, one more forward pass", 0 },
    { "fit-memory", OPT_STRING, &model.fit_memory, NULL, "SIZE",
      "recompute just enough activations to fit into SIZE, such as 80G", 0 },
    { "pack-texts", OPT_FLAG, &model.pack_texts, NULL, NULL,
      "skip padding: the text tower computes tokens up to each end token only", 0 },
    { "text-length", OPT_INT, &model.text_length, "0", "L",
      "mean tokens per text, uniform from L/2 to 3L/2; 0: from 4 to the context length", OPT_NOT_NEGATIVE },
    CLI_TRAIN_PRECISION_ROW,
    OPT_END
};

static const opt_row embed_rows[] = { MODEL_ROWS,
                                      { "batch-size", OPT_INT, &model.batch, "32", "B", "images or texts per batch",
                                        OPT_POSITIVE },
                                      { "text", OPT_FLAG, &model.text, NULL, NULL, "embed texts instead of images", 0 },
                                      { "invariant", OPT_FLAG, &model.invariant, NULL, NULL,
                                        "a row has the same bytes in any batch, as in cloob embed", 0 },
                                      OPT_END };

static void print_profile(void)
{
    printf("\n%10s %7s %7s %8s %7s  %s\n", "ms", "share", "calls", "GFLOP/s", "GB/s", "op");
    for (int i = 0; i < ops.rows; i++) {
        const profile_row *r = &ops.row[i];
        char rate[16] = "";
        if (r->flops > 0) snprintf(rate, sizeof rate, "%.0f", 1e-6 * r->flops / r->ms);
        printf("%10.3f %5.1f %% %7lld %8s %7.1f  %s\n", r->ms, 100 * r->ms / ops.run_ms, (long long)r->calls, rate,
               1e-6 * r->bytes / r->ms, r->name);
    }
    printf("%10.3f %5.1f %% %25s %s\n", ops.rest_ms, 100 * ops.rest_ms / ops.run_ms, "",
           ops.shapes ? "input and output" : "objective, optimizer, copies");
}

static void put_profile(void)
{
    json_out_open("ops", '[');
    for (int i = 0; i < ops.rows; i++)
        json_out_object(NULL, J_TEXT("op", ops.row[i].name), J_OF(&ops.row[i], calls), J_NUMBER("ms", ops.row[i].ms, 6),
                        J_NUMBER("flops", ops.row[i].flops, 6), J_NUMBER("bytes", ops.row[i].bytes, 6));
    json_out_close();
    json_out_number("rest_ms", ops.rest_ms, 6);
}

static void print_model(const char *unit, const bench_result *r)
{
    char rate[32];
    snprintf(rate, sizeof rate, "%s_per_s", unit);
    const json_member shown[] = { J_NUMBER("ms", r->ms, 7),
                                  J_NUMBER(rate, r->items_per_s, 7),
                                  J_OF(r, peak_bytes),
                                  J_OF(r, device),
                                  J_OF(r, precision),
                                  J_OF(&model, model),
                                  J_OF(&model, batch),
                                  J_NUMBER("cpu_ms", r->cpu_ms, 6),
                                  J_NUMBER("first_ms", r->first_ms, 6),
                                  J_OF(r, planned_bytes),
                                  J_NUMBER("loss", r->loss, 9) };
    size_t n = sizeof shown / sizeof *shown - (r->planned_bytes ? 0 : 2); /* embedding has no plan and no loss */
    cli_show(shown, n, !profiled ? NULL : common.json ? put_profile : print_profile);
}

typedef cloob_status bench_fn(cloob_ctx *ctx, const bench_options *o, bench_result *out);

static int run_model(const command *self, cloob_ctx *ctx, bench_fn *bench, const char *unit)
{
    bench_result r;
    model.device = common.device, model.precision = common.precision, model.seed = (uint64_t)common.seed;
    model.profile = profiled ? &ops : NULL;
    if (!model.accum) model.accum = 1;
    if (method) loss_method_from_name(method, &model.method);
    cloob_status status = bench(ctx, &model, &r);
    if (status == CLOOB_OK) print_model(unit, &r);
    return cli_exit(self, ctx, status);
}

static int run_step(const command *self, cloob_ctx *ctx) { return run_model(self, ctx, step_timing, "pairs"); }
static int run_embed(const command *self, cloob_ctx *ctx) { return run_model(self, ctx, embed_timing, "items"); }

const command bench_step = {
    .name = "bench step",
    .run = run_step,
    .stray = "unexpected argument",
    .help = "time and memory of a full training step",
    .options = step_rows,
    .uses = USES_SEED,
    .usage = "--model RN50 --batch-size B [--method M] [--precision bf16]",
    .details =
        "Random pairs, freshly initialised weights: both towers forward, the objective, backward, AdamW. ms is the "
        "median. peak_bytes is the largest resident size of the process, or on a GPU the memory in use. --profile "
        "lists the ops of both towers, slowest first: calls and time per step, and GFLOP and GB of operands per "
        "second. The device is synchronised after each op, so a profiled run is slower.\n"
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
        "From bytes or tokens in host memory to unit rows in host memory; random inputs, freshly initialised weights. "
        "--profile lists the ops, slowest first; matrix multiplications and convolutions have a row for each size.\n"
        "\n"
        "  cloob bench embed --model RN50 --batch-size 1 --device cpu --json",
};

/* ---- reading data ------------------------------------------------------------------------------------ */

static data_bench_options data;
static const char *source;
static int64_t num_samples;
static cloob_data_options data_set;

static const opt_row data_rows[] = {
    { "data", OPT_STRING, &source, "synthetic", "SET", "the data set; default: random images", 0 },
    { "workers", OPT_INT, &data.workers, "4", "N", "threads that read and decode; 0: the calling thread",
      OPT_NOT_NEGATIVE },
    { "batch-size", OPT_INT, &data.batch, "64", "N", "samples per batch", OPT_POSITIVE },
    { "size", OPT_INT, &data.size, "224", "N", "image size in pixels", OPT_POSITIVE },
    { "ahead", OPT_INT, &data.ahead, "2", "N", "batches to load ahead", OPT_POSITIVE },
    { "batches", OPT_INT, &data.batches, "0", "N", "batches to time; 0: whole epochs", OPT_NOT_NEGATIVE },
    { "epochs", OPT_INT, &data.epochs, "1", "N", "epochs to time", OPT_POSITIVE },
    { "eval", OPT_FLAG, &data.eval, NULL, NULL, "evaluation views in order instead of training crops", 0 },
    { "image-decoder", OPT_STRING, &data.image_decoder, "cpu", "cpu|gpu", "where JPEGs are decoded and cropped", 0 },
    { "vocab", OPT_STRING, &data.vocab, NULL, "FILE", "tokenize the captions too, with these merges", 0 },
    { "context-length", OPT_INT, &data.context, "77", "N", "tokens per caption", OPT_POSITIVE },
    { "num-samples", OPT_INT, &num_samples, "0", "N", "samples per epoch; 0: all", OPT_NOT_NEGATIVE },
    OPT_END
};
static const opt_set data_sets[] = { { .table = data_option_table, .into = &data_set }, OPT_SETS_END };

static int run_data(const command *self, cloob_ctx *ctx)
{
    data_bench_result r;
    cloob_dataset *set = NULL;
    if (!opt_given("data") && opt_words.count) source = opt_words.item[0];
    if (data.workers > 1024 || data.ahead > 1024) return cli_usage(self, "--workers and --ahead must be at most 1024");
    data.seed = (uint64_t)common.seed, data_set.num_samples = num_samples;
    cloob_status status = cloob_dataset_open(ctx, source, cli_data_ready(&data_set), &set);
    if (status == CLOOB_OK) status = data_bench(ctx, set, &data, &r);
    if (status == CLOOB_OK)
        cli_result(J_NUMBER("ms", r.ms, 6), J_NUMBER("items_per_s", r.items_per_s, 6), J_OF(&r, peak_bytes),
                   J_TEXT("device", strcmp(data.image_decoder, "gpu") == 0 ? "cuda" : "cpu"), J_OF(&r, decoder),
                   J_OF(&r, cpu_views), J_TEXT("precision", "uint8"), J_OF(&data, workers),
                   J_INT("batch_size", data.batch), J_OF(&r, batches), J_OF(&r, items), J_OF(&r, bad),
                   J_NUMBER("wait_share", r.wait_share, 4), J_OF(&r, buffer_bytes),
                   J_INT("rss_first_bytes", r.rss_first), J_INT("rss_last_bytes", r.rss_last));
    cloob_dataset_close(set);
    return cli_exit(self, ctx, status);
}

const command bench_data = {
    .name = "bench data",
    .run = run_data,
    .help = "samples per second of the data loader",
    .options = data_rows,
    .sets = data_sets,
    .uses = USES_SEED,
    .usage = "[--data SET] [--workers N]",
    .details = "Reads, decodes and crops (and tokenizes, with --vocab) as training does, without training. "
               "Without --data the images are random and need no decoding. wait_share is the part of the time spent "
               "waiting for the workers.\n"
               "\n"
               "  cloob bench data --data 'shards/{000..009}.tar' --workers 8\n"
               "  cloob bench data --data train.tsv --path-data /data/cc --epochs 20 --json",
};

/* ---- the objective ----------------------------------------------------------------------------------- */

static int64_t n, dim, repeats;
static cloob_objective_options objective;
static bool forward;

static const opt_row loss_rows[] = {
    { "n", OPT_INT, &n, "4096", "N", "pairs", OPT_POSITIVE },
    { "dim", OPT_INT, &dim, "512", "D", "width of the embeddings", OPT_POSITIVE },
    { "method", OPT_STRING, &method, "cloob", METHODS, "objective", 0 },
    { "init-inv-tau", OPT_DOUBLE, &objective.inv_tau, CLOOB_TEXT(CLOOB_DEFAULT_INV_TAU), "T", "inverse temperature",
      0 },
    { "scale-hopfield", OPT_DOUBLE, &objective.scale_hopfield, CLOOB_TEXT(CLOOB_DEFAULT_SCALE_HOPFIELD), "B",
      "beta of the Hopfield networks", 0 },
    { "repeats", OPT_INT, &repeats, "5", "R", "timed runs after a warm-up run; 0: time the first run",
      OPT_NOT_NEGATIVE },
    { "forward", OPT_FLAG, &forward, NULL, NULL, "compute the loss without gradients", 0 },
    CLI_TRAIN_PRECISION_ROW,
    OPT_END
};

static int run_loss(const command *self, cloob_ctx *ctx)
{
    bench_result t;
    cloob_objective_options o;
    cloob_objective_options_init(&o);
    o.inv_tau = objective.inv_tau, o.scale_hopfield = objective.scale_hopfield, o.device = common.device;
    loss_method_from_name(method, &o.method);
    o.compute = cli_loss_precision();
    loss_bench b = { n, dim, repeats, forward, (uint64_t)common.seed };
    cloob_status status = loss_timing(ctx, &o, &b, &t);
    if (status == CLOOB_OK)
        cli_result(J_NUMBER("ms", t.ms, 6), J_NUMBER("pairs_per_s", t.items_per_s, 6), J_OF(&t, peak_bytes),
                   J_OF(&t, device), J_TEXT("precision", o.compute == CLOOB_BF16 ? "bf16" : "fp32"), J_INT("n", n),
                   J_INT("dim", dim), J_TEXT("method", method), J_NUMBER("loss", t.loss, 9));
    return cli_exit(self, ctx, status);
}

const command bench_loss = {
    .name = "bench loss",
    .run = run_loss,
    .help = "time and memory of the objective with its gradients",
    .options = loss_rows,
    .uses = USES_SEED,
    .usage = "--n N --dim D [--method M] [--precision bf16]",
    .details =
        "Random unit rows. peak_bytes is the memory of the process, or on the GPU, in addition to the embeddings; it "
        "includes the gradients.\n"
        "\n"
        "  cloob bench loss --n 32768 --dim 1024 --precision bf16 --device cuda --json",
};
