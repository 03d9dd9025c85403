/* JPEG through libjpeg, with the settings Pillow has: the accurate integer DCT and smooth chroma.
 *
 * libjpeg reports errors by a call that must not return; on_error jumps back to the entry point that set the
 * mark. Whatever lives across the mark is in jpeg_state, never in a local. Warnings are neither printed nor
 * fatal, as in Pillow; running out of bytes is fatal, as in Pillow. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "io/image/image_codec.h"

/* More scans than any encoder writes: a file of tiny scans over a huge image would take hours. */
enum { JPEG_MAX_SCANS = 100 };

typedef struct jpeg_state {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr error;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf mark;
    char why[JMSG_LENGTH_MAX];
    bool no_memory;
} jpeg_state;

static bool match(const uint8_t *b, size_t n) { return n >= 3 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF; }

static jpeg_state *state_of(j_common_ptr d) { return d->client_data; }

static void give_up(jpeg_state *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s", why);
    longjmp(s->mark, 1);
}

static void on_error(j_common_ptr d)
{
    jpeg_state *s = state_of(d);
    s->no_memory = d->err->msg_code == JERR_OUT_OF_MEMORY;
    d->err->format_message(d, s->why);
    longjmp(s->mark, 1);
}

static void on_message(j_common_ptr d) { (void)d; }
static void on_warning(j_common_ptr d, int level)
{
    if (level < 0) d->err->num_warnings++;
}

static void on_progress(j_common_ptr d)
{
    if (((j_decompress_ptr)d)->input_scan_number > JPEG_MAX_SCANS) give_up(state_of(d), "more than 100 scans");
}

/* --- the source: all bytes at once ------------------------------------------------------------------- */

static void source_nothing(j_decompress_ptr d) { (void)d; }

static boolean source_empty(j_decompress_ptr d)
{
    give_up(state_of((j_common_ptr)d), "it is truncated");
    return FALSE;
}

static void source_skip(j_decompress_ptr d, long n)
{
    if (n <= 0) return;
    if ((size_t)n > d->src->bytes_in_buffer) source_empty(d);
    d->src->next_input_byte += n;
    d->src->bytes_in_buffer -= (size_t)n;
}

static void state_init(jpeg_state *s)
{
    s->d.err = jpeg_std_error(&s->error);
    s->error.error_exit = on_error;
    s->error.output_message = on_message;
    s->error.emit_message = on_warning;
    s->source.init_source = source_nothing;
    s->source.term_source = source_nothing;
    s->source.fill_input_buffer = source_empty;
    s->source.skip_input_data = source_skip;
    s->source.resync_to_restart = jpeg_resync_to_restart;
    s->progress.progress_monitor = on_progress;
}

/* May jump to the mark. jpeg_create_decompress keeps err and client_data and clears everything else. */
static void state_begin(jpeg_state *s, const image_reader *r)
{
    if (!s->d.mem) {
        s->d.client_data = s;
        jpeg_create_decompress(&s->d);
        s->d.src = &s->source;
        s->d.progress = &s->progress;
    }
    jpeg_abort_decompress(&s->d);
    s->source.next_input_byte = r->bytes;
    s->source.bytes_in_buffer = r->size;
}

static cloob_status state_failed(cloob_ctx *ctx, image_reader *r, jpeg_state *s)
{
    jpeg_abort_decompress(&s->d);
    if (s->no_memory) return ctx_fail(ctx, CLOOB_ERR_MEMORY, "%s: out of memory for a JPEG image", r->name);
    return image_damaged(ctx, r, s->why);
}

/* --- header ------------------------------------------------------------------------------------------ */

/* The largest scale, in eighths, at which a photo stays within the pixel limit, and below IMAGE_MAX_PIXELS: a higher
 * limit is for formats that cannot be reduced while they are decoded. */
static unsigned photo_scale(const jpeg_state *s, const image_reader *r)
{
    double pixels = (double)s->d.image_width * (double)s->d.image_height;
    int64_t limit = r->limits.max_pixels < IMAGE_MAX_PIXELS ? r->limits.max_pixels : IMAGE_MAX_PIXELS;
    unsigned scale = s->d.scale_num;
    while (scale > 1 && limit > 0 && pixels * scale * scale / 64 > (double)limit) scale--;
    return scale;
}

static void read_header(jpeg_state *s, image_reader *r)
{
    state_begin(s, r);
    jpeg_read_header(&s->d, TRUE);
    if (s->d.num_components != 1 && s->d.num_components != 3 && s->d.num_components != 4)
        give_up(s, "neither grey, colour nor CMYK");
    s->d.out_color_space = s->d.num_components == 4 ? JCS_CMYK : JCS_RGB;
    s->d.scale_num = (unsigned)(r->limits.jpeg_scale ? r->limits.jpeg_scale : 8);
    s->d.scale_denom = 8;
    if (r->limits.photo) s->d.scale_num = photo_scale(s, r);
    jpeg_calc_output_dimensions(&s->d);
}

