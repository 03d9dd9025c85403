/* Tiles in a build without BLAS. */
#include "tensor/cpu/gemm.h"

bool gemm_blas_begin(void) { return true; }

void gemm_blas_end(void) {}

void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    gemm_tile_plain(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

void gemm_tile_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                 const double *B, int64_t ldb, double beta, double *C, int64_t ldc)
{
    gemm_tile_plain_d(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}
