/* A loader that hands files over to a decoder. The one here makes views by their definition, in host memory, and
 * refuses every fifth file. */
#include <stdlib.h>

#include "check.h"
#include "decoded_epochs.h"
#include "fixture.h"
#include "jpeg_planes.h"

struct device_decoder {
    device *dev;
};
struct device_view {
    transform_options o;
    int jobs;
};

device *device_decoder_device(const device_decoder *d) { return d->dev; }
bool device_decoder_exact(const device_decoder *d) { return d != NULL; }
const char *device_decoder_name(const device_decoder *d) { return d ? "a test" : ""; }
void device_decoder_destroy(device_decoder *d) { free(d); }

cloob_status device_decoder_create(cloob_ctx *ctx, device *dev, device_decoder **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ctx_no_memory(ctx, sizeof **out, "a test");
    (*out)->dev = dev;
    return CLOOB_OK;
}

cloob_status device_view_create(cloob_ctx *ctx, device_decoder *d, const transform_options *o, device_view **out)
{
    (void)ctx, (void)d;
    *out = calloc(1, sizeof **out);
    (*out)->o = *o;
    return CLOOB_OK;
}

void device_view_destroy(device_view *v) { free(v); }

cloob_status device_view_run(cloob_ctx *ctx, device_view *v, view_job *jobs, int n)
{
    for (int i = 0; i < n; i++) {
        ycc_planes p;
        jobs[i].done = v->jobs++ % 5 != 0;
        if (!jobs[i].done) continue;
        uint8_t *memory = jpeg_decode_planes(jobs[i].bytes, jobs[i].layout.size, &p);
        cloob_status status = view_job_define(ctx, &p, &jobs[i], &v->o, jobs[i].out);
        free(memory);
        CLOOB_TRY(status);
    }
    return CLOOB_OK;
}

cloob_status device_view_put(cloob_ctx *ctx, device_view *v, uint8_t *const *out, const uint8_t *views, int n)
{
    size_t bytes = (size_t)(v->o.size * v->o.size * 3);
    (void)ctx;
    for (int i = 0; i < n; i++) memcpy(out[i], views + (size_t)i * bytes, bytes);
    return CLOOB_OK;
}

static cloob_ctx *ctx;
static device *dev;
static device_decoder *decoder;

static void batches_are_the_same_whoever_decodes(void) { CHECK(decoded_epochs_agree(ctx, decoder, 0)); }

static void what_a_decoder_does_not_do_is_refused(void)
{
    dataset *d;
    dataset_options set;
    loader_options o;
    loader *l;
    dataset_options_init(&set);
    set.cache = "";
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("decoded.tar"), &set, &d));
    loader_options_init(&o);
    o.batch = 4;
    o.decoder = decoder;
    CHECK(loader_create(ctx, d, NULL, &o, &l) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "training"));
    o.train = true;
    o.view.jpeg_shrink = true;
    CHECK(loader_create(ctx, d, NULL, &o, &l) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "jpeg_shrink"));
    dataset_close(d);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, device_open(ctx, "cpu", &dev));
    CHECK_OK(ctx, device_decoder_create(ctx, dev, &decoder));
    RUN(batches_are_the_same_whoever_decodes);
    RUN(what_a_decoder_does_not_do_is_refused);
    device_decoder_destroy(decoder);
    device_close(dev);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
