/* When a run is said to have collapsed. */
#include "check.h"

#include "train/run_loop.h"

static void similarity_is_the_mean_over_pairs(void)
{
    enum { N = 7, D = 100 };
    float x[N * D];
    double pairs = 0;
    for (int i = 0; i < N; i++) {
        double square = 0;
        for (int k = 0; k < D; k++)
            x[i * D + k] = (float)sin(1.0 + i * 3.7 + k * (1 + 0.1 * i)), square += (double)x[i * D + k] * x[i * D + k];
        for (int k = 0; k < D; k++) x[i * D + k] = (float)(x[i * D + k] / sqrt(square));
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < D && i != j; k++) pairs += (double)x[i * D + k] * x[j * D + k];
    CHECK_NEAR(collapse_similarity(x, N, D), pairs / (N * (N - 1)), 1e-6);
    CHECK_NEAR(collapse_similarity(x, 1, D), 0, 0);
    for (int i = 1; i < N; i++) memcpy(x + i * D, x, D * sizeof *x);
    CHECK_NEAR(collapse_similarity(x, N, D), 1, 1e-5);
}

static void the_start_is_where_all_similarities_are_alike(void)
{
    CHECK_NEAR(collapse_start(CLOOB_METHOD_CLOOB, 128, 30), 2 * log(127) / 30, 1e-12);
    CHECK_NEAR(collapse_start(CLOOB_METHOD_CLIP, 128, 30), 2 * log(128) / 30, 1e-12);
}

static void it_takes_both_signs(void)
{
    collapse_signs s = { .image = 0.999, .text = 0.3, .loss = 0.324, .start = 0.323 };
    CHECK(collapse_seen(&s));
    s.loss = 0.25; /* it learns */
    CHECK(!collapse_seen(&s));
    s.loss = 0.323, s.image = 0.9; /* the first steps of any run */
    CHECK(!collapse_seen(&s));
    s.text = 0.995;
    CHECK(collapse_seen(&s));
}

static void checks_are_early_and_few(void)
{
    int looks = 0;
    for (int64_t k = 1; k <= 100000; k++) looks += collapse_is_due(k);
    CHECK(collapse_is_due(50) && collapse_is_due(100) && collapse_is_due(200) && !collapse_is_due(150) && looks < 15);
}

int main(void)
{
    RUN(similarity_is_the_mean_over_pairs);
    RUN(the_start_is_where_all_similarities_are_alike);
    RUN(it_takes_both_signs);
    RUN(checks_are_early_and_few);
    return check_summary();
}
