/* A GEMM of bf16 matrices by way of 8-bit copies in scratch, each under its own scale (quantize.h).
 *
 * In inference (op_fp8_by_rows) every row of A and of B^T has a scale, which brings its largest element to the
 * largest of e4m3, so that a row's result does not depend on the other rows; B is rounded once. */
#ifndef NN_CUDA_LINEAR_FP8_GEMM_H
#define NN_CUDA_LINEAR_FP8_GEMM_H

#include "nn/cuda/kernels.h"
#include "tensor/cuda/gemm.h"

typedef struct fp8_gemm fp8_gemm;

/* For D = A B of shape g, whose factors are bf16; tb as there: B is stored (n, k), or (k, n) and turned on the way.
 * gradient: A is one, and takes e5m2. given: fp8_gemm_run gets A's 8-bit copy. *out is NULL where sizes or the library
 * do not allow it, or, unless `fp8` is one of ALWAYS, where it was timed as slower than ms, its rounding passes
 * included. */
cloob_status fp8_gemm_create(const op_env *env, const gemm_shape *g, bool gradient, bool given, op_fp8 fp8, float ms,
                             fp8_gemm **out);
void fp8_gemm_destroy(const op_env *env, fp8_gemm *p); /* NULL is fine */
size_t fp8_gemm_scratch(const fp8_gemm *p);

/* As gemm_run; rounded: the copy of A (op.h), read where it was promised. */
cloob_status fp8_gemm_run(const op_env *env, const char *op, fp8_gemm *p, void *D, const void *A, const tensor *rounded,
                          const void *B, const void *C, void *vector, void *scratch);

/* Largest elements of A and of B over the steps before (op_kernel.history); of a call of linear or linear_dx. */
cloob_status linear_history_cuda(const op_env *env, const op_args *a, float max[OP_HISTORY], bool set);
cloob_status fp8_gemm_history(const op_env *env, fp8_gemm *p, float max[OP_HISTORY], bool set);

#endif
