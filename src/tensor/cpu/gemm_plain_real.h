/* The loops of gemm_plain.c for one element type: the includer defines REAL, NAME(base) and TILE_NAME.
 * Included twice on purpose, so there is no guard. */
typedef struct NAME(panels) {
    REAL a[KC][MR];
    REAL b[NC / NR][KC][NR];
} NAME(panels);

/* b[j / NR][k][j % NR] = op(B)[k0 + k, n0 + j], zero past the edge. */
static void NAME(pack_b)(NAME(panels) * p, bool tb, const REAL *B, int64_t ldb, int64_t k0, int64_t kc, int64_t n0,
                         int64_t nc)
{
    for (int64_t j = 0; j < nc + (NR - nc % NR) % NR; j++)
        for (int64_t k = 0; k < kc; k++)
            p->b[j / NR][k][j % NR] = j >= nc ? 0 : tb ? B[(n0 + j) * ldb + k0 + k] : B[(k0 + k) * ldb + n0 + j];
}

static void NAME(pack_a)(NAME(panels) * p, bool ta, const REAL *A, int64_t lda, int64_t m0, int64_t mc, int64_t k0,
                         int64_t kc)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t i = 0; i < MR; i++)
            p->a[k][i] = i >= mc ? 0 : ta ? A[(k0 + k) * lda + m0 + i] : A[(m0 + i) * lda + k0 + k];
}

/* c = a^T b over kc; a: (kc, MR), b: (kc, NR). */
static void NAME(block)(REAL c[MR][NR], const REAL (*a)[MR], const REAL (*b)[NR], int64_t kc)
{
    memset(c, 0, MR * sizeof *c);
    for (int64_t k = 0; k < kc; k++)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++) c[i][j] += a[k][i] * b[k][j];
}

static void NAME(add_panel)(const NAME(panels) * p, int64_t mc, int64_t nc, int64_t kc, REAL alpha, REAL *C,
                            int64_t ldc)
{
    REAL c[MR][NR];
    for (int64_t n0 = 0; n0 < nc; n0 += NR) {
        NAME(block)(c, p->a, p->b[n0 / NR], kc);
        for (int64_t i = 0; i < mc; i++)
            for (int64_t j = 0; j < min64(NR, nc - n0); j++) C[i * ldc + n0 + j] += alpha * c[i][j];
    }
}

static void NAME(scale)(REAL *C, int64_t ldc, int64_t M, int64_t N, REAL beta)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) C[i * ldc + j] = beta == 0 ? 0 : beta * C[i * ldc + j];
}

void TILE_NAME(bool ta, bool tb, int64_t M, int64_t N, int64_t K, REAL alpha, const REAL *A, int64_t lda, const REAL *B,
               int64_t ldb, REAL beta, REAL *C, int64_t ldc)
{
    NAME(panels) p;
    if (beta != 1) NAME(scale)(C, ldc, M, N, beta);
    for (int64_t n0 = 0; n0 < N; n0 += NC)
        for (int64_t k0 = 0; k0 < K; k0 += KC) {
            int64_t nc = min64(NC, N - n0), kc = min64(KC, K - k0);
            NAME(pack_b)(&p, tb, B, ldb, k0, kc, n0, nc);
            for (int64_t m0 = 0; m0 < M; m0 += MR) {
                NAME(pack_a)(&p, ta, A, lda, m0, min64(MR, M - m0), k0, kc);
                NAME(add_panel)(&p, min64(MR, M - m0), nc, kc, alpha, C + m0 * ldc + n0, ldc);
            }
        }
}
