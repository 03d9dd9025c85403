/* Thin bodies of include/cloob/bench.h. */
#include "cloob/bench.h"

#include <stdio.h>

#include "data/view/device_view.h"
#include "tensor/device.h"
#include "lab/bench/bench.h"
#include "core/needs.h"

void cloob_bench_options_init(cloob_bench_options *o)
{
    if (!o) return;
    *o = (cloob_bench_options){ .model = "RN50", .batch = 32, .accum = 1, .repeats = 5, .method = CLOOB_METHOD_CLOOB };
}

cloob_status cloob_bench_step(cloob_ctx *ctx, const cloob_bench_options *o, cloob_bench_result *out)
{
    API_NEEDS(ctx, o && out);
    return step_timing(ctx, o, out);
}

cloob_status cloob_bench_embed(cloob_ctx *ctx, const cloob_bench_options *o, cloob_bench_result *out)
{
    API_NEEDS(ctx, o && out);
    return embed_timing(ctx, o, out);
}

int cloob_device_count(void) { return 1 + device_cuda_count(); }

static void describe_decoder(cloob_ctx *ctx, device *d, cloob_device_facts *out)
{
    device_decoder *decoder;
    cloob_status status = device_decoder_create(ctx, d, &decoder);
    snprintf(out->decoder, sizeof out->decoder, "%s",
             status == CLOOB_OK ? device_decoder_name(decoder) : cloob_error(ctx));
    device_decoder_destroy(decoder);
}

cloob_status cloob_device_describe(cloob_ctx *ctx, int index, cloob_device_facts *out)
{
    API_NEEDS(ctx, out);
    char name[32];
    device *d;
    size_t total = 0, available = 0;
    *out = (cloob_device_facts){ 0 };
    snprintf(name, sizeof name, "cuda:%d", index - 1);
    CLOOB_TRY(device_open(ctx, index ? name : "cpu", &d));
    d->memory(d, &total, &available);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->runs, sizeof out->runs, "%s", d->runs);
    if (index) describe_decoder(ctx, d, out);
    out->total_bytes = (int64_t)total, out->free_bytes = (int64_t)available;
    device_close(d);
    return CLOOB_OK;
}
