/* A tile by OpenBLAS, which runs on the calling thread. The library is loaded with the first GEMM; where it is missing,
 * plain loops multiply.
 *
 * OpenBLAS takes a buffer per thread that multiplies at the same time, and waits forever when it cannot get one. Under
 * a memory limit one thread multiplies at a time, after the first buffer was seen to fit; where it does not fit, plain
 * loops multiply. */
#include "tensor/cpu/gemm_blas.h"

#include <pthread.h>

#include "core/limits.h"
#include "tensor/cpu/gemm.h"

#define BUFFER_BYTES                                                                                                   \
    ((size_t)256                                                                                                       \
     << 20) /* OpenBLAS with its libraries is 45 MiB, its buffer 128 MiB and 32 on small machines; a margin */

blas_functions blas;

#define ROW(name, ...) { #name, (void **)&blas.name },
static const shared_function functions[] = { BLAS_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libopenblas.so.0", "libopenblas.so.3" },
                                 .functions = functions,
                                 .install = "libopenblas0 (matrix multiplication)",
                                 .needs_bytes = BUFFER_BYTES };
SHARED_LISTED(library)

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool limited, usable;

/* The limit belongs to the process, and so does OpenBLAS' memory: this is the one state outside a context. */
static void look(void)
{
    limited = limits_memory();
    usable = shared_object_is_there(&library);
    if (!usable) return;
    if (blas.openblas_get_num_threads() != 1) blas.openblas_set_num_threads(1);
    float one = 1, product = 0;
    if (limited) blas.cblas_sgemm(BLAS_ROW_MAJOR, BLAS_PLAIN, BLAS_PLAIN, 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1);
}

bool gemm_blas_begin(void)
{
    pthread_once(&looked, look);
    if (!usable) return false;
    if (limited) pthread_mutex_lock(&turn);
    return true;
}

void gemm_blas_end(void)
{
    if (limited) pthread_mutex_unlock(&turn);
}

const char *gemm_blas_version(void)
{
    if (!gemm_blas_begin()) return NULL;
    gemm_blas_end();
    return blas.openblas_get_config();
}

void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    if (!gemm_blas_begin()) {
        gemm_tile_plain(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    if (blas.openblas_get_num_threads() != 1) blas.openblas_set_num_threads(1);
    blas.cblas_sgemm(BLAS_ROW_MAJOR, ta ? BLAS_TRANSPOSED : BLAS_PLAIN, tb ? BLAS_TRANSPOSED : BLAS_PLAIN, (int)M,
                     (int)N, (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
    gemm_blas_end();
}

void gemm_tile_d(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A, int64_t lda,
                 const double *B, int64_t ldb, double beta, double *C, int64_t ldc)
{
    if (!gemm_blas_begin()) {
        gemm_tile_plain_d(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    if (blas.openblas_get_num_threads() != 1) blas.openblas_set_num_threads(1);
    blas.cblas_dgemm(BLAS_ROW_MAJOR, ta ? BLAS_TRANSPOSED : BLAS_PLAIN, tb ? BLAS_TRANSPOSED : BLAS_PLAIN, (int)M,
                     (int)N, (int)K, alpha, A, (int)lda, B, (int)ldb, beta, C, (int)ldc);
    gemm_blas_end();
}
