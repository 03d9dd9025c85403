/* Chooses what decodes and crops training images: the CPU workers or the GPU. */
#include <string.h>

#include "core/limits.h"
#include "train/run_setup.h"

static bool asks_for(const run *r, const char *who) { return strcmp(r->o->image_decoder, who) == 0; }

cloob_status run_open_decoder(cloob_ctx *ctx, run *r)
{
    if (asks_for(r, "gpu")) return device_decoder_create(ctx, r->dev, &r->decoder);
    if (!asks_for(r, "auto") || r->dev->backend != BACKEND_CUDA) return CLOOB_OK;
    cloob_status status = device_decoder_create(ctx, r->dev, &r->decoder);
    if (status == CLOOB_ERR_UNSUPPORTED) sbuf_printf(&r->start.notes, "`image_decoder` cpu: %s\n", cloob_error(ctx));
    else if (status == CLOOB_OK && !device_decoder_exact(r->decoder)) {
        sbuf_puts(&r->start.notes,
                  "`image_decoder` cpu: this GPU has no hardware decoders, and without them pixels differ\n");
        device_decoder_destroy(r->decoder);
        r->decoder = NULL;
    }
    return status == CLOOB_ERR_UNSUPPORTED ? CLOOB_OK : status;
}

/* Pairs per second that a loader delivers, without its first batch. */
static cloob_status loader_rate(cloob_ctx *ctx, const run *r, const loader_options *lo, double *out)
{
    enum { COUNTED = 2 };
    loader *l;
    batch b;
    double from = 0;
    CLOOB_TRY(loader_create(ctx, r->train, r->tok, lo, &l));
    cloob_status status = CLOOB_OK;
    for (int taken = 0; taken <= COUNTED && status == CLOOB_OK;) {
        status = loader_next(ctx, l, &b);
        if (status != CLOOB_OK || b.end) continue;
        if (taken++ == 0) from = clock_seconds();
    }
    double seconds = clock_seconds() - from;
    *out = seconds > 0 ? (double)(COUNTED * lo->batch) / seconds : 0;
    loader_destroy(l);
    return status;
}

/* The faster of the two; the CPU when the difference is small. */
static cloob_status time_both(cloob_ctx *ctx, run *r, loader_options *lo, int64_t *faster)
{
    double cpu = 0, gpu = 0;
    CLOOB_TRY(loader_rate(ctx, r, lo, &cpu));
    lo->decoder = r->decoder;
    CLOOB_TRY(loader_rate(ctx, r, lo, &gpu));
    *faster = gpu > 1.1 * cpu;
    sbuf_printf(&r->start.notes, "`image_decoder` %s: the CPU delivers %.0f images/s, %s %.0f\n",
                *faster ? "gpu" : "cpu", cpu, device_decoder_name(r->decoder), gpu);
    return CLOOB_OK;
}

/* The majority of the ranks decides. */
cloob_status run_choose_decoder(cloob_ctx *ctx, run *r, loader_options *lo)
{
    if (asks_for(r, "auto")) {
        int64_t votes = 0;
        CLOOB_TRY(comm_agree(ctx, r->c, r->decoder ? time_both(ctx, r, lo, &votes) : CLOOB_OK));
        if (comm_size(r->c) > 1) CLOOB_TRY(comm_host_sum(ctx, r->c, &votes, 1));
        r->options.image_decoder = 2 * votes > comm_size(r->c) ? "gpu" : "cpu"; /* in params.txt and for later stages */
    }
    lo->decoder = asks_for(r, "gpu") ? r->decoder : NULL;
    return CLOOB_OK;
}

void run_log_decoder(cloob_ctx *ctx, run *r, bool done)
{
    if (!asks_for(r, "gpu") || !r->batches) return;
    loader_stats s = loader_stats_take(r->batches);
    if (!done) journal_line(ctx, r->log, "images are decoded by %s", device_decoder_name(r->decoder));
    else journal_line(ctx, r->log, "%lld images were decoded by the CPU instead", (long long)s.cpu_views);
}

size_t run_decoder_bytes(const run *r)
{
    if (!r->decoder) return 0;
    loader_options lo;
    loader_options_init(&lo);
    lo.batch = r->o->batch_size * r->o->accum_freq;
    lo.workers = (int)r->o->workers;
    lo.view.size = r->so.model.image_size;
    return loader_device_bytes(&lo);
}
