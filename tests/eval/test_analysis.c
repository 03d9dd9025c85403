/* The analysis against NumPy's values in double, and on sets whose answer is
 * known. */
#include "ref_values.h"

#include "cloob/hopfield.h"
#include "core/rng.h"
#include "eval/analysis.h"
#include "eval/retrieval.h"
#include "tensor/cpu/vmath.h"
#include "core/json.h"

static cloob_ctx *ctx;

/* Similarities are formed in float: one is off by 1e-7 at most, means of many by less; eigenvalues are in
 * double. */
static const double FLOAT_MEAN = 1e-7, DOUBLE_VALUE = 1e-9;

static void check_ranks(const rows *x, const rows *y, cloob_retrieval *out)
{
    unit_rows ux, uy;
    CHECK_OK(ctx, unit_rows_init(ctx, &ux, x));
    CHECK_OK(ctx, unit_rows_init(ctx, &uy, y));
    CHECK_OK(ctx, retrieval_run(ctx, out, &ux, &uy, 0));
    unit_rows_release(&ux), unit_rows_release(&uy);
}

static void equals_numpy(void)
{
    char path[1024];
    arena a = { 0 };
    json *ref;
    st_file f;
    embedding_analysis got;
    cloob_retrieval ranks;
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_pairs.json", path), &ref));
    CHECK_OK(ctx, st_open(ctx, ref_path("eval_pairs.safetensors", path), &f));
    rows x = rows_named(ctx, &f, "image"), y = rows_named(ctx, &f, "text");
    CHECK_OK(ctx, analysis_run(ctx, &got, &x, &y, 0.99));
    CHECK_NEAR(got.x.ajne, want(ref, "ajne_x"), FLOAT_MEAN);
    CHECK_NEAR(got.y.ajne, want(ref, "ajne_y"), FLOAT_MEAN);
    CHECK_NEAR(got.x.uniformity, want(ref, "uniformity_x"), FLOAT_MEAN);
    CHECK_NEAR(got.y.uniformity, want(ref, "uniformity_y"), FLOAT_MEAN);
    CHECK((double)got.x.effective == want(ref, "effective_x") && (double)got.y.effective == want(ref, "effective_y"));
    CHECK_NEAR(got.similarity.matched.mean, want(ref, "matched_mean"), FLOAT_MEAN);
    CHECK_NEAR(got.similarity.alignment, want(ref, "alignment"), FLOAT_MEAN);
    CHECK_NEAR(got.similarity.unmatched[0].mean, want(ref, "top10_unmatched_mean"), FLOAT_MEAN);
    CHECK_NEAR(got.similarity.unmatched[1].mean, want(ref, "top100_unmatched_mean"), FLOAT_MEAN);
    CHECK_NEAR(got.similarity.unmatched[2].mean, want(ref, "top1000_unmatched_mean"), FLOAT_MEAN);
    CHECK(got.similarity.unmatched[2].k == x.N - 1);
    int64_t i = 0;
    for (const json *v = json_get(ref, "eigenvalues_x")->child; v; v = v->next, i++)
        CHECK_NEAR(got.x.eigenvalue[i], v->number, DOUBLE_VALUE);
    check_ranks(&x, &y, &ranks);
    CHECK_NEAR(ranks.image_to_text.recall1, want(ref, "image_to_text_R@1"), 1e-15);
    CHECK_NEAR(ranks.image_to_text.mean_rank, want(ref, "image_to_text_mean_rank"), 1e-15);
    CHECK_NEAR(ranks.image_to_text.mrr, want(ref, "image_to_text_MRR"), 1e-12);
    CHECK_NEAR(ranks.text_to_image.recall5, want(ref, "text_to_image_R@5"), 1e-15);
    CHECK_NEAR(ranks.text_to_image.mean_rank, want(ref, "text_to_image_mean_rank"), 1e-15);
    analysis_release(&got);
    st_close(&f);
    arena_release(&a);
}

/* N / 4 for one point, and the two poles: arccos(-1) = pi between half of the pairs. */
static void known_uniformity(void)
{
    enum { N = 1200 };
    static float x[N * 2];
    rows r = rows_in(x, N, 2);
    unit_rows u;
    coverage got;
    for (int64_t i = 0; i < N; i++) x[2 * i] = 1;
    CHECK_OK(ctx, unit_rows_init(ctx, &u, &r));
    CHECK_OK(ctx, uniformity_run(ctx, &got, &u));
    CHECK_NEAR(got.ajne, N / 4.0, 1e-7);
    CHECK_NEAR(got.uniformity, 0, 1e-7);
    for (int64_t i = 0; i < N; i += 2) x[2 * i] = -1;
    CHECK_OK(ctx, uniformity_run(ctx, &got, &u));
    CHECK_NEAR(got.ajne, 0, 1e-6); /* an even number of antipodal points is as uniform as it gets */
    unit_rows_release(&u);
}

