/* Which codec, how big, and who owns the pixels; the codecs do the rest. */
#include "io/image/image.h"

#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "io/image/exif.h"
#include "io/image/image_codec.h"
#include "io/image/image_view.h"

static const image_codec *const codecs[] = { &image_jpeg, &image_png,  &image_webp, &image_gif,
                                             &image_tiff, &image_heif, &image_bmp };
enum { CODECS = sizeof codecs / sizeof codecs[0] };

/* --- what the codecs share --------------------------------------------------------------------------- */

cloob_status image_buffer_reserve(cloob_ctx *ctx, image_buffer *b, size_t bytes)
{
    if (bytes <= b->cap) return CLOOB_OK;
    free(b->data);
    b->cap = 0;
    b->data = malloc(bytes + IMAGE_SLACK);
    if (!b->data) return ctx_no_memory(ctx, bytes, "an image");
    memset(b->data + bytes, 0, IMAGE_SLACK);
    b->cap = bytes;
    return CLOOB_OK;
}

void image_buffer_release(image_buffer *b)
{
    free(b->data);
    *b = (image_buffer){ 0 };
}

cloob_status image_check_size(cloob_ctx *ctx, const image_reader *r, int64_t width, int64_t height)
{
    if (width < 1 || height < 1) return image_damaged(ctx, r, "it says it is empty");
    if (r->limits.max_pixels > 0 && width > r->limits.max_pixels / height) {
        return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                        "%s: %lld x %lld pixels are more than the limit of %lld; raise `max_image_pixels` to read it",
                        r->name, (long long)width, (long long)height, (long long)r->limits.max_pixels);
    }
    if (width > INT64_C(1) << 24 || height > INT64_C(1) << 24) return image_damaged(ctx, r, "a side above 16,777,216");
    return CLOOB_OK;
}

cloob_status image_damaged(cloob_ctx *ctx, const image_reader *r, const char *why)
{
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: damaged %s image: %s", r->name, r->codec->format, why);
}

cloob_status image_reserve_whole(cloob_ctx *ctx, image_reader *r)
{
    r->have = (image_box){ 0, 0, r->height, r->width };
    return image_buffer_reserve(ctx, &r->rgb, (size_t)(r->width * r->height * 3));
}

void image_set_palette(image_reader *r, int colours)
{
    r->kind = IMAGE_RGB;
    for (int i = 0; i < colours; i++)
        for (int c = 0; c < 3; c++)
            if (r->palette.rgb[i][c] != i) r->kind = IMAGE_INDEXED;
    memset(r->palette.rgb[colours], 0, sizeof r->palette.rgb[0] * (size_t)(256 - colours));
}

void image_set_bilevel(image_reader *r)
{
    r->kind = IMAGE_INDEXED;
    memset(&r->palette, 255, sizeof r->palette);
    memset(r->palette.rgb[0], 0, 3);
}

/* --- readers ----------------------------------------------------------------------------------------- */

cloob_status image_reader_create(cloob_ctx *ctx, image_reader **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? CLOOB_OK : ctx_no_memory(ctx, sizeof **out, "an image reader");
}

void image_reader_trim(image_reader *r)
{
    image_buffer_release(&r->rgb);
    image_buffer_release(&r->extra);
    image_buffer_release(&r->row);
    image_buffer_release(&r->turned);
}

static void reader_release(image_reader *r)
{
    for (int i = 0; i < CODECS; i++)
        if (codecs[i]->close) codecs[i]->close(r);
    image_reader_trim(r);
}

void image_reader_destroy(image_reader *r)
{
    if (!r) return;
    reader_release(r);
    free(r);
}

static cloob_status codec_find(cloob_ctx *ctx, image_reader *r)
{
    if (r->size == 0) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the image file is empty", r->name);
    for (int i = 0; i < CODECS; i++) {
        r->codec = codecs[i];
        if (codecs[i]->match(r->bytes, r->size)) return CLOOB_OK;
    }
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: not an image of a known format (JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC)",
                    r->name);
}

cloob_status image_reader_open(cloob_ctx *ctx, image_reader *r, const void *bytes, size_t size, const char *name,
                               const image_limits *limits, int64_t *width, int64_t *height)
{
    r->bytes = bytes;
    r->size = size;
    r->name = name ? name : "image";
    r->limits = limits ? *limits : (image_limits){ IMAGE_MAX_PIXELS, 8, false };
    if (r->limits.jpeg_scale < 0 || r->limits.jpeg_scale > 8)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: JPEG scale of %d eighths; must be from 1 to 8", r->name,
                        r->limits.jpeg_scale);
    r->kind = IMAGE_RGB;
    r->keyed = false;
    CLOOB_TRY(codec_find(ctx, r));
    CLOOB_TRY(r->codec->open(ctx, r));
    r->orientation = r->limits.photo ? exif_orientation(r->bytes, r->size) : 1;
    bool swapped = r->orientation >= 5;
    *width = swapped ? r->height : r->width;
    *height = swapped ? r->width : r->height;
    return CLOOB_OK;
}

static int64_t extra_step(image_kind kind) { return kind == IMAGE_CMYK ? 4 : 1; }

static int64_t extra_bytes(const image_reader *r)
{
    return r->kind == IMAGE_ALPHA || r->kind == IMAGE_CMYK || r->keyed ? extra_step(r->kind) : 0;
}

static cloob_status turn_buffer(cloob_ctx *ctx, image_reader *r, image_buffer *b, int64_t channels)
{
    CLOOB_TRY(image_buffer_reserve(ctx, &r->turned, (size_t)(r->width * r->height * channels)));
    exif_turn(r->turned.data, b->data, r->width, r->height, channels, r->orientation);
    image_buffer was = *b;
    *b = r->turned;
    r->turned = was;
    return CLOOB_OK;
}

