/* Evaluation on a GPU beside the CPU: the probe's value, gradient, preconditioner and whole trainings, ranks
 * of every kind of embeddings; features that stay there and features that are sent. */
#include "ref_values.h"

#include "core/rng.h"
#include "eval/probe/probe_gpu.h"
#include "eval/probe/probe_objective.h"
#include "eval/probe/probe.h"
#include "eval/retrieval.h"

static cloob_ctx *ctx;
static device *gpu;

#define NEEDS_GPU()                                                                                                    \
    do {                                                                                                               \
        if (!gpu) SKIP("no GPU here");                                                                                 \
    } while (0)

/* ---- the probe ----------------------------------------------------------------------------------- */

enum {
    N = 4001,
    D = 61,
    C = 870,
    K = D + 1,
    CK = C * K
}; /* float (N K C > 2e8), nothing a multiple of 4; few enough rows for all to be in the preconditioner */

typedef struct sample {
    float *x;
    int64_t *y;
    int32_t *position;
    double *w, *g[2];
    probe_data part[2]; /* two parts of unequal size */
} sample;

static void sample_init(sample *s)
{
    s->x = malloc(sizeof *s->x * N * D), s->y = malloc(sizeof *s->y * N), s->position = malloc(sizeof *s->position * N);
    s->w = malloc(sizeof *s->w * CK);
    for (int k = 0; k < 2; k++) s->g[k] = malloc(sizeof *s->g[k] * CK);
    for (int64_t i = 0; i < N; i++) {
        s->y[i] = i % C;
        s->position[i] = (int32_t)s->y[i];
        for (int64_t k = 0; k < D; k++)
            s->x[i * D + k] =
                (float)(rng_normal(1, (uint64_t)(s->y[i] * D + k)) + 0.7 * rng_normal(2, (uint64_t)(i * D + k)));
    }
    for (int64_t i = 0; i < CK; i++) s->w[i] = 0.1 * rng_normal(3, (uint64_t)i);
    s->part[0] = (probe_data){ rows_in(s->x, 3000, D), s->y };
    s->part[1] = (probe_data){ rows_in(s->x + 3000 * D, N - 3000, D), s->y + 3000 };
}

static void sample_release(sample *s)
{
    free(s->x), free(s->y), free(s->position), free(s->w), free(s->g[0]), free(s->g[1]);
}

static double apart(const double *a, const double *b, int64_t n)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) off += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return sqrt(off / norm);
}

/* Value, gradient and preconditioned gradient on the CPU and on the GPU, which may use `limit` bytes. */
static void one_evaluation(size_t limit)
{
    sample s;
    objective *o[2];
    probe_gpu *g;
    double f[2], *d[2] = { malloc(sizeof(double) * CK), malloc(sizeof(double) * CK) };
    bool forget;
    sample_init(&s);
    CHECK_OK(ctx, probe_gpu_create(ctx, gpu, limit, &g));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(ctx, objective_create(ctx, &o[k], s.part, 2, s.position, C, 0.5, k ? g : NULL));
        CHECK(!o[k]->wide && (k == 1) == (o[k]->gpu != NULL));
        lbfgs_problem p = objective_problem(o[k]);
        CHECK_OK(ctx, p.evaluate(p.arg, &f[k], s.g[k], s.w));
        CHECK_OK(ctx, p.prepare(p.arg, 0, f[k], s.w, &forget));
        CHECK_OK(ctx, p.precondition(p.arg, d[k], s.g[0]));
    }
    CHECK_NEAR(f[1] / f[0], 1, 1e-7);
    CHECK(apart(s.g[1], s.g[0], CK) < 2e-6); /* sums of thousands of float products in another order */
    CHECK(apart(d[1], d[0], CK) < 2e-5);     /* and through an inverse of condition 1e2 */
    for (int k = 0; k < 2; k++) objective_destroy(o[k]), free(d[k]);
    probe_gpu_destroy(g);
    sample_release(&s);
}

static void features_that_stay(void)
{
    NEEDS_GPU();
    one_evaluation(0);
}

static void features_that_are_sent(void)
{
    NEEDS_GPU();
    one_evaluation(1);
}

static cloob_probe_result train(const sample *s, const char *where, int iterations)
{
    cloob_probe_options o = { .size = sizeof o,
                              .search = false,
                              .lambda = 0.5,
                              .max_iterations = iterations,
                              .tolerance = 1e-4,
                              .refit_all = true,
                              .device = where };
    cloob_probe_result r;
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &s->part[0], NULL, &s->part[1]));
    return r;
}

/* Parts of 3,000 rows are small enough for double; all rows as one part are not. Paths of L-BFGS in float
 * part by more and more: on the CPU alone one thread and two are 8e-8 apart after 4 iterations and 5e-5 after
 * 8 (docs/reference/evaluation.md). */
