/* Ranks against sorting all of the matrix, with ties, duplicates, collapse, odd sizes, every type and thread
 * count. */
#include "ref_values.h"

#include "core/rng.h"
#include "eval/retrieval.h"

static cloob_ctx *ctx;

static cloob_retrieval run_some(cloob_ctx *c, const rows *x, const rows *y, int64_t queries)
{
    unit_rows ux, uy;
    cloob_retrieval r = { 0 };
    CHECK_OK(c, unit_rows_init(c, &ux, x));
    CHECK_OK(c, unit_rows_init(c, &uy, y));
    CHECK_OK(c, retrieval_run(c, &r, &ux, &uy, queries));
    unit_rows_release(&ux), unit_rows_release(&uy);
    return r;
}

static cloob_retrieval run(cloob_ctx *c, const rows *x, const rows *y) { return run_some(c, x, y, 0); }

static void normalise(float *x, int64_t N, int64_t D)
{
    for (int64_t i = 0; i < N; i++) {
        double square = 0;
        for (int64_t k = 0; k < D; k++) square += (double)x[i * D + k] * x[i * D + k];
        for (int64_t k = 0; k < D; k++) x[i * D + k] = (float)(x[i * D + k] / sqrt(square));
    }
}

/* Noisy copies of common rows. */
static void make_pairs(float *x, float *y, int64_t N, int64_t D, double noise)
{
    for (int64_t i = 0; i < N * D; i++) {
        double base = rng_normal(1, (uint64_t)i);
        x[i] = (float)(base + noise * rng_normal(2, (uint64_t)i));
        y[i] = (float)(base + noise * rng_normal(3, (uint64_t)i));
    }
    normalise(x, N, D), normalise(y, N, D);
}

static double dot(const float *a, const float *b, int64_t D)
{
    double s = 0;
    for (int64_t k = 0; k < D; k++) s += (double)a[k] * b[k];
    return s;
}

/* Of rows 0, step, 2 step, ...: n of them. */
static cloob_retrieval_side slow(const float *x, const float *y, int64_t N, int64_t D, int64_t step, int64_t n)
{
    cloob_retrieval_side out = { 0 };
    int64_t *rank = malloc((size_t)n * sizeof *rank);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = k * step;
        double own = dot(x + i * D, y + i * D, D);
        bool tied = false;
        rank[k] = 1;
        for (int64_t j = 0; j < N; j++) {
            double s = dot(x + i * D, y + j * D, D);
            if (j != i && s == own) tied = true;
            rank[k] += j != i && (s > own || (s == own && j < i));
        }
        out.tied += tied;
    }
    retrieval_summary(&out, rank, n);
    free(rank);
    return out;
}

static void check_side(const cloob_retrieval_side *a, const cloob_retrieval_side *b)
{
    CHECK(a->recall1 == b->recall1 && a->recall5 == b->recall5 && a->recall10 == b->recall10);
    CHECK(a->mean_rank == b->mean_rank && a->median_rank == b->median_rank && a->tied == b->tied);
    CHECK_NEAR(a->mrr, b->mrr, 1e-12); /* ranks may have been sorted before */
}

static void check_against_sorting(const float *x, const float *y, int64_t N, int64_t D)
{
    int64_t step = 5, some = N / step > 0 ? N / step : 1;
    cloob_retrieval_side forth = slow(x, y, N, D, 1, N), back = slow(y, x, N, D, 1, N);
    cloob_retrieval_side forth_some = slow(x, y, N, D, N / some, some), back_some = slow(y, x, N, D, N / some, some);
    for (int threads = 1; threads <= 3; threads++) {
        cloob_ctx_options o = { .size = sizeof o, .threads = threads };
        cloob_ctx *c = cloob_ctx_create(&o);
        rows rx = rows_in(x, N, D), ry = rows_in(y, N, D);
        cloob_retrieval r = run(c, &rx, &ry);
        check_side(&r.image_to_text, &forth);
        check_side(&r.text_to_image, &back);
        CHECK(r.queries == N);
        r = run_some(c, &rx, &ry, some);
        check_side(&r.image_to_text, &forth_some);
        check_side(&r.text_to_image, &back_some);
        CHECK(r.queries == some && r.pairs == N);
        cloob_ctx_destroy(c);
    }
}

