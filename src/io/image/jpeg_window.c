#include "io/image/jpeg_window.h"

/* libjpeg-turbo can be built for interface 6, or for 7 and 8, which know a size for each direction; here they
 * are equal. */
static int block_size(j_decompress_ptr d)
{
#if JPEG_LIB_VERSION >= 70
    return d->min_DCT_h_scaled_size;
#else
    return d->min_DCT_scaled_size;
#endif
}

/* With chroma reduced by more than two, libjpeg-turbo's cropping of reduced images changes pixels. */
static bool exact(j_decompress_ptr d)
{
    return block_size(d) == DCTSIZE || (d->max_h_samp_factor <= 2 && d->max_v_samp_factor <= 2);
}

/* Smooth chroma looks at its neighbours, so a unit of blocks around the box is decoded, too. libjpeg moves
 * the left edge to a unit's; rows above cost their codes only. */
void jpeg_window_begin(j_decompress_ptr d, image_box *box)
{
    int64_t unit_x = d->max_h_samp_factor * block_size(d), unit_y = d->max_v_samp_factor * block_size(d);
    int64_t left = box->left / unit_x * unit_x - unit_x, right = box->left + box->width + unit_x;
    int64_t top = (box->top / unit_y - 1) * unit_y, bottom = box->top + box->height, width = d->output_width;
    JDIMENSION x = (JDIMENSION)(left > 0 ? left : 0), w = (JDIMENSION)((right < width ? right : width) - x);
    *box = (image_box){ 0, 0, d->output_height, width };
    if (!exact(d)) return;
    if (w < width) {
        jpeg_crop_scanline(d, &x, &w);
        box->left = x;
        box->width = w;
    }
    if (top > 0) jpeg_skip_scanlines(d, (JDIMENSION)top);
    box->top = d->output_scanline;
    box->height = bottom - box->top;
}