/* A turned image is decoded whole; boxes are those of the upright one. */
static cloob_status load_turned(cloob_ctx *ctx, image_reader *r)
{
    r->want = (image_box){ 0, 0, r->height, r->width };
    CLOOB_TRY(r->codec->load(ctx, r));
    CLOOB_TRY(turn_buffer(ctx, r, &r->rgb, 3));
    if (extra_bytes(r)) CLOOB_TRY(turn_buffer(ctx, r, &r->extra, extra_bytes(r)));
    bool swapped = r->orientation >= 5;
    r->have = (image_box){ 0, 0, swapped ? r->width : r->height, swapped ? r->height : r->width };
    return CLOOB_OK;
}

cloob_status image_reader_load(cloob_ctx *ctx, image_reader *r, const image_box *box, image_part *out)
{
    if (r->orientation > 1) {
        CLOOB_TRY(load_turned(ctx, r));
        r->want = box ? *box : r->have;
    } else {
        r->want = box ? *box : (image_box){ 0, 0, r->height, r->width };
        CLOOB_TRY(r->codec->load(ctx, r));
    }
    int64_t step = extra_bytes(r);
    image_part all = { r->rgb.data,       step ? r->extra.data : NULL,
                       r->have.width * 3, r->have.width * step,
                       r->have.width,     r->have.height,
                       r->kind,           &r->palette };
    image_box inner = { r->want.top - r->have.top, r->want.left - r->have.left, r->want.height, r->want.width };
    *out = image_window(&all, &inner);
    return CLOOB_OK;
}

image_part image_whole(const image *im)
{
    return (image_part){ im->rgb,   im->extra,  im->width * 3, im->width * extra_step(im->kind),
                         im->width, im->height, im->kind,      &im->palette };
}

image_part image_window(const image_part *p, const image_box *box)
{
    image_part w = *p;
    w.rgb += box->top * p->stride + box->left * 3;
    if (w.extra) w.extra += box->top * p->extra_stride + box->left * extra_step(p->kind);
    w.width = box->width;
    w.height = box->height;
    return w;
}

void image_cmyk_to_rgb(const uint8_t cmyk[4], uint8_t rgb[3])
{
    int light = 255 - cmyk[3];
    for (int c = 0; c < 3; c++) {
        int t = cmyk[c] * light + 128; /* t / 255, rounded, without a division */
        rgb[c] = (uint8_t)(light - ((t + (t >> 8)) >> 8));
    }
}

/* --- single images --------------------------------------------------------------------------------- */

cloob_status image_decode(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, const image_limits *limits,
                          image *out)
{
    image_reader r = { 0 };
    image_part part;
    cloob_status status;
    *out = (image){ 0 };
    CLOOB_TRY_GOTO(image_reader_open(ctx, &r, bytes, size, name, limits, &out->width, &out->height), done);
    CLOOB_TRY_GOTO(image_reader_load(ctx, &r, NULL, &part), done);
    out->rgb = r.rgb.data; /* the reader's buffers become the image's */
    out->kind = r.kind;
    out->palette = r.palette;
    r.rgb.data = NULL;
    if (part.extra) {
        out->extra = r.extra.data;
        r.extra.data = NULL;
    }
done:
    reader_release(&r);
    if (status != CLOOB_OK) *out = (image){ 0 };
    return status;
}

cloob_status image_read(cloob_ctx *ctx, const char *path, const image_limits *limits, image *out)
{
    file_map map;
    *out = (image){ 0 };
    CLOOB_TRY(file_map_open(ctx, path, &map));
    cloob_status status = image_decode(ctx, map.data, map.size, path, limits, out);
    file_map_close(&map);
    return status;
}

cloob_status image_size(cloob_ctx *ctx, const void *bytes, size_t size, const char *name, int64_t *width,
                        int64_t *height)
{
    image_reader r = { 0 };
    image_limits none = { 0, 8, false };
    cloob_status status = image_reader_open(ctx, &r, bytes, size, name, &none, width, height);
    reader_release(&r);
    return status;
}

void image_release(image *im)
{
    free(im->rgb);
    free(im->extra);
    *im = (image){ 0 };
}

/* --- names and numbers of the ways to resize ----------------------------------------------------------- */

static const char *const mode_names[RESIZE_MODES] = { "shortest", "longest", "squash", "none", "patches" };
static const char *const filter_names[RESIZE_FILTERS] = {
    "bicubic", "bilinear", "lanczos", "box", "hamming", "nearest"
};
static const int pillow_numbers[RESIZE_FILTERS] = { 3, 2, 1, 4, 5, 0 };

static int find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

bool resize_mode_from_name(const char *name, resize_mode *out)
{
    int i = find(name, mode_names, RESIZE_MODES);
    if (i >= 0) *out = (resize_mode)i;
    return i >= 0;
}

bool resize_filter_from_name(const char *name, resize_filter *out)
{
    int i = find(name, filter_names, RESIZE_FILTERS);
    if (i >= 0) *out = (resize_filter)i;
    return i >= 0;
}

bool resize_filter_from_pillow(int64_t number, resize_filter *out)
{
    for (int i = 0; i < RESIZE_FILTERS; i++)
        if (pillow_numbers[i] == number) {
            *out = (resize_filter)i;
            return true;
        }
    return false;
}

const char *resize_mode_name(resize_mode m) { return mode_names[m]; }
const char *resize_filter_name(resize_filter f) { return filter_names[f]; }
int resize_filter_to_pillow(resize_filter f) { return pillow_numbers[f]; }
