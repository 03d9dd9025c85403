/* Around every call into OpenBLAS: see gemm_blas.c. */
#ifndef TENSOR_CPU_GEMM_BLAS_H
#define TENSOR_CPU_GEMM_BLAS_H

#include <stdbool.h>

/* False: there is no memory for OpenBLAS' buffer, and it must not be called. */
bool gemm_blas_begin(void);
void gemm_blas_end(void);

#endif
