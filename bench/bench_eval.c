/* Time and memory of evaluations at the sizes of the paper, with generated features.
 *
 *     bench_eval probe|imagenet|retrieval|map [rows]
 *
 * probe      20,000 x 1024, 100 classes, lambda 1: the whole optimisation.
 * imagenet   1,281,167 x 2048, 1,000 classes: one evaluation of value and gradient; one preconditioner.
 * retrieval  780,000 pairs of 512 dimensions, all ranks both ways.
 * map        50,000 x 512, 100 classes: points in the plane, with the time of each step.
 *
 * Features are rectified mixtures as an encoder's: a class mean and noise through one random layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/pool.h"
#include "core/limits.h"
#include "core/rng.h"
#include "eval/rows.h"
#include "eval/probe/probe_objective.h"
#include "eval/probe/probe.h"
#include "eval/retrieval.h"
#include "eval/map.h"

static cloob_ctx *ctx;

static void need(cloob_status status)
{
    if (status == CLOOB_OK) return;
    fprintf(stderr, "bench_eval: %s\n", cloob_error(ctx));
    exit(1);
}

static double peak_gib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1048576.0;
}

static void log_line(void *user, cloob_log_level level, const char *text)
{
    (void)user, (void)level;
    printf("  %s\n", text);
}

/* ---- features ------------------------------------------------------------------------------------ */

typedef struct making {
    float *x;
    int64_t *y;
    int64_t d, classes, first;
    uint64_t own; /* key of a row's noise */
    double noise;
} making;

/* Cheap and normal enough: the sum of four bytes' halves. */
static float noise_at(uint64_t key, uint64_t i)
{
    uint64_t r = rng_u64(key, i);
    int sum = (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48) - 131070;
    return (float)sum * (1.0f / 37837.0f);
}

/* A fixed table of noise gives the values: drawing each one anew would take longer than what is timed. */
enum { TABLE = 1 << 20 };
static float table[TABLE];

static void make_range(void *arg, int64_t begin, int64_t end, int thread)
{
    making *m = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = m->first + i, c = m->classes ? (int64_t)rng_below(9, (uint64_t)row, (uint64_t)m->classes) : row;
        uint64_t mean = rng_u64(10, (uint64_t)c), own = rng_u64(m->own, (uint64_t)row);
        if (m->y) m->y[i] = c;
        for (int64_t k = 0; k < m->d; k++) {
            float v = table[(mean + (uint64_t)k) % TABLE] + (float)m->noise * table[(own + (uint64_t)k * 3) % TABLE];
            m->x[i * m->d + k] = m->classes && v < 0 ? 0 : v;
        }
    }
}

static rows make(float **x, int64_t **y, int64_t n, int64_t d, int64_t classes, int64_t first, uint64_t own,
                 double noise)
{
    *x = malloc((size_t)(n * d) * sizeof **x);
    if (y) *y = malloc((size_t)n * sizeof **y);
    if (!*x || (y && !*y)) need(ctx_no_memory(ctx, (size_t)(n * d) * sizeof **x, "features"));
    pool_for(ctx, n, 64, make_range, &(making){ *x, y ? *y : NULL, d, classes, first, own, noise });
    return (rows){ *x, CLOOB_F32, n, d, 1, "x" };
}

/* ---- what is timed ------------------------------------------------------------------------------- */

static void bench_probe(int64_t n)
{
    float *x[2];
    int64_t *y[2];
    probe_data train = { make(&x[0], &y[0], n, 1024, 100, 0, 11, 2.5), NULL },
               test = { make(&x[1], &y[1], n / 5, 1024, 100, n, 11, 2.5), NULL };
    train.y = y[0], test.y = y[1];
    for (int k = 0; k < 2; k++) {
        cloob_probe_options o = {
            .size = sizeof o, .search = false, .lambda = 1, .max_iterations = 1000, .tolerance = 0, .refit_all = true
        };
        cloob_probe_result r;
        double begin = clock_seconds();
        need(probe_run(ctx, &r, &o, &train, NULL, &test));
        printf("probe %lld x 1024, 100 classes: %.3f s, %d iterations, %d evaluations, objective %.6f, "
               "test %.4f, host peak %.2f GiB\n",
               (long long)n, clock_seconds() - begin, r.iterations, r.evaluations, r.objective, r.test_acc, peak_gib());
        cloob_probe_release(&r);
    }
    for (int k = 0; k < 2; k++) free(x[k]), free(y[k]);
}

