/* PNG through libpng.
 *
 * Errors come by longjmp; whatever lives across the mark is in png_job, never in a local that changes.
 * Ancillary chunks (profiles, text, gamma) are skipped unread: Pillow's pixels do not depend on them, and
 * they are where the damage in real files is. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "core/file.h"
#include "io/image/image_codec.h"

typedef struct png_job {
    png_structp png;
    png_infop info;
    const uint8_t *next;
    size_t left;
    jmp_buf mark;
    char why[160];
    png_bytep *rows; /* for interlaced images all rows are open at once */
} png_job;

static bool match(const uint8_t *b, size_t n) { return n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0; }

static void on_error(png_structp png, png_const_charp why)
{
    png_job *j = png_get_error_ptr(png);
    snprintf(j->why, sizeof j->why, "%s", why);
    longjmp(j->mark, 1);
}

static void on_warning(png_structp png, png_const_charp why)
{
    (void)png;
    (void)why;
}

static void on_read(png_structp png, png_bytep out, size_t n)
{
    png_job *j = png_get_io_ptr(png);
    if (n > j->left) png_error(png, "it is truncated");
    memcpy(out, j->next, n);
    j->next += n;
    j->left -= n;
}

static void job_release(png_job *j)
{
    png_destroy_read_struct(&j->png, &j->info, NULL);
    free(j->rows);
    j->rows = NULL;
}

static cloob_status job_begin(cloob_ctx *ctx, png_job *j)
{
    j->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, j, on_error, on_warning);
    j->info = j->png ? png_create_info_struct(j->png) : NULL;
    if (!j->info) return ctx_no_memory(ctx, 0, "the PNG decoder");
    png_set_read_fn(j->png, j, on_read);
    png_set_user_limits(j->png, 1u << 24, 1u << 24);
    png_set_chunk_malloc_max(j->png, 8u << 20); /* compressed text and profiles cannot grow beyond this */
    png_set_chunk_cache_max(j->png, 128);
    png_set_keep_unknown_chunks(j->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_benign_errors(j->png, 1);
    return CLOOB_OK;
}

static cloob_status png_open(cloob_ctx *ctx, image_reader *r)
{
    if (!r->state[IMAGE_STATE_PNG]) {
        r->state[IMAGE_STATE_PNG] = calloc(1, sizeof(png_job));
        if (!r->state[IMAGE_STATE_PNG]) return ctx_no_memory(ctx, sizeof(png_job), "the PNG decoder");
    }
    png_job *j = r->state[IMAGE_STATE_PNG];
    job_release(j);
    j->next = r->bytes;
    j->left = r->size;
    if (setjmp(j->mark)) return image_damaged(ctx, r, j->why);
    CLOOB_TRY(job_begin(ctx, j));
    png_read_info(j->png, j->info);
    r->width = png_get_image_width(j->png, j->info);
    r->height = png_get_image_height(j->png, j->info);
    return image_check_size(ctx, r, r->width, r->height);
}

/* To Pillow a PNG with a palette is one whatever its colours. */
static void set_palette(png_job *j, image_reader *r)
{
    png_colorp colours;
    int n = 0;
    png_get_PLTE(j->png, j->info, &colours, &n);
    for (int i = 0; i < n; i++)
        memcpy(r->palette.rgb[i], (uint8_t[]){ colours[i].red, colours[i].green, colours[i].blue }, 3);
    image_set_palette(r, n);
    r->kind = IMAGE_INDEXED;
}

/* Everything becomes RGB or RGBA with 8 bits, but for 16-bit grey, which becomes 16-bit grey. The high byte
 * is used of other 16-bit samples, as in Pillow. The transparency of a palette or of one colour (tRNS) is alpha that
 * only some views use: r->keyed. */