static void equals_sorting(void)
{
    static const int64_t size[][2] = { { 1, 3 }, { 2, 1 }, { 33, 7 }, { 511, 16 }, { 513, 9 }, { 1100, 20 } };
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        int64_t N = size[k][0], D = size[k][1];
        float *x = malloc((size_t)(N * D) * 4), *y = malloc((size_t)(N * D) * 4);
        make_pairs(x, y, N, D, 0.8);
        check_against_sorting(x, y, N, D);
        free(x), free(y);
    }
}

/* Captions that occur twice, far apart: the rank depends on the order of equal similarities. */
static void duplicates_rank_by_index(void)
{
    enum { N = 700, D = 12 };
    static float x[N * D], y[N * D];
    make_pairs(x, y, N, D, 0.5);
    for (int64_t i = 0; i < 60; i++) memcpy(y + (600 + i) * D, y + 3 * i * D, D * sizeof *y);
    check_against_sorting(x, y, N, D);
}

static void collapse_is_chance(void)
{
    enum { N = 640, D = 4 };
    static float x[N * D];
    for (int64_t i = 0; i < N * D; i++) x[i] = 0.5f;
    rows r = rows_in(x, N, D);
    cloob_retrieval out = run(ctx, &r, &r);
    CHECK(out.image_to_text.recall1 == 1.0 / N && out.image_to_text.tied == N);
    CHECK_NEAR(out.text_to_image.mean_rank, (N + 1) / 2.0, 1e-12);
}

static void lengths_do_not_matter_but_are_reported(void)
{
    enum { N = 50, D = 6 };
    static float x[N * D], y[N * D];
    make_pairs(x, y, N, D, 0.9);
    rows rx = rows_in(x, N, D), ry = rows_in(y, N, D);
    cloob_retrieval before = run(ctx, &rx, &ry);
    for (int64_t i = 0; i < N; i++)
        for (int64_t k = 0; k < D; k++) x[i * D + k] *= (float)(i + 2);
    cloob_retrieval after = run(ctx, &rx, &ry);
    check_side(&after.image_to_text, &before.image_to_text);
    check_side(&after.text_to_image, &before.text_to_image);
    CHECK(before.scaled == 0 && after.scaled == N);
}

static void half_precision_is_read(void)
{
    enum { N = 40, D = 8 };
    static float x[N * D], y[N * D];
    static uint16_t half[N * D], brain[N * D];
    static double wide[N * D];
    make_pairs(x, y, N, D, 0.2);
    dtype_convert(CLOOB_F16, half, CLOOB_F32, x, N * D);
    dtype_convert(CLOOB_BF16, brain, CLOOB_F32, x, N * D);
    dtype_convert(CLOOB_F64, wide, CLOOB_F32, x, N * D);
    rows ry = rows_in(y, N, D), rx[3] = { rows_in(x, N, D), rows_in(x, N, D), rows_in(x, N, D) };
    rx[0].data = half, rx[0].dtype = CLOOB_F16;
    rx[1].data = brain, rx[1].dtype = CLOOB_BF16;
    rx[2].data = wide, rx[2].dtype = CLOOB_F64;
    for (int k = 0; k < 3; k++) {
        cloob_retrieval r = run(ctx, &rx[k], &ry);
        CHECK(r.image_to_text.recall1 > 0.9 && r.scaled == 0);
    }
}

/* Every 16-bit pattern, subnormals, infinities and NaN included. */
static void every_half_converts(void)
{
    float scratch[1];
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t bits = (uint16_t)h;
        rows r = { &bits, CLOOB_F16, 1, 1, 1, "h" };
        float got = *rows_read(&r, 0, 1, scratch), expected = f16_to_float(bits);
        CHECK(got == expected || (isnan(got) && isnan(expected)));
        r.dtype = CLOOB_BF16;
        got = *rows_read(&r, 0, 1, scratch), expected = bf16_to_float(bits);
        CHECK(got == expected || (isnan(got) && isnan(expected)));
    }
}