static void time_evaluations(objective *o)
{
    lbfgs_problem p = objective_problem(o);
    double *w = malloc((size_t)p.n * sizeof *w), *g = malloc((size_t)p.n * sizeof *g), f;
    bool forget;
    for (int64_t i = 0; i < p.n; i++) w[i] = 0.01 * noise_at(12, (uint64_t)i);
    for (int k = 0; k < 4; k++) {
        double begin = clock_seconds();
        need(p.evaluate(p.arg, &f, g, w));
        printf("  one value and gradient: %.3f s (%.1f TFLOP/s), f %.6g\n", clock_seconds() - begin,
               4.0 * (double)o->N * (double)o->D * (double)o->C / (clock_seconds() - begin) * 1e-12, f);
    }
    double begin = clock_seconds();
    need(p.prepare(p.arg, 0, f, w, &forget));
    printf("  one preconditioner: %.3f s\n", clock_seconds() - begin);
    begin = clock_seconds();
    need(p.precondition(p.arg, w, g));
    printf("  applied: %.3f s\n", clock_seconds() - begin);
    free(w), free(g);
}

static void bench_imagenet(int64_t n)
{
    float *x;
    int64_t *y;
    double begin = clock_seconds();
    probe_data train = { make(&x, &y, n, 2048, 1000, 0, 11, 2.5), NULL };
    int32_t *position = malloc((size_t)n * sizeof *position);
    if (!position) need(ctx_no_memory(ctx, (size_t)n * 4, "labels"));
    train.y = y;
    for (int64_t i = 0; i < n; i++) position[i] = (int32_t)y[i];
    printf("imagenet: %lld x 2048 made in %.1f s\n", (long long)n, clock_seconds() - begin);
    objective *o;
    need(objective_create(ctx, &o, &train, 1, position, 1000, 1));
    time_evaluations(o);
    objective_destroy(o);
    printf("  host peak %.2f GiB, %.2f of it features\n", peak_gib(), (double)(n * 2048) * 4 / 1073741824.0);
    free(x), free(y), free(position);
}

static void bench_retrieval(int64_t n)
{
    float *x, *y;
    unit_rows a, b;
    cloob_retrieval r;
    rows rx = make(&x, NULL, n, 512, 0, 0, 13, 1.0), ry = make(&y, NULL, n, 512, 0, 0, 14, 1.0);
    double begin = clock_seconds();
    need(unit_rows_init(ctx, &a, &rx));
    need(unit_rows_init(ctx, &b, &ry));
    printf("retrieval: %lld pairs x 512 checked: %.2f s\n", (long long)n, clock_seconds() - begin);
    begin = clock_seconds();
    need(retrieval_run(ctx, &r, &a, &b, 0));
    double took = clock_seconds() - begin;
    printf("  %.2f s (%.1f TFLOP/s), host peak %.2f GiB; image to text R@1 %.4f mean %.2f median %.0f tied "
           "%lld, text to image R@1 %.4f mean %.2f\n",
           took, 2.0 * (double)n * (double)n * 512 / took * 1e-12, peak_gib(), r.image_to_text.recall1,
           r.image_to_text.mean_rank, r.image_to_text.median_rank, (long long)r.image_to_text.tied,
           r.text_to_image.recall1, r.text_to_image.mean_rank);
    unit_rows_release(&a), unit_rows_release(&b);
    free(x), free(y);
}

typedef struct map_watch {
    double begin, next;
} map_watch;

static bool map_share(void *user, double share)
{
    map_watch *w = user;
    if (share < w->next) return true;
    printf("  %3.0f %% after %.2f s\n", 100 * share, clock_seconds() - w->begin);
    w->next = share + 0.1;
    return true;
}

static void bench_map(int64_t n)
{
    float *x, *xy = malloc((size_t)(2 * n) * sizeof *xy);
    int64_t *y;
    rows r = make(&x, &y, n, 512, 100, 0, 15, 1.0);
    cloob_matrix m = { r.data, CLOOB_F32, n, 512, "rows" };
    map_options o = { 0 };
    map_watch w = { clock_seconds(), 0 };
    o.progress = map_share, o.user = &w;
    need(map_make(ctx, xy, &m, &o));
    printf("map: %lld x 512 in %.2f s, host peak %.2f GiB\n", (long long)n, clock_seconds() - w.begin, peak_gib());
    free(x), free(y), free(xy);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "probe";
    int64_t rows_asked = argc > 2 ? atoll(argv[2]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    cloob_ctx_options o = { .size = sizeof o, .log = log_line, .log_level = CLOOB_LOG_INFO };
    ctx = cloob_ctx_create(&o);
    for (uint64_t i = 0; i < TABLE; i++) table[i] = noise_at(8, i);
    if (strcmp(what, "imagenet") == 0) bench_imagenet(rows_asked ? rows_asked : 1281167);
    else if (strcmp(what, "retrieval") == 0) bench_retrieval(rows_asked ? rows_asked : 780000);
    else if (strcmp(what, "map") == 0) bench_map(rows_asked ? rows_asked : 50000);
    else bench_probe(rows_asked ? rows_asked : 20000);
    cloob_ctx_destroy(ctx);
    return 0;
}
