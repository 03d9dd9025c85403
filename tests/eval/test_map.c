/* The map keeps neighbours together, is the same each time and with any number of threads, and takes odd sizes. */
#include "check.h"

#include "cloob/cloob.h"
#include "core/rng.h"
#include "eval/map.h"

static cloob_ctx *ctx;

enum { CLUSTERS = 6 };

/* N rows around CLUSTERS random directions; row i belongs to cluster i % CLUSTERS. */
static float *clusters(int64_t N, int64_t D, double spread)
{
    float *x = malloc((size_t)(N * D) * sizeof *x);
    uint64_t centre = rng_key(1, "centre"), noise = rng_key(1, "noise");
    for (int64_t i = 0; i < N; i++)
        for (int64_t d = 0; d < D; d++)
            x[i * D + d] = (float)(rng_normal(centre, (uint64_t)(i % CLUSTERS * D + d)) +
                                   spread * rng_normal(noise, (uint64_t)(i * D + d)));
    return x;
}

static float *map_of(cloob_ctx *c, const float *x, int64_t N, int64_t D, uint64_t seed)
{
    cloob_matrix m = { x, CLOOB_F32, N, D, "rows" };
    map_options o = { .seed = seed, .epochs = 150 };
    float *xy = malloc((size_t)(2 * N) * sizeof *xy);
    CHECK_OK(c, map_make(c, xy, &m, &o));
    return xy;
}

/* Of each point's 10 nearest in the plane: which share is of its own cluster. */
static double together(const float *xy, int64_t N)
{
    int64_t same = 0;
    for (int64_t i = 0; i < N; i++) {
        int64_t near[10], n = 0;
        double d[10];
        for (int64_t j = 0; j < N; j++) {
            if (j == i) continue;
            double dx = xy[2 * i] - xy[2 * j], dy = xy[2 * i + 1] - xy[2 * j + 1], here = dx * dx + dy * dy;
            int64_t at = n < 10 ? n++ : 9;
            if (at == 9 && n == 10 && j > 10 && here >= d[9]) continue;
            for (; at > 0 && d[at - 1] > here; at--) d[at] = d[at - 1], near[at] = near[at - 1];
            d[at] = here, near[at] = j;
        }
        for (int64_t k = 0; k < n; k++) same += near[k] % CLUSTERS == i % CLUSTERS;
    }
    return (double)same / (double)(10 * N);
}

static double distance(const float *y, int64_t D, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += pow((double)y[i * D + d] - y[j * D + d], 2);
    return sum;
}

/* Trustworthiness (Venna and Kaski): 1 when the k nearest in the plane are the k nearest in space, about 1/2 for a
 * random map. */
static double trustworthiness(const float *x, int64_t D, const float *xy, int64_t N, int64_t k)
{
    double penalty = 0;
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) {
            int64_t plane = 0, space = 0;
            if (j == i) continue;
            for (int64_t l = 0; l < N; l++) plane += l != i && distance(xy, 2, i, l) < distance(xy, 2, i, j);
            if (plane >= k) continue;
            for (int64_t l = 0; l < N; l++) space += l != i && distance(x, D, i, l) < distance(x, D, i, j);
            if (space >= k) penalty += (double)(space + 1 - k);
        }
    return 1 - penalty * 2 / (double)(N * k * (2 * N - 3 * k - 1));
}

static void clusters_stay_together(void)
{
    enum { N = 600, D = 40 };
    float *x = clusters(N, D, 0.6), *xy = map_of(ctx, x, N, D, 0);
    CHECK(together(xy, N) > 0.98); /* chance: 1 in 6 */
    free(x), free(xy);
}

/* Rows along a bent line: neighbours on the line are neighbours on the map. */
static void a_line_of_points_stays_a_line(void)
{
    enum { N = 200, D = 8 };
    float x[N * D], random[2 * N];
    uint64_t key = rng_key(3, "random map");
    for (int64_t i = 0; i < N; i++)
        for (int64_t d = 0; d < D; d++) x[i * D + d] = (float)sin(0.02 * (double)i * (double)(d + 1) / 2 + (double)d);
    for (int64_t i = 0; i < N; i++) { /* the map takes rows at unit length */
        double length = 0;
        for (int64_t d = 0; d < D; d++) length += (double)x[i * D + d] * x[i * D + d];
        for (int64_t d = 0; d < D; d++) x[i * D + d] /= (float)sqrt(length);
    }
    for (int64_t i = 0; i < 2 * N; i++) random[i] = (float)rng_normal(key, (uint64_t)i);
    float *xy = map_of(ctx, x, N, D, 0);
    CHECK(trustworthiness(x, D, xy, N, 8) > 0.97);
    CHECK(trustworthiness(x, D, random, N, 8) < 0.6);
    free(xy);
}

