/* A GEMM of bf16 matrices by 8-bit copies (e4m3), for inference. Every row of A and of B^T has a scale, which brings
 * its largest element to the largest number of e4m3, so that a row's result does not depend on the other rows. */
#ifndef NN_CUDA_LINEAR_FP8_GEMM_H
#define NN_CUDA_LINEAR_FP8_GEMM_H

#include "nn/cuda/kernels.h"
#include "tensor/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_gemm fp8_gemm;

/* For D = A B of shape g, whose factors are bf16. *out is NULL where sizes or the library do not allow it, or, unless
 * fp8 is OP_FP8_ALWAYS, where it was timed as slower than ms, rounding A included. */
cloob_status fp8_gemm_create(const op_env *env, const gemm_shape *g, op_fp8 fp8, float ms, fp8_gemm **out);
void fp8_gemm_destroy(const op_env *env, fp8_gemm *p); /* NULL is fine */
size_t fp8_gemm_scratch(const fp8_gemm *p);

/* As gemm_run. B is rounded in the first run, and again in later ones unless weights are frozen. */
cloob_status fp8_gemm_run(const op_env *env, fp8_gemm *p, void *D, const void *A, const void *B, const void *C,
                          void *vector, void *scratch);

/* to (rows, k) bytes = from (rows, k) bf16 / inverse (rows), which is written; k is a multiple of 16. */
cloob_status quantize_rows_cuda(const op_env *env, void *to, float *inverse, const void *from, int64_t rows, int64_t k);

#ifdef __cplusplus
}
#endif
#endif
