/* cloob bench loss and cloob bench search: the objective and a search index, on random embeddings. */
#include <stdio.h>
#include <unistd.h>

#include "cli/json_out.h"
#include "cli/shared_opts.h"
#include "loss/loss.h"
#include "lab/bench/bench.h"

static struct {
    const char *method;
    int64_t n, dim, repeats;
    double inv_tau, scale;
    bool forward;
} o;

/* ---- the objective -------------------------------------------------------------------------------- */

static const opt_row loss_rows[] = {
    { "n", OPT_INT, &o.n, "4096", "N", "pairs", OPT_POSITIVE },
    { "dim", OPT_INT, &o.dim, "512", "D", "width of the embeddings", OPT_POSITIVE },
    { "method", OPT_STRING, &o.method, "cloob", "cloob|clip|infoloob|infonce-hopfield|siglip", "objective", 0 },
    { "init-inv-tau", OPT_DOUBLE, &o.inv_tau, CLOOB_TEXT(CLOOB_DEFAULT_INV_TAU), "T", "inverse temperature", 0 },
    { "scale-hopfield", OPT_DOUBLE, &o.scale, CLOOB_TEXT(CLOOB_DEFAULT_SCALE_HOPFIELD), "B",
      "beta of the Hopfield networks", 0 },
    { "repeats", OPT_INT, &o.repeats, "5", "R", "timed runs after a warm-up run; 0: time the first run",
      OPT_NOT_NEGATIVE },
    { "forward", OPT_FLAG, &o.forward, NULL, NULL, "compute the loss without gradients", 0 },
    OPT_END
};

static void print_loss(const objective_timing *t, const char *precision)
{
    if (!common.json) {
        printf("%.3f ms, %.0f pairs/s, %.1f MiB beyond the embeddings (%s, %s)\n", t->ms, t->pairs_per_s,
               (double)t->peak_bytes / (1024.0 * 1024.0), t->device, precision);
        return;
    }
    json_out_object(NULL, J_NUMBER("ms", t->ms, 6), J_NUMBER("pairs_per_s", t->pairs_per_s, 6), J_OF(t, peak_bytes),
                    J_OF(t, device), J_TEXT("precision", precision), J_OF(&o, n), J_OF(&o, dim), J_OF(&o, method),
                    J_NUMBER("loss", t->loss, 9));
}

static int run_loss(const command *self, cloob_ctx *ctx)
{
    cloob_objective_options l;
    objective_timing t;
    cloob_objective_options_init(&l);
    cloob_method_from_name(o.method, &l.method);
    l.inv_tau = o.inv_tau;
    l.scale_hopfield = o.scale;
    l.device = common.device;
    int code = cli_loss_precision(self, &l.compute);
    if (code >= 0) return code;
    objective_bench b = { o.n, o.dim, (int)o.repeats, o.forward, (uint64_t)common.seed };
    cloob_status status = objective_time(ctx, &l, &b, &t);
    if (status == CLOOB_OK) print_loss(&t, l.compute == CLOOB_BF16 ? "bf16" : "fp32");
    return cli_exit(self, ctx, status);
}

const command bench_loss = {
    .name = "bench loss",
    .run = run_loss,
    .help = "time and memory of the objective with its gradients",
    .options = loss_rows,
    .uses = USES_SEED | USES_PRECISION,
    .usage = "--n N --dim D [--method M] [--precision bf16]",
    .details = "Random unit rows. peak_bytes is what the process, or the GPU, took beyond the embeddings,\n"
               "the gradients included.\n"
               "\n"
               "  cloob bench loss --n 32768 --dim 1024 --precision bf16 --device cuda --json",
};

/* ---- a search index -------------------------------------------------------------------------------- */

static const opt_row search_rows[] = { { "n", OPT_INT, &o.n, "100000", "N", "images in the index", OPT_POSITIVE },
                                       { "dim", OPT_INT, &o.dim, "512", "D", "width of the embeddings", OPT_POSITIVE },
                                       { "repeats", OPT_INT, &o.repeats, "20", "R", "searches", OPT_POSITIVE },
                                       OPT_END };

static void print_search(double ms)
{
    if (!common.json) {
        printf("%.2f ms for the ten nearest of %lld\n", ms, (long long)o.n);
        return;
    }
    json_out_object(NULL, J_NUMBER("ms", ms, 6), J_NUMBER("items_per_s", 1e3 * (double)o.n / ms, 6), J_OF(&o, n),
                    J_OF(&o, dim), J_TEXT("device", "cpu"), J_TEXT("precision", "fp32"));
}

static int run_search(const command *self, cloob_ctx *ctx)
{
    char path[64];
    double ms;
    snprintf(path, sizeof path, "bench_search.%ld.tmp.safetensors", (long)getpid());
    cloob_status status = search_bench(ctx, path, o.n, o.dim, (int)o.repeats, &ms);
    if (status == CLOOB_OK) print_search(ms);
    return cli_exit(self, ctx, status);
}

const command bench_search = {
    .name = "bench search",
    .run = run_search,
    .help = "time of a search over an index of random embeddings",
    .options = search_rows,
    .usage = "--n N --dim D",
    .details = "Writes an index of random unit rows into the current folder, maps it, queries it, removes it. ms is "
               "the median.\n"
               "\n"
               "  cloob bench search --n 100000 --dim 512 --json",
};