static void same_points_each_time_and_with_any_threads(void)
{
    enum { N = 1100, D = 70 };
    cloob_ctx_options one;
    cloob_ctx_options_init(&one);
    one.threads = 1;
    cloob_ctx *serial = cloob_ctx_create(&one);
    float *x = clusters(N, D, 1), *a = map_of(ctx, x, N, D, 7), *b = map_of(ctx, x, N, D, 7),
          *c = map_of(serial, x, N, D, 7), *other = map_of(ctx, x, N, D, 8);
    CHECK(memcmp(a, b, 2 * N * sizeof *a) == 0);
    CHECK(memcmp(a, c, 2 * N * sizeof *a) == 0);
    CHECK(memcmp(a, other, 2 * N * sizeof *a) != 0);
    free(x), free(a), free(b), free(c), free(other);
    cloob_ctx_destroy(serial);
}

static void odd_sizes(void)
{
    static const int64_t size[][2] = { { 1, 5 }, { 2, 1 }, { 3, 2 }, { 16, 3 }, { 33, 65 }, { 515, 17 } };
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        int64_t N = size[s][0];
        float *x = clusters(N, size[s][1], 1), *xy = map_of(ctx, x, N, size[s][1], 0), most = 0;
        for (int64_t i = 0; i < 2 * N; i++) {
            CHECK(isfinite(xy[i]));
            most = fmaxf(most, fabsf(xy[i]));
        }
        CHECK_NEAR(most, N > 1 ? 1 : 0, 1e-6);
        free(x), free(xy);
    }
}

static void equal_rows_stay_together(void)
{
    enum { N = 40, D = 6 };
    float x[N * D];
    for (int64_t i = 0; i < N * D; i++) x[i] = (float)(i % D);
    float *xy = map_of(ctx, x, N, D, 0);
    for (int64_t i = 0; i < 2 * N; i++) CHECK(isfinite(xy[i]));
    free(xy);
}

/* Against the definition: no other row is more similar. */
static void neighbours_are_the_nearest(void)
{
    enum { N = 530, D = 9, K = 7 };
    float *x = clusters(N, D, 1);
    rows r;
    unit_rows u;
    near_row *near = malloc(N * K * sizeof *near);
    tensor t = TENSOR(CLOOB_F32, x, N, D);
    CHECK_OK(ctx, rows_of(ctx, &r, &t, "rows"));
    CHECK_OK(ctx, unit_rows_init(ctx, &u, &r));
    CHECK_OK(ctx, nearest_rows(ctx, &u, &u, K, near));
    unit_rows_read(&u, 0, N, x); /* the rows at unit length, for the comparison */
    for (int64_t i = 0; i < N; i += 13)
        for (int64_t k = 0; k < K; k++) {
            int64_t closer = 0;
            double d = distance(x, D, i, near[i * K + k].entry);
            for (int64_t j = 0; j < N; j++) closer += j != i && distance(x, D, i, j) < d * (1 - 1e-4);
            CHECK(closer <= k && near[i * K + k].entry != i);
            CHECK_NEAR(near[i * K + k].score, 1 - d / 2, 1e-5);
        }
    unit_rows_release(&u);
    free(x), free(near);
}

static void bad_values_are_refused(void)
{
    float x[4 * 3] = { 1, 2, 3, 4, NAN, 6, 7, 8, 9, 1, 1, 1 }, xy[8];
    cloob_matrix m = { x, CLOOB_F32, 4, 3, "rows" };
    map_options o = { 0 };
    CHECK(map_make(ctx, xy, &m, &o) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "rows"));
    x[4] = INFINITY;
    CHECK(map_make(ctx, xy, &m, &o) == CLOOB_ERR_NUMERIC);
}

typedef struct watch {
    double last, stop;
    bool grows;
} watch;

static bool on_progress(void *user, double share)
{
    watch *w = user;
    w->grows = w->grows && share >= w->last && share <= 1;
    w->last = share;
    return share < w->stop;
}

static void progress_grows_and_cancels(void)
{
    enum { N = 300, D = 20 };
    float *x = clusters(N, D, 1), xy[2 * N];
    cloob_matrix m = { x, CLOOB_F32, N, D, "rows" };
    watch all = { 0, 2, true }, half = { 0, 0.7, true };
    map_options o = { .progress = on_progress, .user = &all };
    CHECK_OK(ctx, map_make(ctx, xy, &m, &o));
    CHECK(all.grows && all.last == 1);
    o.user = &half;
    CHECK(map_make(ctx, xy, &m, &o) == CLOOB_ERR_STOPPED);
    CHECK(half.last >= 0.7 && half.last < 0.75);
    free(x);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(clusters_stay_together);
    RUN(a_line_of_points_stays_a_line);
    RUN(same_points_each_time_and_with_any_threads);
    RUN(odd_sizes);
    RUN(equal_rows_stay_together);
    RUN(neighbours_are_the_nearest);
    RUN(bad_values_are_refused);
    RUN(progress_grows_and_cancels);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