static void trainings_agree(void)
{
    NEEDS_GPU();
    sample s;
    sample_init(&s);
    s.part[0] = (probe_data){ rows_in(s.x, N, D), s.y };
    int limit[2] = { 3, 1000 };
    for (int k = 0; k < 2; k++) {
        cloob_probe_result a = train(&s, "cpu", limit[k]), b = train(&s, "cuda", limit[k]);
        printf("     %d and %d iterations, %.9g and %.9g\n", a.iterations, b.iterations, a.objective, b.objective);
        CHECK_NEAR(b.objective / a.objective, 1, k == 0 ? 1e-6 : 1e-4); /* to the end: within the tolerance of 1e-4 */
        CHECK_NEAR(a.test_acc, b.test_acc, k == 0 ? 1.01 / 1001 : 4.01 / 1001);
        CHECK_NEAR(a.train_acc, b.train_acc, 4.01 / N);
        cloob_probe_release(&a), cloob_probe_release(&b);
    }
    sample_release(&s);
}

/* ---- retrieval ----------------------------------------------------------------------------------- */

typedef enum kind { NOISY, DUPLICATES, COLLAPSED } kind;

static void make(float *x, float *y, int64_t n, int64_t d, kind what)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) {
            int64_t from = what == COLLAPSED ? 0 : what == DUPLICATES ? i / 3 : i;
            double base = rng_normal(5, (uint64_t)(from * d + k));
            x[i * d + k] = (float)(base + (what == NOISY ? 1.5 * rng_normal(6, (uint64_t)(i * d + k)) : 0));
            y[i * d + k] = (float)(base + (what == COLLAPSED ? 0 : 1.5 * rng_normal(7, (uint64_t)(from * d + k))));
        }
}

/* Every rank and every tie is the CPU's. */
static void ranks_agree(int64_t n, int64_t d, kind what, int64_t step)
{
    float *x = calloc((size_t)(n * d), sizeof *x), *y = calloc((size_t)(n * d), sizeof *y);
    rows rx = rows_in(x, n, d), ry = rows_in(y, n, d), some = rows_every(&rx, step, 0);
    unit_rows a, b;
    make(x, y, n, d, what);
    CHECK_OK(ctx, unit_rows_init(ctx, &a, &some));
    CHECK_OK(ctx, unit_rows_init(ctx, &b, &ry));
    int64_t m = some.N, *above = calloc((size_t)m * 4, sizeof *above), off = 0;
    unsigned char *tied = calloc((size_t)m, 4);
    double *matched = malloc((size_t)m * sizeof *matched);
    for (int k = 0; k < 2; k++) {
        rank_pass p = { .a = &a,
                        .b = &b,
                        .step = step,
                        .both = step == 1,
                        .matched = matched,
                        .above = { above + k * 2 * m, above + k * 2 * m + m },
                        .tied = { tied + k * 2 * m, tied + k * 2 * m + m } };
        CHECK_OK(ctx, ranks_match(ctx, &p));
        CHECK_OK(ctx, k ? ranks_gpu(ctx, gpu, &p) : ranks_cpu(ctx, &p));
    }
    for (int64_t i = 0; i < 2 * m; i++) off += above[i] != above[2 * m + i] || tied[i] != tied[2 * m + i];
    CHECK(off == 0);
    unit_rows_release(&a), unit_rows_release(&b);
    free(x), free(y), free(above), free(tied), free(matched);
}

static void ranks_are_the_same(void)
{
    NEEDS_GPU();
    ranks_agree(1, 3, NOISY, 1);
    ranks_agree(33, 7, NOISY, 1);
    ranks_agree(9001, 50, NOISY, 1); /* two tiles a side, the last one short */
    ranks_agree(9001, 50, DUPLICATES, 1);
    ranks_agree(9001, 16, NOISY, 7); /* every seventh asks */
    ranks_agree(9001, 16, DUPLICATES, 3);
    ranks_agree(8192, 8, COLLAPSED, 1);
}

static void no_gpu_is_told(void)
{
    if (gpu) SKIP("there is a GPU");
    float x[4] = { 1, 0, 0, 1 };
    int64_t y[2] = { 0, 1 };
    probe_data part = { rows_in(x, 2, 2), y };
    cloob_probe_options o = { .size = sizeof o,
                              .search = false,
                              .lambda = 1,
                              .max_iterations = 10,
                              .tolerance = 0,
                              .refit_all = true,
                              .device = "cuda" };
    cloob_probe_result r;
    CHECK(probe_run(ctx, &r, &o, &part, NULL, &part) == CLOOB_ERR_UNSUPPORTED &&
          strstr(cloob_error(ctx), "`device` cpu"));
    o.device = "auto";
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &part, NULL, &part));
    cloob_probe_release(&r);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    if (device_cuda_count() > 0) CHECK_OK(ctx, device_open(ctx, "cuda", &gpu));
    RUN(features_that_stay);
    RUN(features_that_are_sent);
    RUN(trainings_agree);
    RUN(ranks_are_the_same);
    RUN(no_gpu_is_told);
    device_close(gpu);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
