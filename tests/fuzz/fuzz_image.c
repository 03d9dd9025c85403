/* Images from any bytes: decoding whole and in part, both views, with the buffers of the image before, and the plan of
 * a view on a GPU. */
#include "data/view/device_view.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    static view_scratch *scratch;
    static uint8_t out[16 * 16 * 3];
    image_limits limits = { 1 << 16, 8, false }; /* small, so that speed goes into variety */
    transform_options o;
    image im;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (!scratch && view_scratch_create(ctx, &scratch) != CLOOB_OK) return 0;
    transform_options_init(&o, 16);
    if (image_decode(ctx, data, size, "fuzz", &limits, &im) == CLOOB_OK) view_of_image(ctx, NULL, &im, &o, NULL, out);
    image_release(&im);
    o.scale_min = 0.05;
    view_of_bytes(ctx, scratch, data, size, "fuzz", &limits, &o, &(uint64_t){ size }, out);
    view_job job;
    if (view_job_plan(data, size, &limits, &o, size, &job) &&
        (job.box.left + job.box.width > job.layout.width || job.box.top + job.box.height > job.layout.height ||
         job.layout.size > size))
        __builtin_trap();
    limits.jpeg_scale = (int)(size % 8) + 1;
    view_of_bytes(ctx, scratch, data, size, "fuzz", &limits, &o, &(uint64_t){ size / 2 }, out);
    return 0;
}
