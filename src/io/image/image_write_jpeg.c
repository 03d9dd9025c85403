/* JPEG through libjpeg, into memory. */
#include "io/image/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

bool image_jpeg_available(void) { return true; }

typedef struct failing {
    struct jpeg_error_mgr base; /* first: libjpeg hands back a pointer to it */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} failing;

static void on_error(j_common_ptr cinfo)
{
    failing *f = (failing *)cinfo->err;
    f->base.format_message(cinfo, f->text);
    longjmp(f->back, 1);
}

static void set_up(struct jpeg_compress_struct *c, int64_t width, int64_t height, int quality)
{
    c->image_width = (JDIMENSION)width;
    c->image_height = (JDIMENSION)height;
    c->input_components = 3;
    c->in_color_space = JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    c->dct_method = JDCT_ISLOW; /* the same bytes on every machine */
    c->comp_info[0].h_samp_factor = c->comp_info[0].v_samp_factor = 1;
}

cloob_status image_encode_jpeg(cloob_ctx *ctx, const uint8_t *rgb, int64_t width, int64_t height, int quality,
                               sbuf *out)
{
    struct jpeg_compress_struct c;
    failing f;
    /* Twice the raw size holds every JPEG, so that libjpeg never needs a buffer of its own. */
    unsigned long room = (unsigned long)(width * height * 6 + 65536), size = room;
    unsigned char *const bytes = malloc(room);
    unsigned char *written = bytes;
    if (!bytes) return ctx_no_memory(ctx, room, "a JPEG");
    c.err = jpeg_std_error(&f.base);
    f.base.error_exit = on_error;
    if (setjmp(f.back)) {
        jpeg_destroy_compress(&c);
        free(bytes);
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "cannot encode a JPEG of %lld x %lld: %s", (long long)width,
                        (long long)height, f.text);
    }
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &written, &size);
    set_up(&c, width, height, quality);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (int64_t)c.next_scanline * width * 3);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    sbuf_add(out, written, size);
    jpeg_destroy_compress(&c);
    if (written != bytes) free(written);
    free(bytes);
    return out->failed ? ctx_no_memory(ctx, size, "a JPEG") : CLOOB_OK;
}
