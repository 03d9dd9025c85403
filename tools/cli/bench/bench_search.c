/* cloob bench search: how long an index takes to answer. */
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json_out.h"
#include "lab/bench/data_bench.h"

static struct {
    int64_t n, dim, repeats;
} o;

static const opt_row rows[] = { { "n", OPT_INT, &o.n, "100000", "N", "images in the index", OPT_POSITIVE },
                                { "dim", OPT_INT, &o.dim, "512", "D", "width of the embeddings", OPT_POSITIVE },
                                { "repeats", OPT_INT, &o.repeats, "20", "R", "searches", OPT_POSITIVE },
                                OPT_END };

static void print(double ms)
{
    if (!common.json) {
        printf("%.2f ms for the ten nearest of %lld\n", ms, (long long)o.n);
        return;
    }
    json_out_open(NULL, '{');
    json_out_number("ms", ms, 6);
    json_out_number("items_per_s", 1e3 * (double)o.n / ms, 6);
    json_out_int("n", o.n);
    json_out_int("dim", o.dim);
    json_out_text("device", "cpu");
    json_out_text("precision", "fp32");
    json_out_close();
}

static int run(const command *self, cloob_ctx *ctx)
{
    char path[64];
    double ms;
    snprintf(path, sizeof path, "bench_search.%ld.tmp.safetensors", (long)getpid());
    cloob_status status = search_bench(ctx, path, o.n, o.dim, (int)o.repeats, &ms);
    if (status == CLOOB_OK) print(ms);
    return cli_exit(self, ctx, status);
}

const command bench_search = {
    .name = "bench search",
    .run = run,
    .help = "time of a search over an index of random embeddings",
    .options = rows,
    .usage = "--n N --dim D",
    .details = "Writes an index of random unit rows into the current folder, maps it, queries it, removes it. ms is "
               "the median.\n"
               "\n"
               "  cloob bench search --n 100000 --dim 512 --json",
};
