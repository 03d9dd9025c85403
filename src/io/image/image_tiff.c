/* TIFF through libtiff, from memory: the first image, upright by its own orientation. The library, which depends on six
 * others, is loaded with the first such image; the functions called are the same in both of its releases. */
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "core/shared_object.h"
#include "io/image/image_codec.h"

/* clang-format off */
#define TIFF_FUNCTIONS(X) \
    X(TIFFClientOpen) X(TIFFClose) X(TIFFGetField) X(TIFFReadRGBAImageOriented) X(TIFFSetErrorHandler) \
    X(TIFFSetWarningHandler)
/* clang-format on */
static struct {
    TIFF_FUNCTIONS(SHARED_MEMBER)
} tiff;
#define ROW(name) SHARED_ROW(tiff, name)
static const shared_function functions[] = { TIFF_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libtiff.so.6", "libtiff.so.5" },
                                 .functions = functions,
                                 .install = "libtiff6 to read TIFF images" };
SHARED_LISTED(library)

typedef struct source {
    const uint8_t *bytes;
    toff_t size, at;
} source;

static bool match(const uint8_t *b, size_t n)
{
    return n >= 8 && (memcmp(b, "II*\0", 4) == 0 || memcmp(b, "MM\0*", 4) == 0);
}

static tsize_t source_read(thandle_t h, tdata_t to, tsize_t n)
{
    source *s = h;
    toff_t left = s->at < s->size ? s->size - s->at : 0, m = (toff_t)n < left ? (toff_t)n : left;
    memcpy(to, s->bytes + s->at, (size_t)m);
    s->at += m;
    return (tsize_t)m;
}

static tsize_t source_write(thandle_t h, tdata_t from, tsize_t n) { return (void)h, (void)from, (void)n, 0; }

static toff_t source_seek(thandle_t h, toff_t to, int whence)
{
    source *s = h;
    toff_t base = whence == SEEK_CUR ? s->at : whence == SEEK_END ? s->size : 0;
    return s->at = base + to;
}

static int source_close(thandle_t h) { return (void)h, 0; }
static toff_t source_size(thandle_t h) { return ((source *)h)->size; }

static int source_map(thandle_t h, tdata_t *base, toff_t *size)
{
    source *s = h;
    *base = (void *)(uintptr_t)s->bytes;
    *size = s->size;
    return 1;
}

static void source_unmap(thandle_t h, tdata_t base, toff_t size) { (void)h, (void)base, (void)size; }

/* The library prints warnings on stderr unless they are switched off, for the whole process. */
static TIFF *open_quietly(source *s)
{
    tiff.TIFFSetWarningHandler(NULL);
    tiff.TIFFSetErrorHandler(NULL);
    return tiff.TIFFClientOpen("image", "r", s, source_read, source_write, source_seek, source_close, source_size,
                               source_map, source_unmap);
}

static cloob_status measure(cloob_ctx *ctx, image_reader *r, TIFF *t)
{
    uint32_t width = 0, height = 0;
    tiff.TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &width);
    tiff.TIFFGetField(t, TIFFTAG_IMAGELENGTH, &height);
    r->width = width;
    r->height = height;
    return image_check_size(ctx, r, r->width, r->height);
}

static cloob_status with_file(cloob_ctx *ctx, image_reader *r,
                              cloob_status (*then)(cloob_ctx *, image_reader *, TIFF *))
{
    source s = { r->bytes, (toff_t)r->size, 0 };
    CLOOB_TRY(shared_object_use(ctx, &library));
    TIFF *t = open_quietly(&s);
    if (!t) return image_damaged(ctx, r, "its header makes no sense");
    cloob_status status = then(ctx, r, t);
    tiff.TIFFClose(t);
    return status;
}

static cloob_status read_pixels(cloob_ctx *ctx, image_reader *r, TIFF *t)
{
    CLOOB_TRY(measure(ctx, r, t));
    size_t pixels = (size_t)(r->width * r->height);
    CLOOB_TRY(image_reserve_whole(ctx, r));
    CLOOB_TRY(image_buffer_reserve(ctx, &r->row, pixels * 4));
    uint32_t *rgba = (uint32_t *)(void *)r->row.data;
    if (!tiff.TIFFReadRGBAImageOriented(t, (uint32_t)r->width, (uint32_t)r->height, rgba, ORIENTATION_TOPLEFT, 1))
        return image_damaged(ctx, r, "its pixels cannot be decoded");
    for (size_t i = 0; i < pixels; i++) {
        r->rgb.data[3 * i] = (uint8_t)TIFFGetR(rgba[i]);
        r->rgb.data[3 * i + 1] = (uint8_t)TIFFGetG(rgba[i]);
        r->rgb.data[3 * i + 2] = (uint8_t)TIFFGetB(rgba[i]);
    }
    return CLOOB_OK;
}

static cloob_status tiff_open(cloob_ctx *ctx, image_reader *r) { return with_file(ctx, r, measure); }
static cloob_status tiff_load(cloob_ctx *ctx, image_reader *r) { return with_file(ctx, r, read_pixels); }

const image_codec image_tiff = { "TIFF", match, tiff_open, tiff_load, NULL };
