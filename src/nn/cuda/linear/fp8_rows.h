/* y = x w^T + bias + residual in inference by 8-bit copies of both factors, e4m3: every row of x and every output of w
 * has a scale of its own, which brings its largest element to the format's largest. A row's result therefore does not
 * depend on the rows beside it. w is rounded once. */
#ifndef NN_CUDA_LINEAR_FP8_ROWS_H
#define NN_CUDA_LINEAR_FP8_ROWS_H

#include "nn/cuda/kernels.h"
#include "tensor/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_rows fp8_rows;

/* For D = A B of shape g. *out is NULL where sizes or the library do not allow it, or, unless `fp8` is ROWS_ALWAYS,
 * where it was timed as slower than ms, the rounding of A included. */
cloob_status fp8_rows_create(const op_env *env, const gemm_shape *g, op_fp8 fp8, float ms, fp8_rows **out);
void fp8_rows_destroy(const op_env *env, fp8_rows *p); /* NULL is fine */
size_t fp8_rows_scratch(const fp8_rows *p);

/* As gemm_run. B is read in the first run, and in later ones where weights are not frozen. */
cloob_status fp8_rows_run(const op_env *env, const char *op, fp8_rows *p, void *D, const void *A, const void *B,
                          const void *C, void *vector, void *scratch);

/* to (rows, k) bytes = from (rows, k) bf16 over inverse (rows); k is a multiple of 16. */
cloob_status quantize_rows_cuda(const op_env *env, const char *op, void *to, float *inverse, const void *from,
                                int64_t rows, int64_t k);

#ifdef __cplusplus
}
#endif
#endif
