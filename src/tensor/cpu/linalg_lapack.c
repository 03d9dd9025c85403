/* Eigenvalues and inverse by LAPACK. OpenBLAS' own runs on one thread once gemm.h has been used. */
#include <lapacke.h>
#include <limits.h>
#include <stdlib.h>

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b, *b = t;
}

cloob_status linalg_eigenvalues(cloob_ctx *ctx, double *value, double *A, int64_t n)
{
    if (n > INT_MAX) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld dimensions are too many", (long long)n);
    if (!gemm_blas_begin()) return ctx_no_memory(ctx, (size_t)128 << 20, "LAPACK's buffer");
    int info = n ? LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'N', 'L', (int)n, A, (int)n, value) : 0;
    gemm_blas_end();
    if (info == LAPACK_WORK_MEMORY_ERROR) return ctx_no_memory(ctx, (size_t)n * 8, "eigenvalues");
    if (info)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "eigenvalues of a %lld x %lld matrix did not converge", (long long)n,
                        (long long)n);
    for (int64_t i = 0; i < n / 2; i++) swap(&value[i], &value[n - 1 - i]); /* LAPACK gives them ascending */
    return CLOOB_OK;
}

cloob_status linalg_spd_inverse(cloob_ctx *ctx, double *A, int64_t n)
{
    if (n > INT_MAX) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld dimensions are too many", (long long)n);
    /* A symmetric matrix reads the same in column order, which spares LAPACKE its transposed copy. */
    if (!gemm_blas_begin()) return ctx_no_memory(ctx, (size_t)128 << 20, "LAPACK's buffer");
    int info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (int)n, A, (int)n);
    if (info == 0) info = LAPACKE_dpotri(LAPACK_COL_MAJOR, 'U', (int)n, A, (int)n);
    gemm_blas_end();
    if (info)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "a %lld x %lld matrix is not positive definite", (long long)n,
                        (long long)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) A[j * n + i] = A[i * n + j];
    return CLOOB_OK;
}
