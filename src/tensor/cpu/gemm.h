/* GEMMs on the CPU by BLAS, row-major, over the context's threads. gemm_packed.h has cloob's own kernels.
 *
 *     C = alpha op(A) op(B) + beta C,   op(A): (M, K), op(B): (K, N), C: (M, N)
 *
 * op transposes when ta / tb is set: A is then stored (K, M), B stored (N, K). lda, ldb, ldc are distances
 * between stored rows, in elements. With beta = 0 C is only written. A size of 0 is fine; K = 0 scales C.
 *
 * C is cut into one tile per thread of the pool (core/pool.h) and each tile is a GEMM on one thread, so
 * BLAS never runs threads of its own next to the pool's: the number of threads is ctx->threads, a call from inside
 * pool_for runs on the caller's thread, and several contexts may multiply at once. OpenBLAS has one number
 * of threads per process: it is set to one here and stays so. How C is cut depends on the sizes and the
 * number of threads only. */
#ifndef TENSOR_CPU_GEMM_H
#define TENSOR_CPU_GEMM_H

#include "core/ctx.h"

void cpu_sgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A,
               int64_t lda, const float *B, int64_t ldb, float beta, float *C, int64_t ldc);

/* The same in double. */
void cpu_dgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A,
               int64_t lda, const double *B, int64_t ldb, double beta, double *C, int64_t ldc);

/* One GEMM on the calling thread by BLAS (gemm_blas.c), or by plain loops (gemm_plain.c) where the library is missing,
 * the build leaves it out, or a memory limit leaves no space for its buffers.
 * Sizes and distances fit an int. */
void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc);
void gemm_tile_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                 const double *B, int64_t ldb, double beta, double *C, int64_t ldc);

/* The BLAS library and its version; NULL: plain loops multiply. */
const char *gemm_blas_version(void);

/* The plain loops, in every build. */
void gemm_tile_plain(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
                     const float *B, int64_t ldb, float beta, float *C, int64_t ldc);
void gemm_tile_plain_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                       const double *B, int64_t ldb, double beta, double *C, int64_t ldc);

#endif