static cloob_status state_need(cloob_ctx *ctx, image_reader *r)
{
    if (r->state[IMAGE_STATE_JPEG]) return CLOOB_OK;
    jpeg_state *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "the JPEG decoder");
    state_init(s);
    r->state[IMAGE_STATE_JPEG] = s;
    return CLOOB_OK;
}

static cloob_status open_guarded(cloob_ctx *ctx, image_reader *r, jpeg_state *s)
{
    s->no_memory = false;
    if (setjmp(s->mark)) return state_failed(ctx, r, s);
    read_header(s, r);
    CLOOB_TRY(r->limits.photo ? image_check_size(ctx, r, s->d.output_width, s->d.output_height)
                              : image_check_size(ctx, r, s->d.image_width, s->d.image_height));
    r->width = s->d.output_width;
    r->height = s->d.output_height;
    return CLOOB_OK;
}

static cloob_status jpeg_open(cloob_ctx *ctx, image_reader *r)
{
    CLOOB_TRY(state_need(ctx, r));
    return open_guarded(ctx, r, r->state[IMAGE_STATE_JPEG]);
}

/* --- pixels ------------------------------------------------------------------------------------------ */

#ifdef LIBJPEG_TURBO_VERSION
/* libjpeg-turbo can be built for interface 6, or for 7 and 8, which have a size for each direction; here they are
 * equal. */
static int block_size(j_decompress_ptr d)
{
#    if JPEG_LIB_VERSION >= 70
    return d->min_DCT_h_scaled_size;
#    else
    return d->min_DCT_scaled_size;
#    endif
}

/* With chroma reduced by more than two, libjpeg-turbo's cropping of reduced images changes pixels. */
static bool exact(j_decompress_ptr d)
{
    return block_size(d) == DCTSIZE || (d->max_h_samp_factor <= 2 && d->max_v_samp_factor <= 2);
}

/* After jpeg_start_decompress: enlarges box to what libjpeg can deliver without a change of pixels. The scanlines that
 * follow are those of the box from its top on, as wide as it is. Smooth chroma reads its neighbours, so a unit of
 * blocks around the box is decoded too. libjpeg moves the left edge to a unit's; rows above the box are entropy-decoded
 * only. */
static void window_begin(j_decompress_ptr d, image_box *box)
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
#else /* no partial decoding */
static void window_begin(j_decompress_ptr d, image_box *box)
{
    *box = (image_box){ 0, 0, d->output_height, d->output_width };
}
#endif

static void read_rgb(jpeg_state *s, image_reader *r)
{
    int64_t end = r->have.top + r->have.height;
    while (s->d.output_scanline < end) {
        JSAMPROW rows[8];
        int64_t y = s->d.output_scanline, n = 0;
        for (; n < 8 && y + n < end; n++) rows[n] = r->rgb.data + (y + n - r->have.top) * r->have.width * 3;
        jpeg_read_scanlines(&s->d, rows, (JDIMENSION)n);
    }
}

/* When the last rows are not wanted, the file must still be complete: inside coded data FF D9 is the end and
 * nothing else. Files of several scans have been read to their end before the first row came. */
static void stop_early(jpeg_state *s)
{
    if (!jpeg_has_multiple_scans(&s->d) && s->d.unread_marker != JPEG_EOI &&
        !memmem(s->source.next_input_byte, s->source.bytes_in_buffer, "\xFF\xD9", 2))
        source_empty(&s->d);
    jpeg_abort_decompress(&s->d);
}

/* Pillow takes every CMYK file to be written the Adobe way, inverted. rgb = (255 - k) scaled by (255 - c). */
static void invert_cmyk(uint8_t *cmyk, uint8_t *rgb, int64_t n)
{
    for (int64_t i = 0; i < n; i++, cmyk += 4, rgb += 3) {
        for (int c = 0; c < 4; c++) cmyk[c] = (uint8_t)(255 - cmyk[c]);
        image_cmyk_to_rgb(cmyk, rgb);
    }
}

static void read_cmyk(jpeg_state *s, image_reader *r)
{
    r->kind = IMAGE_CMYK;
    while (s->d.output_scanline < s->d.output_height) {
        int64_t y = s->d.output_scanline;
        JSAMPROW row = r->extra.data + y * r->width * 4;
        jpeg_read_scanlines(&s->d, &row, 1);
        invert_cmyk(row, r->rgb.data + y * r->width * 3, r->width);
    }
}

