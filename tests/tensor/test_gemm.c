/* Products against three loops in double, for every transposition, odd sizes and padded rows. */
#include "check.h"

#include "core/rng.h"
#include "tensor/cpu/gemm.h"

static void fill(float *x, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)rng_normal(key, (uint64_t)i);
}

static double element(const float *A, bool t, int64_t ld, int64_t i, int64_t j)
{
    return t ? A[j * ld + i] : A[i * ld + j];
}

static void check_product(cloob_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, float beta)
{
    int64_t lda = (ta ? M : K) + 3, ldb = (tb ? K : N) + 1, ldc = N + 2;
    int64_t na = (ta ? K : M) * lda, nb = (tb ? N : K) * ldb, nc = M * ldc;
    float *A = malloc((size_t)(na + 1) * 4), *B = malloc((size_t)(nb + 1) * 4), *C = malloc((size_t)(nc + 1) * 4);
    float *before = malloc((size_t)(nc + 1) * 4);
    double worst = 0;
    fill(A, na, 1), fill(B, nb, 2), fill(C, nc, 3);
    if (beta == 0) C[0] = NAN; /* must not be read */
    memcpy(before, C, (size_t)nc * 4);
    cpu_sgemm(ctx, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = 0, want = before[i * ldc + j];
            for (int64_t k = 0; k < K && j < N; k++) sum += element(A, ta, lda, i, k) * element(B, tb, ldb, k, j);
            if (j < N) want = (beta == 0 ? 0 : beta * want) + alpha * sum; /* else padding, untouched */
            double off = fabs(C[i * ldc + j] - want);
            if (!(off <= worst)) worst = off;
        }
    CHECK(worst <= 1e-6 * (double)(K + 10)); /* K products of size 1, each rounded to 2^-24, errors adding */
    free(A), free(B), free(C), free(before);
}

static void every_transposition_and_odd_size(void)
{
    static const int64_t size[][3] = { { 1, 1, 1 },    { 5, 3, 7 },       { 33, 129, 65 }, { 1, 200, 300 },
                                       { 257, 1, 31 }, { 130, 140, 270 }, { 4, 4, 0 },     { 300, 16, 513 } };
    for (int threads = 1; threads <= 4; threads++) {
        cloob_ctx_options o = { .size = sizeof o, .threads = threads };
        cloob_ctx *ctx = cloob_ctx_create(&o);
        for (size_t s = 0; s < sizeof size / sizeof *size; s++)
            for (int t = 0; t < 4; t++) {
                check_product(ctx, t & 1, t & 2, size[s][0], size[s][1], size[s][2], 1.0f, 0.0f);
                check_product(ctx, t & 1, t & 2, size[s][0], size[s][1], size[s][2], 0.5f, 2.0f);
            }
        cloob_ctx_destroy(ctx);
    }
}

static void double_products(void)
{
    enum { M = 70, N = 37, K = 300 };
    static double A[M * K], B[K * N], C[M * N], T[K * M];
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    for (int i = 0; i < M * K; i++) A[i] = rng_normal(1, (uint64_t)i), T[i % K * M + i / K] = A[i];
    for (int i = 0; i < K * N; i++) B[i] = rng_normal(2, (uint64_t)i);
    cpu_dgemm(ctx, false, false, M, N, K, 1, A, K, B, N, 0, C, N);
    cpu_dgemm(ctx, true, false, M, N, K, 2, T, M, B, N, -1, C, N); /* 2AB - AB */
    for (int i = 0; i < M * N; i++) {
        double want = 0;
        for (int k = 0; k < K; k++) want += A[i / N * K + k] * B[k * N + i % N];
        CHECK_NEAR(C[i], want, 1e-12);
    }
    cloob_ctx_destroy(ctx);
}

int main(void)
{
    RUN(every_transposition_and_odd_size);
    RUN(double_products);
    return check_summary();
}
