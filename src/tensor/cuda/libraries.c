/* dlopen and dlsym over the lists of libraries.h. */
#include "tensor/cuda/libraries.h"

#include <pthread.h>

#include "tensor/shared_object.h"

cuda_libraries cuda_lib;

#define TEXT_(x)  #x
#define TEXT(x)   TEXT_(x)
#define ROW(name) { #name, (void **)&cuda_lib.name },

static const shared_function lt_functions[] = { CUBLASLT_FUNCTIONS(ROW){ NULL, NULL } };
static const shared_function blas_functions[] = { CUBLAS_FUNCTIONS(ROW){ NULL, NULL } };
static const shared_function dnn_functions[] = { CUDNN_FUNCTIONS(ROW){ NULL, NULL } };

static cloob_status load_all(cloob_ctx *ctx)
{
    CLOOB_TRY(shared_object_load(ctx, "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), lt_functions));
    CLOOB_TRY(shared_object_load(ctx, "libcublas.so." TEXT(CUBLAS_VER_MAJOR), blas_functions));
    return shared_object_load(ctx, "libcudnn.so." TEXT(CUDNN_MAJOR), dnn_functions);
}

cloob_status cuda_libraries_load(cloob_ctx *ctx)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    cloob_status status = CLOOB_OK;
    pthread_mutex_lock(&lock);
    if (!loaded) status = load_all(ctx);
    if (status == CLOOB_OK) loaded = true;
    pthread_mutex_unlock(&lock);
    return status;
}