static void set_transforms(png_job *j, image_reader *r)
{
    int type = png_get_color_type(j->png, j->info), bits = png_get_bit_depth(j->png, j->info);
    png_set_interlace_handling(j->png);
    r->keyed = bits < 16 && png_get_valid(j->png, j->info, PNG_INFO_tRNS);
    if (r->keyed) png_set_tRNS_to_alpha(j->png);
    if (type == PNG_COLOR_TYPE_PALETTE) {
        set_palette(j, r);
        png_set_palette_to_rgb(j->png);
    }
    if (type == PNG_COLOR_TYPE_PALETTE || (type == PNG_COLOR_TYPE_GRAY && bits == 16)) return;
    if (bits == 16) png_set_strip_16(j->png);
    if (type == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(j->png);
    if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(j->png);
    if (type & PNG_COLOR_MASK_ALPHA) r->kind = IMAGE_ALPHA;
    else if (bits == 1) image_set_bilevel(r);
}

/* Decodes into rows of `stride` bytes from base on. May jump to the mark. */
static void read_rows(png_job *j, image_reader *r, uint8_t *base, int64_t stride)
{
    for (int64_t y = 0; y < r->height; y++) j->rows[y] = base + y * stride;
    png_read_image(j->png, j->rows);
    png_read_end(j->png, NULL);
}

static void split_alpha(const image_reader *r)
{
    const uint8_t *from = r->row.data;
    uint8_t *rgb = r->rgb.data, *alpha = r->extra.data;
    for (int64_t i = 0; i < r->width * r->height; i++, from += 4, rgb += 3) {
        memcpy(rgb, from, 3);
        alpha[i] = from[3];
    }
}

/* Pillow's conversion of 16-bit grey clips rather than scales. */
static void clip_gray16(const image_reader *r)
{
    const uint8_t *from = r->row.data;
    for (int64_t i = 0; i < r->width * r->height; i++)
        memset(r->rgb.data + 3 * i, from[2 * i] ? 255 : from[2 * i + 1], 3);
}

static cloob_status png_load(cloob_ctx *ctx, image_reader *r)
{
    png_job *j = r->state[IMAGE_STATE_PNG];
    size_t pixels = (size_t)(r->width * r->height);
    CLOOB_TRY(image_reserve_whole(ctx, r));
    j->rows = malloc((size_t)r->height * sizeof *j->rows);
    if (!j->rows) return ctx_no_memory(ctx, (size_t)r->height * sizeof *j->rows, "PNG rows");
    if (setjmp(j->mark)) return image_damaged(ctx, r, j->why);
    set_transforms(j, r);
    png_read_update_info(j->png, j->info);
    int64_t step = (int64_t)png_get_rowbytes(j->png, j->info) / r->width;
    if (step == 3) {
        read_rows(j, r, r->rgb.data, r->width * 3);
        return CLOOB_OK;
    }
    CLOOB_TRY(image_buffer_reserve(ctx, &r->row, pixels * (size_t)step));
    if (step == 4) CLOOB_TRY(image_buffer_reserve(ctx, &r->extra, pixels));
    read_rows(j, r, r->row.data, r->width * step);
    if (step == 4) split_alpha(r);
    else clip_gray16(r);
    return CLOOB_OK;
}

static void png_close(image_reader *r)
{
    if (!r->state[IMAGE_STATE_PNG]) return;
    job_release(r->state[IMAGE_STATE_PNG]);
    free(r->state[IMAGE_STATE_PNG]);
    r->state[IMAGE_STATE_PNG] = NULL;
}

const image_codec image_png = { "PNG", match, png_open, png_load, png_close };

/* --- writing ----------------------------------------------------------------------------------------- */

typedef struct png_out {
    file_writer file;
    png_job job;
    png_infop info;
} png_out;

static void on_write(png_structp png, png_bytep data, size_t n)
{
    png_out *o = png_get_io_ptr(png);
    if (fwrite(data, 1, n, o->file.stream) != n) png_error(png, "the disk is full or the file cannot be written");
}

static void on_flush(png_structp png) { (void)png; }

static void write_rows(png_out *o, const uint8_t *rgb, int64_t width, int64_t height)
{
    png_structp png = o->job.png;
    png_set_write_fn(png, o, on_write, on_flush);
    png_set_IHDR(png, o->info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, o->info);
    for (int64_t y = 0; y < height; y++) png_write_row(png, rgb + y * width * 3);
    png_write_end(png, o->info);
}

static cloob_status encode(cloob_ctx *ctx, png_out *o, const char *path, const uint8_t *rgb, int64_t width,
                           int64_t height)
{
    o->job.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &o->job, on_error, on_warning);
    o->info = o->job.png ? png_create_info_struct(o->job.png) : NULL;
    if (!o->info) return ctx_no_memory(ctx, 0, "the PNG encoder");
    if (setjmp(o->job.mark)) return ctx_fail(ctx, CLOOB_ERR_IO, "%s: cannot write PNG: %s", path, o->job.why);
    write_rows(o, rgb, width, height);
    return CLOOB_OK;
}

cloob_status image_write_png(cloob_ctx *ctx, const char *path, const uint8_t *rgb, int64_t width, int64_t height)
{
    png_out o = { 0 };
    CLOOB_TRY(file_writer_begin(ctx, path, &o.file));
    cloob_status status = encode(ctx, &o, path, rgb, width, height);
    png_destroy_write_struct(&o.job.png, &o.info);
    if (status == CLOOB_OK) return file_writer_commit(ctx, &o.file);
    file_writer_abort(&o.file);
    return status;
}
