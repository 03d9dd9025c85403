/* Which files a GPU decodes, and a reference implementation of its views in plain C. */
#include "data/view/device_view.h"

#include <stdlib.h>

#include "data/view/transform.h"

/* Planes, the box in RGB and half resized; weights and alignment are small in comparison. */
static bool fits(const view_job *job, int64_t size)
{
    int64_t pixels = (int64_t)job->layout.width * job->layout.height, box = job->box.width * job->box.height;
    return 3 * (pixels + 64 * (job->layout.width + job->layout.height)) + 4 * box + 4 * job->box.height * size <
           (int64_t)DEVICE_VIEW_BYTES * 15 / 16;
}

bool view_job_plan(const void *bytes, size_t size, const image_limits *limits, const transform_options *o, uint64_t key,
                   view_job *job)
{
    *job = (view_job){ .bytes = bytes };
    const jpeg_layout *l = &job->layout;
    if (!jpeg_layout_read(bytes, size, &job->layout)) return false;
    if (limits->max_pixels > 0 && (int64_t)l->width * l->height > limits->max_pixels) return false;
    if ((limits->photo && l->exif) || transform_draw_colours(o, key)) return false;
    if (o->how.filter > RESIZE_BILINEAR) return false; /* the kernels' sine is not the host's */
    job->box = transform_draw_crop(o, key, l->width, l->height);
    job->flip = transform_draw_flip(o, key);
    return fits(job, o->size);
}

cloob_status view_job_define(cloob_ctx *ctx, const ycc_planes *planes, const view_job *job, const transform_options *o,
                             uint8_t *out)
{
    int64_t width = job->box.width, height = job->box.height;
    image im = { .width = width, .height = height, .rgb = malloc((size_t)(width * height * 3)) };
    if (!im.rgb) return ctx_no_memory(ctx, (size_t)(width * height * 3), "a view");
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            ycc_pixel(planes, (int)(job->box.left + x), (int)(job->box.top + y), im.rgb + (y * width + x) * 3);
    cloob_status status = transform_crop_resize(ctx, &im, 0, 0, height, width, o->size, o->size, o->how.filter, out);
    if (job->flip) augment_flip(out, o->size, o->size);
    image_release(&im);
    return status;
}
