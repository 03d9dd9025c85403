/* The tables of libraries.h as shared objects. */
#include "tensor/cuda/libraries.h"

#include "core/shared_object.h"

cuda_libraries cuda_lib;

#define TEXT_(x)  #x
#define TEXT(x)   TEXT_(x)
#define ROW(name) SHARED_ROW(cuda_lib, name)

static const shared_function lt_functions[] = { CUBLASLT_FUNCTIONS(ROW){ NULL, NULL } };
static const shared_function blas_functions[] = { CUBLAS_FUNCTIONS(ROW){ NULL, NULL } };
static const shared_function dnn_functions[] = { CUDNN_FUNCTIONS(ROW){ NULL, NULL } };

#define REMEDY "it, name its folder in LD_LIBRARY_PATH, or use `device` cpu"

static shared_object libraries[] = {
    { .file = { "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR) }, .functions = lt_functions, .install = REMEDY },
    { .file = { "libcublas.so." TEXT(CUBLAS_VER_MAJOR) }, .functions = blas_functions, .install = REMEDY },
    { .file = { "libcudnn.so." TEXT(CUDNN_MAJOR) }, .functions = dnn_functions, .install = REMEDY },
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

__attribute__((constructor)) static void list_libraries(void)
{
    for (int i = 0; i < LIBRARIES; i++) shared_object_list(&libraries[i]);
}

cloob_status cuda_libraries_load(cloob_ctx *ctx)
{
    for (int i = 0; i < LIBRARIES; i++) CLOOB_TRY(shared_object_use(ctx, &libraries[i]));
    return CLOOB_OK;
}
