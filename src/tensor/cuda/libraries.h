/* NVIDIA's libraries, loaded when the first GPU is opened: a program that never opens one needs none of them installed.
 *
 *     CLOOB_TRY(cuda_libraries_load(ctx));
 *     cuda_lib.cublasLtCreate(&handle);
 *
 * A row per function in the lists below; the types are those of the vendor's headers. */
#ifndef TENSOR_CUDA_LIBRARIES_H
#define TENSOR_CUDA_LIBRARIES_H

#include "core/shared_object.h"
#include "tensor/cuda/vendor.h"

/* clang-format off */
#define CUBLASLT_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulAlgoCheck) \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) \
    X(cublasLtMatrixLayoutSetAttribute)

#define CUBLAS_FUNCTIONS(X) \
    X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2) X(cublasGemmEx) \
    X(cublasGetStatusString)

#define CUDNN_FUNCTIONS(X) \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnSetStream) \
    X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendExecute) \
    X(cudnnBackendFinalize) X(cudnnBackendGetAttribute) X(cudnnBackendSetAttribute)
/* clang-format on */

typedef struct cuda_libraries {
    CUBLASLT_FUNCTIONS(SHARED_MEMBER)
    CUBLAS_FUNCTIONS(SHARED_MEMBER)
    CUDNN_FUNCTIONS(SHARED_MEMBER)
} cuda_libraries;

/* Written once by the first load that succeeds, read-only afterwards. */
extern cuda_libraries cuda_lib;

/* Fills cuda_lib; a library or function that is missing is an error that names it. May be called from any thread. */
cloob_status cuda_libraries_load(cloob_ctx *ctx);

#endif
