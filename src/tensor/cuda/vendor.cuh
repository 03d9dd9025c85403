/* NVIDIA's headers for kernels: number formats, and the driver's types for the copy engine. */
#ifndef TENSOR_CUDA_VENDOR_CUH
#define TENSOR_CUDA_VENDOR_CUH

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "tensor/cuda/vendor.h"

#endif
