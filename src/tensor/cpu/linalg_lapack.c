/* Eigenvalues and inverse by the LAPACK inside OpenBLAS (gemm_blas.h), which runs on one thread; by plain loops where
 * it is missing. A symmetric matrix reads the same in LAPACK's column order. */
#include <limits.h>
#include <stdlib.h>

#include "tensor/cpu/gemm_blas.h"
#include "tensor/cpu/linalg.h"

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b, *b = t;
}

/* The first call asks for the sizes of the work space. */
static cloob_status eigenvalues(cloob_ctx *ctx, double *value, double *A, int n, int *info)
{
    double doubles = 0, *work = NULL;
    int integers = 0, *iwork = NULL, ask = -1;
    blas.dsyevd_("N", "L", &n, A, &n, value, &doubles, &ask, &integers, &ask, info, 1, 1);
    int lwork = (int)doubles;
    if (*info == 0) work = malloc((size_t)lwork * sizeof *work), iwork = malloc((size_t)integers * sizeof *iwork);
    if (work && iwork) blas.dsyevd_("N", "L", &n, A, &n, value, work, &lwork, iwork, &integers, info, 1, 1);
    bool ran = *info != 0 || (work && iwork);
    free(work), free(iwork);
    return ran ? CLOOB_OK : ctx_no_memory(ctx, (size_t)lwork * sizeof *work, "eigenvalues");
}

cloob_status linalg_eigenvalues(cloob_ctx *ctx, double *value, double *A, int64_t n)
{
    int info = 0;
    if (n > INT_MAX) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld dimensions are too many", (long long)n);
    if (n == 0) return CLOOB_OK;
    if (!gemm_blas_begin()) return linalg_eigenvalues_plain(ctx, value, A, n);
    cloob_status status = eigenvalues(ctx, value, A, (int)n, &info);
    gemm_blas_end();
    CLOOB_TRY(status);
    if (info)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "eigenvalues of a %lld x %lld matrix did not converge", (long long)n,
                        (long long)n);
    for (int64_t i = 0; i < n / 2; i++) swap(&value[i], &value[n - 1 - i]); /* LAPACK gives them ascending */
    return CLOOB_OK;
}

cloob_status linalg_spd_inverse(cloob_ctx *ctx, double *A, int64_t n)
{
    int info = 0, size = (int)n;
    if (n > INT_MAX) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld dimensions are too many", (long long)n);
    if (!gemm_blas_begin()) return linalg_spd_inverse_plain(ctx, A, n);
    blas.dpotrf_("U", &size, A, &size, &info, 1);
    if (info == 0) blas.dpotri_("U", &size, A, &size, &info, 1);
    gemm_blas_end();
    if (info)
        return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "a %lld x %lld matrix is not positive definite", (long long)n,
                        (long long)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) A[j * n + i] = A[i * n + j];
    return CLOOB_OK;
}
