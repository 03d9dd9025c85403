/* GEMM with 8-bit weights: the same bytes as the definition at odd sizes, close to the product of floats, a row with
 * the same bytes in any batch, and every kernel of this machine the same whole numbers. */
#include "check.h"

#include "core/ctx.h"
#include "int8_problem.h"
#include "tensor/cpu/igemm.h"

static cloob_ctx *ctx;

static problem make(int64_t M, int64_t N, int64_t K)
{
    static const packer g = { igemm_packed_bytes, igemm_scratch, igemm_pack_floats };
    return problem_make(ctx, &g, M, N, K);
}

static const int64_t sizes[][3] = { { 1, 1, 1 },    { 2, 16, 2 },    { 5, 17, 7 },   { 6, 33, 64 },
                                    { 13, 96, 33 }, { 80, 70, 130 }, { 7, 20, 1601 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static void the_definition_at_odd_sizes(void)
{
    for (int i = 0; i < SIZES; i++) {
        problem p = make(sizes[i][0], sizes[i][1], sizes[i][2]);
        size_t bytes = (size_t)(p.c.M * p.c.N) * sizeof *p.y;
        float guard = p.y[p.c.M * p.c.N];
        igemm_call plain = p.c;
        plain.y = p.want;
        igemm_plain(&plain);
        igemm_run(ctx, &p.c);
        CHECK(memcmp(p.y, p.want, bytes) == 0);
        CHECK(p.y[p.c.M * p.c.N] == guard);
        memcpy(p.y, p.res, bytes);
        p.c.res = p.y; /* in place */
        igemm_run(ctx, &p.c);
        CHECK(memcmp(p.y, p.want, bytes) == 0);
        destroy(&p);
    }
}

/* An element of W is off by at most half its row's scale, 1 / 254; of X by 1 / 8190. */
static void close_to_floats(void)
{
    enum { M = 9, N = 40, K = 300 };
    problem p = make(M, N, K);
    igemm_run(ctx, &p.c);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = (double)p.bias[n] + (double)p.res[m * N + n], size = 0;
            for (int64_t k = 0; k < K; k++) {
                want += (double)p.x[m * K + k] * (double)p.w[n * K + k];
                size += fabs((double)p.x[m * K + k]);
            }
            CHECK(fabs((double)p.y[m * N + n] - want) <= size / 254 + K / 8000.0);
        }
    destroy(&p);
}

/* What a file of 8-bit weights holds gives the same panels as the floats it was made from. */
static void packed_from_whole_numbers(void)
{
    enum { N = 21, K = 35 };
    problem p = make(1, N, K);
    int8_t whole[N * K];
    float scale[N];
    void *again = room(igemm_packed_bytes(N, K));
    for (int64_t n = 0; n < N; n++) {
        float top = 0;
        for (int64_t k = 0; k < K; k++) top = fmaxf(top, fabsf(p.w[n * K + k]));
        scale[n] = top / 127.0f;
        for (int64_t k = 0; k < K; k++) whole[n * K + k] = (int8_t)lrintf(p.w[n * K + k] / scale[n]);
    }
    igemm_pack(ctx, whole, scale, N, K, again);
    CHECK(memcmp(p.packed, again, igemm_packed_bytes(N, K)) == 0);
    free(again), destroy(&p);
}

static void a_row_has_its_bytes_in_any_batch(void)
{
    enum { M = 90, N = 48, K = 900 };
    problem p = make(M, N, K);
    float alone[N];
    p.c.res = NULL;
    igemm_run(ctx, &p.c);
    for (int64_t row = 0; row < M; row += 13) {
        igemm_call one = p.c;
        one.M = 1, one.x = p.x + row * K, one.y = alone;
        igemm_run(ctx, &one);
        CHECK(memcmp(alone, p.y + row * N, sizeof alone) == 0);
    }
    destroy(&p);
}

/* The largest numbers, which would not fit if the bound were off by one bit; signs differ, so a flipped one shows. */
static void every_kernel_gives_the_same_sums(void)
{
    enum { PAIRS = 1536, P = IGEMM_COLUMNS };
    int16_t *x = malloc(PAIRS * IGEMM_ROWS * 2 * sizeof *x), *w = malloc(PAIRS * P * 2 * sizeof *w);
    int top = igemm_top(2 * PAIRS), ran = 0;
    for (int i = 0; i < PAIRS * IGEMM_ROWS * 2; i++) x[i] = (int16_t)(i % 12 < 2 ? top : (i * 7919) % (2 * top) - top);
    for (int i = 0; i < PAIRS * P * 2; i++) w[i] = (int16_t)(i % 32 < 2 ? -127 : (i * 31) % 255 - 127);
    for (int kernel = 1; kernel < 4; kernel++) {
        igemm_multiply_fn *fn = igemm_kernel(kernel);
        if (!fn) continue;
        ran++;
        for (int rows = 1; rows <= IGEMM_ROWS; rows++) {
            int32_t want[IGEMM_ROWS * P], got[IGEMM_ROWS * P];
            for (int first = 1; first >= 0; first--) {
                igemm_block b = { x, w, want, first ? PAIRS : 5, rows, first };
                igemm_multiply_plain(&b);
                b.sum = got;
                fn(&b);
                CHECK(memcmp(want, got, (size_t)rows * P * sizeof *got) == 0);
            }
        }
    }
    CHECK((int64_t)top * 127 * 2 * PAIRS <= INT32_MAX);
    printf("%d kernels beside the plain one\n", ran);
    free(x), free(w);
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 3 });
    RUN(the_definition_at_odd_sizes);
    RUN(close_to_floats);
    RUN(packed_from_whole_numbers);
    RUN(a_row_has_its_bytes_in_any_batch);
    RUN(every_kernel_gives_the_same_sums);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
