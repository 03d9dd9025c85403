/* HEIC and AVIF through libheif, which is loaded with the first such image and turns images upright. */
#include <string.h>

#include <libheif/heif.h>

#include "core/shared_object.h"
#include "io/image/image_codec.h"

/* clang-format off */
#define HEIF_FUNCTIONS(X) \
    X(heif_context_alloc) X(heif_context_free) X(heif_context_read_from_memory_without_copy) \
    X(heif_context_get_primary_image_handle) X(heif_image_handle_get_width) X(heif_image_handle_get_height) \
    X(heif_image_handle_release) X(heif_decode_image) X(heif_image_get_plane_readonly) X(heif_image_get_width) \
    X(heif_image_get_height) X(heif_image_release)
/* clang-format on */
static struct {
    HEIF_FUNCTIONS(SHARED_MEMBER)
} heif;
#define ROW(name) SHARED_ROW(heif, name)
static const shared_function functions[] = { HEIF_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libheif.so.1" },
                                 .functions = functions,
                                 .install = "libheif1 to read HEIC and AVIF images" };
SHARED_LISTED(library)

typedef struct file {
    struct heif_context *context;
    struct heif_image_handle *handle;
} file;

static bool match(const uint8_t *b, size_t n)
{
    static const char *const brands[] = { "heic", "heix", "hevc", "heim", "heis", "mif1", "msf1", "avif", "avis" };
    if (n < 12 || memcmp(b + 4, "ftyp", 4) != 0) return false;
    for (size_t i = 0; i < sizeof brands / sizeof *brands; i++)
        if (memcmp(b + 8, brands[i], 4) == 0) return true;
    return false;
}

static void release(file *f)
{
    if (f->handle) heif.heif_image_handle_release(f->handle);
    if (f->context) heif.heif_context_free(f->context);
}

static cloob_status begin(cloob_ctx *ctx, image_reader *r, file *f)
{
    *f = (file){ 0 };
    CLOOB_TRY(shared_object_use(ctx, &library));
    f->context = heif.heif_context_alloc();
    if (!f->context) return ctx_no_memory(ctx, 0, "the HEIC decoder");
    struct heif_error e = heif.heif_context_read_from_memory_without_copy(f->context, r->bytes, r->size, NULL);
    if (e.code == heif_error_Ok) e = heif.heif_context_get_primary_image_handle(f->context, &f->handle);
    if (e.code != heif_error_Ok) return image_damaged(ctx, r, e.message ? e.message : "it cannot be read");
    r->width = heif.heif_image_handle_get_width(f->handle);
    r->height = heif.heif_image_handle_get_height(f->handle);
    return image_check_size(ctx, r, r->width, r->height);
}

static cloob_status heif_open(cloob_ctx *ctx, image_reader *r)
{
    file f;
    cloob_status status = begin(ctx, r, &f);
    release(&f);
    return status;
}

static cloob_status copy_pixels(cloob_ctx *ctx, image_reader *r, const struct heif_image *im)
{
    int stride = 0;
    const uint8_t *from = heif.heif_image_get_plane_readonly(im, heif_channel_interleaved, &stride);
    if (!from || heif.heif_image_get_width(im, heif_channel_interleaved) != r->width ||
        heif.heif_image_get_height(im, heif_channel_interleaved) != r->height)
        return image_damaged(ctx, r, "its pixels have another size than its header says");
    CLOOB_TRY(image_reserve_whole(ctx, r));
    for (int64_t y = 0; y < r->height; y++)
        memcpy(r->rgb.data + y * r->width * 3, from + y * stride, (size_t)(r->width * 3));
    return CLOOB_OK;
}

static cloob_status heif_load(cloob_ctx *ctx, image_reader *r)
{
    file f;
    struct heif_image *im = NULL;
    cloob_status status = begin(ctx, r, &f);
    if (status == CLOOB_OK) {
        struct heif_error e =
            heif.heif_decode_image(f.handle, &im, heif_colorspace_RGB, heif_chroma_interleaved_RGB, NULL);
        status = e.code == heif_error_Ok ? copy_pixels(ctx, r, im)
                                         : image_damaged(ctx, r, e.message ? e.message : "it cannot be decoded");
    }
    if (im) heif.heif_image_release(im);
    release(&f);
    return status;
}

const image_codec image_heif = { "HEIC", match, heif_open, heif_load, NULL };
