/* GEMMs on the CPU in float and double, row-major, over the context's threads.
 *
 *     C = alpha op(A) op(B) + beta C,   op(A): (M, K), op(B): (K, N), C: (M, N)
 *
 * op transposes when ta / tb is set: A is then stored (K, M), B stored (N, K). lda, ldb, ldc are distances
 * between stored rows, in elements. With beta = 0 C is only written. A size of 0 is fine; K = 0 scales C.
 *
 * C is cut into one tile per thread of the pool (core/pool.h); a call from inside pool_for runs on the caller's thread.
 * How C is cut depends on the sizes and the number of threads only. gemm_packed.h is faster for one B and many calls,
 * and has bf16 and int8. */
#ifndef TENSOR_CPU_GEMM_H
#define TENSOR_CPU_GEMM_H

#include "core/ctx.h"

void cpu_sgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A,
               int64_t lda, const float *B, int64_t ldb, float beta, float *C, int64_t ldc);

/* The same in double. */
void cpu_dgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A,
               int64_t lda, const double *B, int64_t ldb, double beta, double *C, int64_t ldc);

/* One GEMM on the calling thread. */
void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc);
void gemm_tile_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                 const double *B, int64_t ldb, double beta, double *C, int64_t ldc);

#endif