static cloob_status load_guarded(cloob_ctx *ctx, image_reader *r, jpeg_state *s)
{
    bool cmyk = s->d.num_components == 4;
    if (setjmp(s->mark)) return state_failed(ctx, r, s);
    jpeg_start_decompress(&s->d);
    r->have = cmyk ? (image_box){ 0, 0, r->height, r->width } : r->want;
    if (!cmyk) window_begin(&s->d, &r->have);
    CLOOB_TRY(image_buffer_reserve(ctx, &r->rgb, (size_t)(r->have.width * r->have.height * 3)));
    if (cmyk) CLOOB_TRY(image_buffer_reserve(ctx, &r->extra, (size_t)(r->width * r->height * 4)));
    if (cmyk) read_cmyk(s, r);
    else read_rgb(s, r);
    if (s->d.output_scanline < s->d.output_height) stop_early(s);
    else jpeg_finish_decompress(&s->d);
    return CLOOB_OK;
}

static cloob_status jpeg_load(cloob_ctx *ctx, image_reader *r)
{
    return load_guarded(ctx, r, r->state[IMAGE_STATE_JPEG]);
}

static void jpeg_close(image_reader *r)
{
    jpeg_state *s = r->state[IMAGE_STATE_JPEG];
    if (!s) return;
    if (s->d.mem) jpeg_destroy_decompress(&s->d);
    free(s);
    r->state[IMAGE_STATE_JPEG] = NULL;
}

const image_codec image_jpeg = { "JPEG", match, jpeg_open, jpeg_load, jpeg_close };

/* --- the layout of a plain file ---------------------------------------------------------------------- */

/* Where readers agree that three components are Y, Cb and Cr. */
static bool is_ycc(j_decompress_ptr d)
{
    const jpeg_component_info *c = d->comp_info;
    if (d->jpeg_color_space != JCS_YCbCr) return false;
    if (d->saw_Adobe_marker) return d->Adobe_transform == 1;
    return d->saw_JFIF_marker || (c[0].component_id == 1 && c[1].component_id == 2 && c[2].component_id == 3);
}

static bool is_plain(j_decompress_ptr d)
{
    enum { MIN_CHROMA = 3 }; /* libjpeg repeats narrower chroma instead of smoothing it */
    const jpeg_component_info *c = d->comp_info;
    int n = d->num_components, across = c[0].h_samp_factor, down = c[0].v_samp_factor;
    if (d->err->num_warnings || d->progressive_mode || d->arith_code || d->data_precision != 8 ||
        d->comps_in_scan != n || d->Ss || d->Se != DCTSIZE2 - 1 || d->Ah || d->Al)
        return false;
    if (n == 1) return across == 1 && down == 1;
    if (n != 3 || !is_ycc(d)) return false;
    for (int i = 1; i < 3; i++)
        if (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1) return false;
    if (across == 1 && down == 1) return true;
    return across == 2 && (down == 1 || down == 2) && (d->image_width + 1) / 2 >= MIN_CHROMA;
}

static bool layout_guarded(jpeg_state *s, const image_reader *r, jpeg_layout *out)
{
    state_init(s);
    if (setjmp(s->mark)) return false;
    state_begin(s, r);
    jpeg_read_header(&s->d, TRUE);
    const uint8_t *end = memmem(s->source.next_input_byte, s->source.bytes_in_buffer, "\xFF\xD9", 2);
    if (!end || !is_plain(&s->d)) return false;
    *out = (jpeg_layout){ .width = (int32_t)s->d.image_width,
                          .height = (int32_t)s->d.image_height,
                          .components = s->d.num_components,
                          .across = s->d.comp_info[0].h_samp_factor,
                          .down = s->d.comp_info[0].v_samp_factor,
                          .size = (size_t)(end + 2 - r->bytes) };
    return true;
}

bool jpeg_layout_read(const uint8_t *bytes, size_t size, jpeg_layout *out)
{
    image_reader r = { .bytes = bytes, .size = size };
    jpeg_state *s = match(bytes, size) ? calloc(1, sizeof *s) : NULL;
    *out = (jpeg_layout){ 0 };
    bool plain = s && layout_guarded(s, &r, out);
    if (s && s->d.mem) jpeg_destroy_decompress(&s->d);
    free(s);
    return plain;
}

/* --- writing, into memory ---------------------------------------------------------------------------- */

bool image_jpeg_available(void) { return true; }

typedef struct failing {
    struct jpeg_error_mgr base; /* first: libjpeg hands back a pointer to it */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} failing;

static void on_write_error(j_common_ptr cinfo)
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
    f.base.error_exit = on_write_error;
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