static void bad_rows_are_named(void)
{
    enum { N = 600, D = 3 };
    static float x[N * D];
    unit_rows u, v;
    for (int64_t i = 0; i < N * D; i++) x[i] = 1;
    rows r = rows_in(x, N, D), shorter = rows_in(x, N - 1, D);
    x[577 * D + 2] = NAN, x[580 * D] = INFINITY;
    CHECK(unit_rows_init(ctx, &u, &r) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "row 577, column 2"));
    CHECK(rows_check(ctx, &r) == CLOOB_ERR_NUMERIC);
    x[577 * D + 2] = 1, x[580 * D] = 1;
    for (int k = 0; k < D; k++) x[44 * D + k] = 0;
    CHECK(unit_rows_init(ctx, &u, &r) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "row 44 is all zeros"));
    CHECK_OK(ctx, rows_check(ctx, &r));
    x[44 * D] = 1;
    CHECK_OK(ctx, unit_rows_init(ctx, &u, &r));
    CHECK_OK(ctx, unit_rows_init(ctx, &v, &shorter));
    cloob_retrieval out;
    CHECK(retrieval_run(ctx, &out, &u, &v, 0) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "600 x 3"));
    unit_rows_release(&u), unit_rows_release(&v);
}

/* Any number of captions per image, against sorting in NumPy. */
static void several_captions_as_published(void)
{
    char path[1024];
    arena a = { 0 };
    json *ref;
    st_file f;
    cloob_retrieval r;
    unit_rows ux, uy;
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_captions.json", path), &ref));
    CHECK_OK(ctx, st_open(ctx, ref_path("eval_captions.safetensors", path), &f));
    rows x = rows_named(ctx, &f, "image"), y = rows_named(ctx, &f, "text");
    const int64_t *owner = st_find(&f, "text_image")->t.data;
    CHECK_OK(ctx, unit_rows_init(ctx, &ux, &x));
    CHECK_OK(ctx, unit_rows_init(ctx, &uy, &y));
    CHECK_OK(ctx, retrieval_run_owned(ctx, &r, &ux, &uy, owner));
    CHECK(r.images == x.N && r.texts == y.N && r.queries == x.N - 1); /* one image has no caption */
    const cloob_retrieval_side *side[] = { &r.image_to_text, &r.text_to_image };
    static const char *const name[] = { "image_to_text", "text_to_image" };
    for (int k = 0; k < 2; k++) {
        const double got[] = { side[k]->recall1,   side[k]->recall5,     side[k]->recall10,
                               side[k]->mean_rank, side[k]->median_rank, side[k]->mrr };
        static const char *const key[] = { "R@1", "R@5", "R@10", "mean_rank", "median_rank", "MRR" };
        for (int i = 0; i < 6; i++) {
            char full[64];
            snprintf(full, sizeof full, "%s_%s", name[k], key[i]);
            CHECK_NEAR(got[i], want(ref, full), 1e-12);
        }
    }
    int64_t *wrong = malloc((size_t)y.N * sizeof *wrong);
    memcpy(wrong, owner, (size_t)y.N * sizeof *wrong);
    wrong[3] = x.N;
    CHECK(retrieval_run_owned(ctx, &r, &ux, &uy, wrong) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "text 3"));
    free(wrong);
    unit_rows_release(&ux), unit_rows_release(&uy);
    st_close(&f);
    arena_release(&a);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equals_sorting);
    RUN(duplicates_rank_by_index);
    RUN(collapse_is_chance);
    RUN(lengths_do_not_matter_but_are_reported);
    RUN(half_precision_is_read);
    RUN(every_half_converts);
    RUN(bad_rows_are_named);
    RUN(several_captions_as_published);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
