/* A tile by OpenBLAS, which runs on the calling thread.
 *
 * OpenBLAS takes a buffer per thread that multiplies at the same time, and waits forever when it cannot get one. Under
 * a memory limit one thread multiplies at a time, after the first buffer was seen to fit; where it does not fit, plain
 * loops multiply. */
#include <cblas.h>
#include <pthread.h>

#include "core/limits.h"
#include "tensor/cpu/gemm.h"

#define BUFFER_BYTES ((size_t)160 << 20) /* OpenBLAS' own is 128 MiB, and 32 on small machines */

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool limited, fits;

/* The limit belongs to the process, and so does OpenBLAS' memory: this is the one state outside a context. */
static void look(void)
{
    limited = limits_memory();
    fits = !limited || limits_can_map(BUFFER_BYTES);
    if (fits && openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    float one = 1, product = 0;
    if (fits && limited)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1);
}

bool gemm_blas_begin(void)
{
    pthread_once(&looked, look);
    if (!fits) return false;
    if (limited) pthread_mutex_lock(&turn);
    return true;
}

void gemm_blas_end(void)
{
    if (limited) pthread_mutex_unlock(&turn);
}

void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    if (!gemm_blas_begin()) {
        gemm_tile_plain(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)M, (int)N, (int)K,
                alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
    gemm_blas_end();
}

void gemm_tile_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                 const double *B, int64_t ldb, double beta, double *C, int64_t ldc)
{
    if (!gemm_blas_begin()) {
        gemm_tile_plain_d(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)M, (int)N, (int)K,
                alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
    gemm_blas_end();
}