static void results_do_not_depend_on_threads_or_tiles(void)
{
    enum { N = 1300, D = 10 };
    static float x[N * D];
    embedding_analysis one = { 0 }, three = { 0 };
    cloob_ctx_options o1 = { .size = sizeof o1, .threads = 1 }, o3 = { .size = sizeof o3, .threads = 3 };
    cloob_ctx *c1 = cloob_ctx_create(&o1), *c3 = cloob_ctx_create(&o3);
    for (int64_t i = 0; i < N * D; i++) x[i] = (float)rng_normal(9, (uint64_t)i);
    rows r = rows_in(x, N, D);
    CHECK_OK(c1, analysis_run(c1, &one, &r, &r, 0.9));
    CHECK_OK(c3, analysis_run(c3, &three, &r, &r, 0.9));
    CHECK_NEAR(one.x.ajne, three.x.ajne, 1e-9);
    CHECK_NEAR(one.similarity.matched.mean, 1, 1e-7);
    for (int k = 0; k < UNMATCHED_SETS; k++) {
        CHECK_NEAR(one.similarity.unmatched[k].mean, three.similarity.unmatched[k].mean, 1e-9);
        CHECK(one.similarity.unmatched[k].count == N * one.similarity.unmatched[k].k);
    }
    analysis_release(&one), analysis_release(&three);
    cloob_ctx_destroy(c1), cloob_ctx_destroy(c3);
}

/* The best k of a stream are the first k of all, sorted: equal scores by entry. */
static void selection_equals_sorting(void)
{
    near_row all[300], best[300];
    for (uint64_t seed = 0; seed < 60; seed++) {
        int64_t n = 1 + (int64_t)rng_below(seed, 0, 300), k = 1 + (int64_t)rng_below(seed, 1, (uint64_t)n), held = 0;
        uint64_t kinds = seed % 3 == 0 ? 4 : 1000000; /* a third of them full of equal values */
        for (int64_t i = 0; i < n; i++) {
            all[i] = (near_row){ i, (float)rng_below(seed, (uint64_t)i + 2, kinds) };
            best_offer(best, &held, k, i, all[i].score);
        }
        qsort(all, (size_t)n, sizeof *all, best_first);
        qsort(best, (size_t)k, sizeof *best, best_first);
        CHECK(held == k);
        for (int64_t i = 0; i < k; i++) CHECK(best[i].entry == all[i].entry && best[i].score == all[i].score);
    }
}

static void effective_numbers(void)
{
    double even[4] = { 1, 1, 1, 1 }, one[3] = { 5, 0, 0 }, none[2] = { 0, 0 };
    CHECK(spectrum_effective(even, 4, 0.99) == 4 && spectrum_effective(even, 4, 0.5) == 2);
    CHECK(spectrum_effective(one, 3, 0.99) == 1 && spectrum_effective(none, 2, 0.99) == 0);
}

static void vector_functions(void)
{
    for (int i = -100000; i <= 100000; i++) {
        float x = (float)i / 100000.0f, e = (float)i / 1200.0f;
        CHECK_NEAR(vmath_asin(x), asin(x), 2e-7);
        CHECK(vmath_asin(-x) == -vmath_asin(x));
        CHECK_NEAR(vmath_exp_or_zero(e) / exp(e), 1, 4e-7);
        CHECK_NEAR(vmath_exp(e) / exp(e), 1, 4e-7);
    }
    CHECK(vmath_exp_or_zero(0) == 1.0f && vmath_exp_or_zero(-1000.0f) == 0.0f && vmath_asin(1.5f) == vmath_asin(1.0f));
}

static void one_row_and_one_modality(void)
{
    float x[6] = { 1, 0, 0, 0, 1, 0 };
    rows one = rows_in(x, 1, 3), two = rows_in(x, 2, 3);
    embedding_analysis a;
    CHECK(analysis_run(ctx, &a, &one, NULL, 0.99) == CLOOB_ERR_FORMAT);
    analysis_release(&a);
    CHECK_OK(ctx, analysis_run(ctx, &a, &two, NULL, 0.99));
    CHECK(!a.paired && a.x.effective == 1);
    analysis_release(&a);
    CHECK(analysis_run(ctx, &a, &two, &one, 0.99) == CLOOB_ERR_FORMAT);
    analysis_release(&a);
}

/* Axes have separation 1, a near copy little; the bound by hand. */
static void separation_of_known_rows(void)
{
    enum { N = 6 };
    float x[N * N] = { 0 };
    separation s;
    unit_rows u;
    rows r;
    for (int i = 0; i < N; i++) x[i * N + i] = 1;
    x[5 * N + 5] = 0.6f, x[5 * N + 4] = 0.8f; /* row 5 is 0.8 like row 4 */
    tensor t = TENSOR(CLOOB_F32, x, N, N);
    CHECK_OK(ctx, rows_of(ctx, &r, &t, "x"));
    CHECK_OK(ctx, unit_rows_init(ctx, &u, &r));
    CHECK_OK(ctx, separation_run(ctx, &s, &u, 30));
    CHECK_NEAR(s.needed, 2 / 180.0 + log(2.0 * 5 * 6 * 30) / 30, 1e-12); /* 0.261 */
    CHECK(s.rows == 4);
    CHECK_NEAR(s.smallest, 0.2, 1e-6);
    CHECK_NEAR(s.mean, (4 * 1.0 + 2 * 0.2) / 6, 1e-6);
    CHECK_OK(ctx, separation_run(ctx, &s, &u, 60)); /* 0.130 is needed */
    CHECK(s.rows == 6);
    CHECK_OK(ctx, separation_run(ctx, &s, &u, 1));
    CHECK(s.rows == 0);
    CHECK(separation_run(ctx, &s, &u, 0) == CLOOB_ERR_ARGUMENT);
    unit_rows_release(&u);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equals_numpy);
    RUN(known_uniformity);
    RUN(results_do_not_depend_on_threads_or_tiles);
    RUN(selection_equals_sorting);
    RUN(effective_numbers);
    RUN(vector_functions);
    RUN(one_row_and_one_modality);
    RUN(separation_of_known_rows);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
