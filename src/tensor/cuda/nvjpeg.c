/* The newest release found: the functions called are the same in all of them. */
#include "tensor/cuda/nvjpeg.h"

#include "core/shared_object.h"

nvjpeg_functions nvjpeg;

#define ROW(name) SHARED_ROW(nvjpeg, name)
static const shared_function functions[] = {
    ROW(nvjpegCreateEx) ROW(nvjpegDestroy) ROW(nvjpegGetProperty) ROW(nvjpegJpegStateCreate) ROW(nvjpegJpegStateDestroy)
        ROW(nvjpegDecodeBatchedInitialize) ROW(nvjpegDecodeBatched){ NULL, NULL },
};

static shared_object library = { .file = { "libnvjpeg.so.13", "libnvjpeg.so.12" },
                                 .functions = functions,
                                 .install = "nvJPEG, name its folder in LD_LIBRARY_PATH, or use `image_decoder` cpu" };
SHARED_LISTED(library)

cloob_status nvjpeg_load(cloob_ctx *ctx) { return shared_object_use(ctx, &library); }
