/* Cuts a GEMM into one tile of C per thread. In a tile, panels of both factors are copied into order once, and a small
 * block of C stays in registers while it runs along K. */
#include "tensor/cpu/gemm.h"

#include <assert.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"

enum { ROWS = 6, KC = 256 }; /* of a register block; elements of K at a time: a panel of B takes 256 KiB */

#define REAL       float
#define NAME(base) base##_f
#define TILE_NAME  gemm_tile
#include "tensor/cpu/gemm_tile_loops.h"

#define REAL       double
#define NAME(base) base##_d
#define TILE_NAME  gemm_tile_d
#include "tensor/cpu/gemm_tile_loops.h"

/* ---- over the threads -------------------------------------------------------------------------------- */

enum {
    TILE_ALIGN = 48,        /* tile edges where register blocks end too */
    SMALL_PRODUCT = 1 << 20 /* fewer multiplications than this cost less than waking a thread */
};

typedef struct gemm_call {
    bool ta, tb, wide; /* wide: double */
    int64_t M, N, K, lda, ldb, ldc;
    double alpha, beta;
    const void *A, *B;
    void *C;
    int rows, columns; /* the grid of tiles */
} gemm_call;

/* Edge i of n pieces of [0, size), rounded to TILE_ALIGN except at the ends. */
static int64_t edge(int64_t size, int n, int i)
{
    if (i == n) return size;
    int64_t at = size * i / n;
    return at - at % TILE_ALIGN;
}

/* Rows m0..m1 and columns n0..n1 of C. */
static void run_tile(const gemm_call *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    int64_t a = p->ta ? m0 : m0 * p->lda, b = p->tb ? n0 * p->ldb : n0, c = m0 * p->ldc + n0;
    if (p->wide)
        gemm_tile_d(p->ta, p->tb, m1 - m0, n1 - n0, p->K, p->alpha, (const double *)p->A + a, p->lda,
                    (const double *)p->B + b, p->ldb, p->beta, (double *)p->C + c, p->ldc);
    else
        gemm_tile(p->ta, p->tb, m1 - m0, n1 - n0, p->K, (float)p->alpha, (const float *)p->A + a, p->lda,
                  (const float *)p->B + b, p->ldb, (float)p->beta, (float *)p->C + c, p->ldc);
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm_call *p = arg;
    (void)thread;
    for (int64_t tile = begin; tile < end; tile++) {
        int i = (int)(tile / p->columns), j = (int)(tile % p->columns);
        int64_t m0 = edge(p->M, p->rows, i), m1 = edge(p->M, p->rows, i + 1);
        int64_t n0 = edge(p->N, p->columns, j), n1 = edge(p->N, p->columns, j + 1);
        if (m0 < m1 && n0 < n1) run_tile(p, m0, m1, n0, n1);
    }
}

/* Each thread packs its rows of op(A) and its columns of op(B): the grid with the least of both. */
static void choose_grid(gemm_call *p, int threads)
{
    double min = 0;
    for (int rows = 1; rows <= threads; rows++) {
        if (threads % rows) continue;
        double packed = (double)p->M / rows + (double)p->N / (threads / rows);
        if (rows == 1 || packed < min) min = packed, p->rows = rows, p->columns = threads / rows;
    }
}

static void gemm_run(cloob_ctx *ctx, gemm_call *p)
{
    assert(p->M >= 0 && p->N >= 0 && p->K >= 0);
    assert(p->lda >= (p->ta ? p->M : p->K) && p->ldb >= (p->tb ? p->K : p->N) && p->ldc >= p->N);
    if (p->M == 0 || p->N == 0) return;
    if ((double)p->M * (double)p->N * (double)p->K > SMALL_PRODUCT) choose_grid(p, ctx->threads);
    pool_for(ctx, (int64_t)p->rows * p->columns, 1, run_tiles, p);
}

void cpu_sgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A,
               int64_t lda, const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    gemm_call p = { ta, tb, false, M, N, K, lda, ldb, ldc, alpha, beta, A, B, C, 1, 1 };
    gemm_run(ctx, &p);
}

void cpu_dgemm(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double *A,
               int64_t lda, const double *B, int64_t ldb, double beta, double *C, int64_t ldc)
{
    gemm_call p = { ta, tb, true, M, N, K, lda, ldb, ldc, alpha, beta, A, B, C, 1, 1 };
    gemm_run(ctx, &p);
}
