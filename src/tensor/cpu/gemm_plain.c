/* A tile without BLAS: panels of both factors are copied into order once, and a small block of C is kept in
 * registers by the compiler while it runs along K. */
#include "tensor/cpu/gemm.h"

#include <string.h>

enum { MR = 4, NR = 16, KC = 256, NC = 128 }; /* KC x NC floats of B: 128 KiB, within the second cache */

typedef struct panels {
    float a[KC][MR];
    float b[NC / NR][KC][NR];
} panels;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* b[j / NR][k][j % NR] = op(B)[k0 + k, n0 + j], zero past the edge. */
static void pack_b(panels *p, bool tb, const float *B, int64_t ldb, int64_t k0, int64_t kc, int64_t n0,
                   int64_t nc)
{
    for (int64_t j = 0; j < nc + (NR - nc % NR) % NR; j++)
        for (int64_t k = 0; k < kc; k++)
            p->b[j / NR][k][j % NR] = j >= nc ? 0.0f
                                      : tb    ? B[(n0 + j) * ldb + k0 + k]
                                              : B[(k0 + k) * ldb + n0 + j];
}

static void pack_a(panels *p, bool ta, const float *A, int64_t lda, int64_t m0, int64_t mc, int64_t k0,
                   int64_t kc)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t i = 0; i < MR; i++)
            p->a[k][i] = i >= mc ? 0.0f : ta ? A[(k0 + k) * lda + m0 + i] : A[(m0 + i) * lda + k0 + k];
}

/* c = a^T b over kc; a: (kc, MR), b: (kc, NR). */
static void block(float c[MR][NR], const float (*a)[MR], const float (*b)[NR], int64_t kc)
{
    memset(c, 0, MR * sizeof *c);
    for (int64_t k = 0; k < kc; k++)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) c[i][j] += a[k][i] * b[k][j];
}

static void add_panel(const panels *p, int64_t mc, int64_t nc, int64_t kc, float alpha, float *C, int64_t ldc)
{
    float c[MR][NR];
    for (int64_t n0 = 0; n0 < nc; n0 += NR) {
        block(c, p->a, p->b[n0 / NR], kc);
        for (int64_t i = 0; i < mc; i++)
            for (int64_t j = 0; j < least(NR, nc - n0); j++) C[i * ldc + n0 + j] += alpha * c[i][j];
    }
}

static void scale(float *C, int64_t ldc, int64_t M, int64_t N, float beta)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) C[i * ldc + j] = beta == 0.0f ? 0.0f : beta * C[i * ldc + j];
}

void gemm_tile(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
               const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    panels p;
    if (beta != 1.0f) scale(C, ldc, M, N, beta);
    for (int64_t n0 = 0; n0 < N; n0 += NC)
        for (int64_t k0 = 0; k0 < K; k0 += KC) {
            int64_t nc = least(NC, N - n0), kc = least(KC, K - k0);
            pack_b(&p, tb, B, ldb, k0, kc, n0, nc);
            for (int64_t m0 = 0; m0 < M; m0 += MR) {
                pack_a(&p, ta, A, lda, m0, least(MR, M - m0), k0, kc);
                add_panel(&p, least(MR, M - m0), nc, kc, alpha, C + m0 * ldc + n0, ldc);
            }
        }
}
