/* Reading data against the clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/needs.h"
#include "data/load/loader.h"
#include "data/load/loader_parts.h"
#include "lab/bench/bench.h"
#include "lab/memory.h"

static int64_t resident_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*s %lld", &pages) != 1) pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

typedef struct timing {
    double *ms;
    int64_t count, capacity;
    double begin, end; /* of the timed batches */
    int64_t items;
} timing;

/* The first batch is not counted: it waits for files to be opened and buffers to grow. */
static void note(timing *t, const batch *b, double from)
{
    double now = clock_seconds();
    if (t->begin == 0) t->begin = now;
    else {
        if (t->count < t->capacity) t->ms[t->count++] = 1e3 * (now - from);
        t->items += b->rows;
        t->end = now;
    }
}

static cloob_status take_batches(cloob_ctx *ctx, loader *l, int64_t batches, timing *t, data_bench_result *out)
{
    for (int64_t i = 0; i <= batches;) {
        batch b;
        double from = clock_seconds();
        CLOOB_TRY(loader_next(ctx, l, &b));
        if (b.end || i == batches) {
            if (!out->rss_first) out->rss_first = resident_bytes();
            out->rss_last = resident_bytes();
        }
        if (b.end) continue;
        note(t, &b, from);
        i++;
    }
    return CLOOB_OK;
}

static loader_options to_loader(const data_bench_options *o)
{
    loader_options lo;
    loader_options_init(&lo);
    lo.batch = o->batch;
    lo.workers = (int)o->workers;
    lo.ahead = (int)o->ahead;
    lo.seed = o->seed;
    lo.train = !o->eval;
    lo.context = o->context;
    transform_options_init(&lo.view, o->size);
    return lo;
}

static cloob_status time_loader(cloob_ctx *ctx, loader *l, const data_bench_options *o, data_bench_result *out)
{
    int64_t batches = o->batches > 0 ? o->batches : loader_batches(l) * (o->epochs > 0 ? o->epochs : 1) - 1;
    if (batches < 1) batches = 1;
    timing t = { .capacity = batches, .ms = must(malloc((size_t)batches * sizeof(double))) };
    cloob_status status = take_batches(ctx, l, batches, &t, out);
    loader_stats s = loader_stats_take(l);
    double seconds = t.end - t.begin;
    out->items = t.items;
    out->batches = t.count;
    out->items_per_s = seconds > 0 ? (double)t.items / seconds : 0;
    out->ms = median(t.ms, t.count);
    out->wait_share = s.wall_seconds > 0 ? s.wait_seconds / s.wall_seconds : 0;
    out->bad = s.bad_samples;
    out->cpu_views = s.cpu_views;
    snprintf(out->decoder, sizeof out->decoder, "%s", l->o.decoder ? device_decoder_name(l->o.decoder) : "CPU");
    out->buffer_bytes = (int64_t)loader_buffer_bytes(l);
    out->peak_bytes = peak_bytes();
    free(t.ms);
    return status;
}

void data_bench_options_init(data_bench_options *o)
{
    if (!o) return;
    *o = (data_bench_options){ .batch = 64, .size = 224, .context = 77, .workers = 4, .ahead = 2, .epochs = 1 };
}

cloob_status data_bench(cloob_ctx *ctx, const cloob_dataset *d, const data_bench_options *o, data_bench_result *out)
{
    API_NEEDS(ctx, d && o && out);
    bool gpu = o->image_decoder && strcmp(o->image_decoder, "gpu") == 0;
    device *dev = NULL;
    tokenizer *tok = NULL;
    loader *l = NULL;
    loader_options lo = to_loader(o);
    *out = (data_bench_result){ 0 };
    cloob_status status = o->vocab ? cloob_tokenizer_open(ctx, o->vocab, &tok) : CLOOB_OK;
    if (status == CLOOB_OK && gpu && !device_cuda_count())
        status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "`image_decoder` gpu: there is no GPU to use; use cpu");
    if (status == CLOOB_OK && gpu) status = device_open(ctx, "cuda", &dev);
    if (status == CLOOB_OK && gpu) status = device_decoder_create(ctx, dev, &lo.decoder);
    if (status == CLOOB_OK) status = loader_create(ctx, d, tok, &lo, &l);
    if (status == CLOOB_OK) status = time_loader(ctx, l, o, out);
    loader_destroy(l);
    device_decoder_destroy(lo.decoder);
    device_close(dev);
    if (tok) cloob_tokenizer_close(tok);
    return status;
}
