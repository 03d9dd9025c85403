/* PNG through cairo, for builds without libjpeg. */
#include "lab/synth/batch.h"
#include "lab/synth/paint.h"

#include <string.h>

cairo_surface_t *paint_surface(const uint8_t *rgb, int64_t size)
{
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)size, (int)size);
    unsigned char *data = cairo_image_surface_get_data(surface);
    for (int64_t i = 0; data && i < size * size; i++) { /* rows of 32-bit pixels have no padding */
        const uint8_t *p = rgb + 3 * i;
        uint32_t pixel = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        memcpy(data + 4 * i, &pixel, 4);
    }
    if (data) cairo_surface_mark_dirty(surface);
    return surface;
}

static cairo_status_t append(void *closure, const unsigned char *data, unsigned int length)
{
    sbuf *out = closure;
    sbuf_add(out, data, length);
    return out->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

cloob_status synth_encode_png(cloob_ctx *ctx, const uint8_t *rgb, int64_t size, sbuf *out)
{
    cairo_surface_t *surface = paint_surface(rgb, size);
    cairo_status_t written = cairo_surface_write_to_png_stream(surface, append, out);
    cairo_surface_destroy(surface);
    if (written == CAIRO_STATUS_SUCCESS) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "cannot encode a PNG: %s", cairo_status_to_string(written));
}
