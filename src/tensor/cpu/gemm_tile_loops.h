/* gemm.c's tile for one element type: the includer defines REAL, NAME(base) and TILE_NAME. Included twice on purpose,
 * so there is no guard. A register block has ROWS rows and NR columns, two vectors of 32 bytes. */
#define NR ((int)(64 / sizeof(REAL)))
#define NC ((int)(1024 / sizeof(REAL)))

typedef REAL NAME(lanes) __attribute__((vector_size(32), may_alias));

typedef struct NAME(panels) {
    REAL a[KC][ROWS];
    REAL b[NC / NR][KC][NR] __attribute__((aligned(64)));
} NAME(panels);

/* b[j / NR][k][j % NR] = op(B)[k0 + k, n0 + j], zero past the edge. */
CPU_INLINE void NAME(pack_b)(NAME(panels) * p, bool tb, const REAL *B, int64_t ldb, int64_t kc, int64_t nc)
{
    for (int64_t j0 = 0; j0 < nc; j0 += NR) {
        REAL(*to)[NR] = p->b[j0 / NR];
        int64_t n = min64(NR, nc - j0);
        if (n < NR) memset(to, 0, (size_t)kc * sizeof *to);
        if (tb)
            for (int64_t j = 0; j < n; j++)
                for (int64_t k = 0; k < kc; k++) to[k][j] = B[(j0 + j) * ldb + k];
        else
            for (int64_t k = 0; k < kc; k++) memcpy(to[k], B + k * ldb + j0, (size_t)n * sizeof(REAL));
    }
}

/* Rows of A packed next to each other: of a transposed A, whose rows are far from each other, and at the edge. */
CPU_INLINE void NAME(pack_a)(NAME(panels) * p, bool ta, const REAL *A, int64_t lda, int64_t mc, int64_t kc)
{
    if (mc < ROWS) memset(p->a, 0, sizeof p->a);
    if (ta)
        for (int64_t k = 0; k < kc; k++) memcpy(p->a[k], A + k * lda, (size_t)mc * sizeof(REAL));
    else
        for (int64_t i = 0; i < mc; i++)
            for (int64_t k = 0; k < kc; k++) p->a[k][i] = A[i * lda + k];
}

/* c = a b over kc; element (i, k) of a is a[i row + k step], b: (kc, NR). */
CPU_INLINE void NAME(block)(REAL c[ROWS][64 / sizeof(REAL)], const REAL *a, int64_t row, int64_t step, const REAL *b,
                            int64_t kc)
{
    NAME(lanes) left[ROWS] = { 0 }, right[ROWS] = { 0 };
    for (int64_t k = 0; k < kc; k++, a += step, b += NR) {
        NAME(lanes) l = *(const NAME(lanes) *)(const void *)b, r = *(const NAME(lanes) *)(const void *)(b + NR / 2);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++) left[i] += l * a[i * row], right[i] += r * a[i * row];
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) {
        memcpy(c[i], &left[i], sizeof left[i]);
        memcpy(c[i] + NR / 2, &right[i], sizeof right[i]);
    }
}

/* Up to ROWS rows of C += alpha times rows of A by the panels. */
CPU_INLINE void NAME(add_rows)(NAME(panels) * p, bool ta, const REAL *A, int64_t lda, int64_t mc, int64_t nc,
                               int64_t kc, REAL alpha, REAL *C, int64_t ldc)
{
    REAL c[ROWS][64 / sizeof(REAL)];
    bool packed = ta || mc < ROWS || sizeof(REAL) > 4; /* rows of doubles in place were half as fast */
    if (packed) NAME(pack_a)(p, ta, A, lda, mc, kc);
    for (int64_t n0 = 0; n0 < nc; n0 += NR) {
        const REAL *b = p->b[n0 / NR][0];
        if (packed) NAME(block)(c, p->a[0], 1, ROWS, b, kc);
        else NAME(block)(c, A, lda, 1, b, kc);
        int64_t n = min64(NR, nc - n0);
        for (int64_t i = 0; i < mc; i++)
            for (int64_t j = 0; j < n; j++) C[i * ldc + n0 + j] += alpha * c[i][j];
    }
}

CPU_CLONES void TILE_NAME(bool ta, bool tb, int64_t M, int64_t N, int64_t K, REAL alpha, const REAL *A, int64_t lda,
                          const REAL *B, int64_t ldb, REAL beta, REAL *C, int64_t ldc)
{
    NAME(panels) p;
    for (int64_t i = 0; beta != 1 && i < M; i++)
        for (int64_t j = 0; j < N; j++) C[i * ldc + j] = beta == 0 ? 0 : beta * C[i * ldc + j];
    for (int64_t n0 = 0; n0 < N; n0 += NC)
        for (int64_t k0 = 0; k0 < K; k0 += KC) {
            int64_t nc = min64(NC, N - n0), kc = min64(KC, K - k0);
            NAME(pack_b)(&p, tb, B + (tb ? n0 * ldb + k0 : k0 * ldb + n0), ldb, kc, nc);
            for (int64_t m0 = 0; m0 < M; m0 += ROWS) {
                int64_t mc = min64(ROWS, M - m0);
                NAME(add_rows)
                (&p, ta, A + (ta ? k0 * lda + m0 : m0 * lda + k0), lda, mc, nc, kc, alpha, C + m0 * ldc + n0, ldc);
            }
        }
}

#undef NR
#undef NC
#undef REAL
#undef NAME
#undef TILE_NAME
