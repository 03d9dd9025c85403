/* OpenBLAS, loaded on first use: the functions of BLAS and LAPACK that cloob calls. Its prototypes are those of every
 * release of the library with 32-bit integers, so that a build needs no header of it. */
#ifndef TENSOR_CPU_GEMM_BLAS_H
#define TENSOR_CPU_GEMM_BLAS_H

#include "core/shared_object.h"

/* CBLAS's enums, by value. */
enum { BLAS_ROW_MAJOR = 101, BLAS_PLAIN = 111, BLAS_TRANSPOSED = 112 };

/* X(name, result, arguments). LAPACK's take pointers, as Fortran does, and the lengths of character arguments at the
 * end. */
/* clang-format off */
#define BLAS_FUNCTIONS(X) \
    X(cblas_sgemm, void, int order, int ta, int tb, int M, int N, int K, float alpha, const float *A, int lda, \
      const float *B, int ldb, float beta, float *C, int ldc) \
    X(cblas_dgemm, void, int order, int ta, int tb, int M, int N, int K, double alpha, const double *A, int lda, \
      const double *B, int ldb, double beta, double *C, int ldc) \
    X(openblas_get_config, char *, void) \
    X(openblas_get_num_threads, int, void) \
    X(openblas_set_num_threads, void, int n) \
    X(dsyevd_, void, const char *job, const char *triangle, const int *n, double *A, const int *lda, double *value, \
      double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t) \
    X(dpotrf_, void, const char *triangle, const int *n, double *A, const int *lda, int *info, size_t) \
    X(dpotri_, void, const char *triangle, const int *n, double *A, const int *lda, int *info, size_t)
/* clang-format on */
#define BLAS_MEMBER(name, result, ...) result (*name)(__VA_ARGS__);
typedef struct blas_functions {
    BLAS_FUNCTIONS(BLAS_MEMBER)
} blas_functions;
#undef BLAS_MEMBER

extern blas_functions blas;

/* Around every call. False: the library is missing or there is no memory for its buffer, and it must not be called.
 * It loads the library on first use. */
bool gemm_blas_begin(void);
void gemm_blas_end(void);

#endif
