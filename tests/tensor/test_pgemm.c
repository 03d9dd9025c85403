/* Products with packed weights: right at odd sizes, the same bytes packed before or on the way, and for a row in any
 * company. */
#include "check.h"

#include "core/ctx.h"
#include "core/rng.h"
#include "tensor/cpu/pgemm.h"

static cloob_ctx *ctx;

typedef struct problem {
    int64_t M, N, K;
    float *x, *w, *bias, *res, *y, *packed, *scratch;
    double *want;
} problem;

static float *floats(int64_t n, uint64_t key)
{
    float *x = aligned_alloc(256, (size_t)(n + 64) / 64 * 64 * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * rng_uniform(key, (uint64_t)i) - 1);
    return x;
}

static problem make(int64_t M, int64_t N, int64_t K, bool transposed)
{
    problem p = {
        M,    N,    K,   floats(M * K, 1), floats(N * K, 2), floats(N, 3), floats(M * N, 4), floats(M * N + 8, 5),
        NULL, NULL, NULL
    };
    p.packed = aligned_alloc(256, (pgemm_packed_bytes(N, K) + 255) / 256 * 256);
    p.scratch = aligned_alloc(256, (pgemm_scratch(ctx, M, N, K) + 255) / 256 * 256);
    p.want = calloc((size_t)(M * N), sizeof *p.want);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = (double)p.bias[n] + (double)p.res[m * N + n];
            for (int64_t k = 0; k < K; k++)
                sum += (double)p.x[m * K + k] * (double)p.w[transposed ? k * N + n : n * K + k];
            p.want[m * N + n] = sum;
        }
    return p;
}

static void destroy(problem *p)
{
    free(p->x), free(p->w), free(p->bias), free(p->res), free(p->y), free(p->packed), free(p->scratch), free(p->want);
}

static double error_of(const problem *p)
{
    double most = 0;
    for (int64_t i = 0; i < p->M * p->N; i++) most = fmax(most, fabs((double)p->y[i] - p->want[i]));
    return most;
}

static const int64_t sizes[][3] = { { 4, 32, 8 },    { 5, 33, 7 },  { 14, 31, 64 }, { 15, 96, 33 },
                                    { 29, 70, 130 }, { 50, 1, 16 }, { 77, 100, 1 }, { 300, 40, 500 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static void products_are_right_at_odd_sizes(void)
{
    for (int i = 0; i < 2 * SIZES; i++) {
        bool transposed = i % 2;
        problem p = make(sizes[i / 2][0], sizes[i / 2][1], sizes[i / 2][2], transposed);
        float *direct = malloc((size_t)(p.M * p.N) * sizeof *direct), guard = p.y[p.M * p.N];
        pgemm_call c = { .M = p.M,
                         .x = p.x,
                         .weight = { p.w, p.N, p.K, transposed },
                         .scratch = p.scratch,
                         .bias = p.bias,
                         .res = p.res,
                         .y = p.y };
        pgemm_run(ctx, &c);
        CHECK(error_of(&p) < 2e-4); /* at most 500 products below 1 each */
        memcpy(direct, p.y, (size_t)(p.M * p.N) * sizeof *direct);
        pgemm_pack(ctx, &c.weight, p.packed);
        c.packed = p.packed;
        memset(p.y, 0xFF, (size_t)(p.M * p.N) * sizeof *p.y);
        pgemm_run(ctx, &c);
        CHECK(memcmp(direct, p.y, (size_t)(p.M * p.N) * sizeof *direct) == 0);
        CHECK(p.y[p.M * p.N] == guard);
        memcpy(p.y, p.res, (size_t)(p.M * p.N) * sizeof *p.y);
        c.res = p.y; /* in place */
        pgemm_run(ctx, &c);
        CHECK(memcmp(direct, p.y, (size_t)(p.M * p.N) * sizeof *direct) == 0);
        c.res = p.res;
        pgemm_few(ctx, &c);
        CHECK(error_of(&p) < 2e-4);
        free(direct), destroy(&p);
    }
}

static void a_row_has_its_bytes_in_any_batch(void)
{
    enum { K = 900 }; /* more than one stretch of k */
    problem p = make(40, 48, K, false);
    float alone[48];
    pgemm_call c = { .M = 40, .x = p.x, .weight = { p.w, 48, K, false }, .scratch = p.scratch, .y = p.y };
    pgemm_run(ctx, &c);
    for (int64_t row = 0; row < 40; row += 13) {
        pgemm_call one = c;
        one.M = 1, one.x = p.x + row * K, one.y = alone;
        pgemm_run(ctx, &one);
        CHECK(memcmp(alone, p.y + row * 48, sizeof alone) == 0);
    }
    destroy(&p);
}

int main(void)
{
    ctx = cloob_ctx_create(&(cloob_ctx_options){ .threads = 3 });
    if (!pgemm_usable()) printf("neither AVX-512 nor AVX2: the plain loop\n");
    RUN(products_are_right_at_odd_sizes);
    RUN(a_row_has_its_bytes_in_any_batch);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
