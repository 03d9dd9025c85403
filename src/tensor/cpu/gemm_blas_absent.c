/* Tiles, eigenvalues and inverses in a build without BLAS. */
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

const char *gemm_blas_version(void) { return NULL; }

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

cloob_status linalg_eigenvalues(cloob_ctx *ctx, double *value, double *A, int64_t n)
{
    return linalg_eigenvalues_plain(ctx, value, A, n);
}

cloob_status linalg_spd_inverse(cloob_ctx *ctx, double *A, int64_t n) { return linalg_spd_inverse_plain(ctx, A, n); }
