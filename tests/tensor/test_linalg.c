/* Eigenvalues of matrices whose eigenvalues are known, and inverses multiplied back. */
#include "check.h"

#include "core/rng.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

static cloob_ctx *ctx;

/* The path graph's second differences: 2 - 2 cos(k pi / (n + 1)), k = 1..n. */
static void second_differences(void)
{
    enum { n = 57 };
    static double A[n * n], value[n];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) A[i * n + j] = i == j ? 2 : abs(i - j) == 1 ? -1 : 0;
    CHECK_OK(ctx, linalg_eigenvalues(ctx, value, A, n));
    for (int i = 0; i < n; i++) CHECK_NEAR(value[i], 2 - 2 * cos((n - i) * M_PI / (n + 1)), 1e-13);
}

/* B B' of random B: (n, m); with m < n there are n - m zeros. */
static void random_gram(double *A, double *B, int64_t n, int64_t m)
{
    for (int64_t i = 0; i < n * m; i++) B[i] = rng_normal(7, (uint64_t)i);
    cpu_dgemm(ctx, false, true, n, n, m, 1, B, m, B, m, 0, A, n);
}

static void sums_and_zeros_of_a_gram_matrix(void)
{
    enum { n = 80, m = 50 };
    static double A[n * n], B[n * m], value[n];
    double trace = 0, square = 0, sum = 0, sum2 = 0;
    random_gram(A, B, n, m);
    for (int i = 0; i < n; i++) trace += A[i * n + i];
    for (int i = 0; i < n * n; i++) square += A[i] * A[i];
    CHECK_OK(ctx, linalg_eigenvalues(ctx, value, A, n));
    for (int i = 0; i < n; i++) sum += value[i], sum2 += value[i] * value[i];
    CHECK_NEAR(sum, trace, 1e-12);
    CHECK_NEAR(sum2, square, 1e-12);
    for (int i = 1; i < n; i++) CHECK(value[i] <= value[i - 1]);
    CHECK(value[m - 1] > 1e-3 && fabs(value[m]) < 1e-11 * value[0]);
}

static void small_and_degenerate(void)
{
    double one[1] = { -3 }, zero[4] = { 0 }, value[2];
    CHECK_OK(ctx, linalg_eigenvalues(ctx, value, one, 1));
    CHECK_NEAR(value[0], -3, 0);
    CHECK_OK(ctx, linalg_eigenvalues(ctx, value, zero, 2));
    CHECK(value[0] == 0 && value[1] == 0);
}

static void an_inverse_multiplies_to_one(void)
{
    enum { n = 65 };
    static double A[n * n], kept[n * n], B[n * 100], C[n * n];
    random_gram(A, B, n, 100);
    memcpy(kept, A, sizeof A);
    CHECK_OK(ctx, linalg_spd_inverse(ctx, A, n));
    cpu_dgemm(ctx, false, false, n, n, n, 1, A, n, kept, n, 0, C, n);
    for (int i = 0; i < n * n; i++) CHECK_NEAR(C[i], i % (n + 1) == 0, 1e-10); /* condition about 100 */
    double bad[4] = { 1, 2, 2, 1 };
    CHECK(linalg_spd_inverse(ctx, bad, 2) == CLOOB_ERR_NUMERIC);
}

/* A Gram matrix of rank 30 plus 1e-9: an inverse by halves meets negative pivots. */
static void a_matrix_close_to_singular(void)
{
    enum { n = 300 };
    static double A[n * n], kept[n * n], B[n * 30], x[n], y[n];
    random_gram(A, B, n, 30);
    for (int i = 0; i < n; i++) A[i * n + i] += 1e-9, x[i] = 0, y[i] = i % 7 - 3;
    memcpy(kept, A, sizeof A);
    CHECK_OK(ctx, linalg_spd_inverse(ctx, A, n));
    for (int i = 0; i < n * n; i++) x[i / n] += A[i] * y[i % n];
    for (int i = 0; i < n; i++) {
        double back = -y[i];
        for (int j = 0; j < n; j++) back += kept[i * n + j] * x[j];
        CHECK_NEAR(back, 0, 0.1); /* condition about 1e11, so 1e-5 of x, which is about 1e9 y */
    }
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(second_differences);
    RUN(sums_and_zeros_of_a_gram_matrix);
    RUN(small_and_degenerate);
    RUN(an_inverse_multiplies_to_one);
    RUN(a_matrix_close_to_singular);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
