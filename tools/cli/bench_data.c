/* cloob bench data: how many samples a second the loader delivers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "data/sets/dataset.h"
#include "lab/bench/bench.h"

static struct {
    const char *source, *vocab, *decoder;
    int64_t workers, batch, size, context, ahead, batches, epochs, num_samples;
    bool eval;
} o;

static cloob_data_options data;

static const opt_row rows[] = {
    { "data", OPT_STRING, &o.source, NULL, "SET", "the data set", 0 },
    { "workers", OPT_INT, &o.workers, "4", "N", "threads that read and decode; 0: the calling thread",
      OPT_NOT_NEGATIVE },
    { "batch-size", OPT_INT, &o.batch, "64", "N", "samples per batch", OPT_POSITIVE },
    { "size", OPT_INT, &o.size, "224", "N", "image size in pixels", OPT_POSITIVE },
    { "ahead", OPT_INT, &o.ahead, "2", "N", "batches to load ahead", OPT_POSITIVE },
    { "batches", OPT_INT, &o.batches, "0", "N", "batches to time; 0: whole epochs", OPT_NOT_NEGATIVE },
    { "epochs", OPT_INT, &o.epochs, "1", "N", "epochs to time", OPT_POSITIVE },
    { "eval", OPT_FLAG, &o.eval, NULL, NULL, "evaluation views in order instead of training crops", 0 },
    { "image-decoder", OPT_STRING, &o.decoder, "cpu", "cpu|gpu", "what decodes and crops JPEGs", 0 },
    { "vocab", OPT_STRING, &o.vocab, NULL, "FILE", "tokenize the captions too, with these merges", 0 },
    { "context-length", OPT_INT, &o.context, "77", "N", "tokens per caption", OPT_POSITIVE },
    { "num-samples", OPT_INT, &o.num_samples, "0", "N", "samples per epoch; 0: all", OPT_NOT_NEGATIVE },
    OPT_END
};
static const opt_set sets[] = { { .table = data_option_table, .into = &data }, OPT_SETS_END };

static void print_text(const data_bench_result *r)
{
    const double mib = 1024.0 * 1024.0;
    printf("%.0f samples/s, %.2f ms per batch (median of %lld), %lld bad\n", r->items_per_s, r->ms,
           (long long)r->batches, (long long)r->bad);
    if (r->cpu_views || strcmp(o.decoder, "gpu") == 0)
        printf("decoded by %s; %lld images by the CPU\n", r->decoder, (long long)r->cpu_views);
    printf("peak %.0f MiB, of which batches %.0f MiB; resident %.0f MiB after the first epoch, %.0f MiB "
           "after the last\n",
           (double)r->peak_bytes / mib, (double)r->buffer_bytes / mib, (double)r->rss_first / mib,
           (double)r->rss_last / mib);
}

static void print_json(const data_bench_result *r)
{
    json_out_object(NULL, J_NUMBER("ms", r->ms, 6), J_NUMBER("items_per_s", r->items_per_s, 6), J_OF(r, peak_bytes),
                    J_TEXT("device", strcmp(o.decoder, "gpu") == 0 ? "cuda" : "cpu"), J_OF(r, decoder),
                    J_OF(r, cpu_views), J_TEXT("precision", "uint8"), J_OF(&o, workers), J_INT("batch_size", o.batch),
                    J_OF(r, batches), J_OF(r, items), J_OF(r, bad), J_NUMBER("wait_share", r->wait_share, 4),
                    J_OF(r, buffer_bytes), J_INT("rss_first_bytes", r->rss_first),
                    J_INT("rss_last_bytes", r->rss_last));
}

static cloob_status bench(cloob_ctx *ctx, const cloob_data_options *d, data_bench_result *r)
{
    cloob_dataset *set;
    data_bench_options b;
    data_bench_options_init(&b);
    b.batch = o.batch;
    b.size = o.size;
    b.context = o.context;
    b.workers = (int)o.workers;
    b.ahead = (int)o.ahead;
    b.batches = o.batches;
    b.epochs = o.epochs;
    b.eval = o.eval;
    b.vocab = o.vocab;
    b.image_decoder = o.decoder;
    b.seed = (uint64_t)common.seed;
    cloob_status status = cloob_dataset_open(ctx, o.source, d, &set);
    if (status != CLOOB_OK) return status;
    status = data_bench(ctx, set, &b, r);
    cloob_dataset_close(set);
    return status;
}

static int run(const command *self, cloob_ctx *ctx)
{
    data_bench_result r;
    if (!o.source && opt_words.count) o.source = opt_words.item[0];
    if (!o.source) o.source = "synthetic";
    if (o.workers > 1024 || o.ahead > 1024) return cli_usage(self, "--workers and --ahead: at most 1024");
    data.num_samples = o.num_samples;
    cloob_status status = bench(ctx, cli_data_ready(&data), &r);
    if (status == CLOOB_OK) (common.json ? print_json : print_text)(&r);
    return cli_exit(self, ctx, status);
}

const command bench_data = {
    .name = "bench data",
    .run = run,
    .help = "samples per second that the loader delivers",
    .options = rows,
    .sets = sets,
    .uses = USES_SEED,
    .usage = "--data SET [--workers N]",
    .details = "Reads, decodes and crops (and tokenizes, with --vocab) as training does, with nothing else to do. "
               "Without --data\n"
               "the images are random and need no decoding. wait_share is the part of the time spent waiting for the "
               "workers.\n"
               "\n"
               "  cloob bench data --data 'shards/{000..009}.tar' --workers 8\n"
               "  cloob bench data --data train.tsv --path-data /data/cc --epochs 20 --json",
};
