/* NVIDIA's headers for host code: the runtime, cuBLAS, cuBLASLt, cuDNN. With vendor.cuh the only place that names
 * them (scripts/lint_layers.py checks it); NCCL's is included by dist/nccl.c, the one file that calls it. */
#ifndef TENSOR_CUDA_VENDOR_H
#define TENSOR_CUDA_VENDOR_H

#pragma GCC diagnostic push
#ifndef __cplusplus
#    pragma GCC diagnostic ignored "-Wstrict-prototypes" /* the vendor's header has one */
#endif
#include <cublasLt.h>
#include <cublas_v2.h>
#pragma GCC diagnostic pop
#include <cuda_runtime_api.h>
#include <cudnn.h>

#endif
