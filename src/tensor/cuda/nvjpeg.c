/* The newest release that is there: the functions called are the same in all of them. */
#include "tensor/cuda/nvjpeg.h"

#include <pthread.h>

#include "tensor/shared_object.h"

nvjpeg_functions nvjpeg;

#define ROW(name)                                                                                                      \
    {                                                                                                                  \
#        name, (void **)&nvjpeg.name                                                                                   \
    }
static const shared_function functions[] = {
    ROW(nvjpegCreateEx),         ROW(nvjpegDestroy),
    ROW(nvjpegGetProperty),      ROW(nvjpegJpegStateCreate),
    ROW(nvjpegJpegStateDestroy), ROW(nvjpegDecodeBatchedInitialize),
    ROW(nvjpegDecodeBatched),    { NULL, NULL },
};

static cloob_status load_newest(cloob_ctx *ctx)
{
    static const char *const names[] = { "libnvjpeg.so.13", "libnvjpeg.so.12" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (shared_object_load(ctx, names[i], functions) == CLOOB_OK) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "nvJPEG (libnvjpeg.so.13 or .12) cannot be loaded: install it, name its folder in "
                    "LD_LIBRARY_PATH, or use `image_decoder` cpu");
}

cloob_status nvjpeg_load(cloob_ctx *ctx)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    cloob_status status = CLOOB_OK;
    pthread_mutex_lock(&lock);
    if (!loaded) status = load_newest(ctx);
    if (status == CLOOB_OK) loaded = true;
    pthread_mutex_unlock(&lock);
    return status;
}
