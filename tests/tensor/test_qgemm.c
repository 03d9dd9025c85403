/* GEMM with 8-bit weights and 7-bit activations: the same bytes as the definition at odd sizes and with the largest
 * sums, close to the product of floats, a row with the same bytes in any batch, the kernel with the numbers of the
 * plain one. */
#include "check.h"

#include "core/ctx.h"
#include "int8_problem.h"
#include "tensor/cpu/qgemm.h"

static cloob_ctx *ctx;

static problem make(int64_t M, int64_t N, int64_t K)
{
    static const packer g = { qgemm_packed_bytes, qgemm_scratch, qgemm_pack_floats };
    return problem_make(ctx, &g, M, N, K);
}

static void check_definition(problem *p)
{
    size_t bytes = (size_t)(p->c.M * p->c.N) * sizeof *p->y;
    igemm_call plain = p->c;
    plain.y = p->want;
    qgemm_plain(&plain);
    qgemm_run(ctx, &p->c);
    CHECK(memcmp(p->y, p->want, bytes) == 0);
}

static const int64_t sizes[][3] = {
    { 1, 1, 1 },    { 2, 16, 2 },    { 3, 9, 32 },    { 5, 17, 7 },    { 6, 33, 64 },
    { 13, 96, 33 }, { 80, 70, 130 }, { 7, 20, 1601 }, { 160, 18, 40 }, { 95, 16, 3072 }
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void the_definition_at_odd_sizes(void)
{
    for (int i = 0; i < SIZES; i++) {
        problem p = make(sizes[i][0], sizes[i][1], sizes[i][2]);
        int64_t n = p.c.M * p.c.N;
        float guard = p.y[n];
        check_definition(&p);
        CHECK(p.y[n] == guard);
        memcpy(p.y, p.res, (size_t)n * sizeof *p.y);
        p.c.res = p.y; /* in place */
        qgemm_run(ctx, &p.c);
        CHECK(memcmp(p.y, p.want, (size_t)n * sizeof *p.y) == 0);
        destroy(&p);
    }
}

/* Rows and weights that point the same way: without a coarser scale, sums of 16 products of 63 and 127 would not fit
 * 16 bits. A sign that differs in the second half shows that halves are counted apart. */
static void the_largest_sums_fit(void)
{
    enum { M = 7, N = 20, K = 70 };
    problem p = make(M, N, K);
    for (int64_t i = 0; i < M * K; i++) p.x[i] = i / K % 2 && i % K % 4 > 1 ? -1.0f : 1.0f;
    for (int64_t i = 0; i < N * K; i++)
        p.w[i] = i / K % 3 == 0 ? -0.5f : i % K % 4 > 1 && i / K % 3 == 1 ? 0.25f : 0.5f;
    qgemm_pack_floats(ctx, p.w, N, K, p.packed);
    p.c.bias = p.c.res = NULL;
    check_definition(&p);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = 0;
            for (int64_t k = 0; k < K; k++) want += (double)p.x[m * K + k] * (double)p.w[n * K + k];
            CHECK_NEAR(p.y[m * N + n], want, 0.05 * K); /* 15 steps for 1: the coarsest scale there is */
        }
    destroy(&p);
}

/* An element of W is off by at most half its row's scale, 1 / 254. An element of X is off by at most half its group's
 * scale: 1 / 126, or what the length of a half allows, here less than 1 / 60. */
static void close_to_floats(void)
{
    enum { M = 9, N = 40, K = 300 };
    problem p = make(M, N, K);
    double off = 0, all = 0;
    qgemm_run(ctx, &p.c);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = (double)p.bias[n] + (double)p.res[m * N + n], size = 0, weight = 0;
            for (int64_t k = 0; k < K; k++) {
                want += (double)p.x[m * K + k] * (double)p.w[n * K + k];
                size += fabs((double)p.x[m * K + k]), weight += fabs((double)p.w[n * K + k]);
            }
            double d = (double)p.y[m * N + n] - want;
            CHECK(fabs(d) <= size / 254 + weight / 60 + K / 254.0 / 60);
            off += d * d, all += want * want;
        }
    CHECK(sqrt(off / all) < 0.02);
    printf("off by %.4f of the length\n", sqrt(off / all));
    destroy(&p);
}

static void a_row_has_its_bytes_in_any_batch(void)
{
    enum { M = 90, N = 48, K = 900 };
    problem p = make(M, N, K);
    float few[3 * N];
    p.c.res = NULL;
    qgemm_run(ctx, &p.c);
    for (int64_t row = 0; row < M - 3; row += 13)
        for (int64_t rows = 1; rows <= 3; rows++) {
            igemm_call c = p.c;
            c.M = rows, c.x = p.x + row * K, c.y = few;
            qgemm_run(ctx, &c);
            CHECK(memcmp(few, p.y + row * N, (size_t)(rows * N) * sizeof *few) == 0);
        }
    destroy(&p);
}

/* Zeros and numbers too small for a scale give zeros. What is not a number stays in its row. */
static void zeros_and_what_is_not_a_number(void)
{
    enum { M = 5, N = 17, K = 64 };
    problem p = make(M, N, K);
    p.c.bias = p.c.res = NULL;
    for (int64_t k = 0; k < K; k++) p.x[k] = 0, p.x[K + k] = 1e-42f;
    p.x[2 * K + 40] = NAN;
    p.x[3 * K + 1] = INFINITY;
    qgemm_run(ctx, &p.c);
    for (int64_t n = 0; n < N; n++) {
        CHECK(p.y[n] == 0 && p.y[N + n] == 0);
        CHECK(!isfinite(p.y[2 * N + n]) && !isfinite(p.y[3 * N + n]) && isfinite(p.y[4 * N + n]));
    }
    destroy(&p);
}

static void the_kernel_gives_the_plain_numbers(void)
{
    enum { GROUPS = 5, R = QGEMM_ROWS, P = QGEMM_COLUMNS };
    problem p = make(R, P, GROUPS * QGEMM_GROUP);
    uint8_t x[GROUPS * QGEMM_GROUP * R];
    qgemm_row row[GROUPS * R];
    const int8_t *panel =
        (const int8_t *)p.packed + qgemm_packed_bytes(P, GROUPS * QGEMM_GROUP) - GROUPS * QGEMM_GROUP_BYTES;
    for (int i = 0; i < GROUPS * QGEMM_GROUP * R; i++) x[i] = (uint8_t)(i * 7919 % 41);
    for (int i = 0; i < GROUPS * R; i++)
        row[i] = (qgemm_row){ (float)(1 + i % 7) / 100, { (int16_t)(i % 41), (int16_t)(i % 41) } };
    for (int rows = 1; rows <= R; rows++) {
        float want[R * P], got[R * P];
        for (int i = 0; i < R * P; i++) want[i] = got[i] = (float)i;
        qgemm_block b = { x, row, panel, want, GROUPS, rows };
        qgemm_kernel_plain.multiply(&b);
        b.sum = got;
        qgemm_best()->multiply(&b);
        CHECK(memcmp(want, got, (size_t)(rows * P) * sizeof *got) == 0);
    }
    printf("%s\n", qgemm_best() == &qgemm_kernel_plain ? "no kernel beside the plain one" : "AVX2");
    destroy(&p);
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 3 });
    RUN(the_definition_at_odd_sizes);
    RUN(the_largest_sums_fit);
    RUN(close_to_floats);
    RUN(a_row_has_its_bytes_in_any_batch);
    RUN(zeros_and_what_is_not_a_number);
    RUN(the_kernel_gives_the_plain_numbers);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
