/* The linear probe: against exact optima (Newton, in double), its value and gradient against plain loops and slopes, and
 * with labels and features that cannot be used. */
#include "ref_values.h"

#include "core/rng.h"
#include "eval/probe/lbfgs.h"
#include "eval/probe/probe_objective.h"
#include "eval/probe/probe.h"
#include "core/json.h"

static cloob_ctx *ctx;

typedef struct splits {
    st_file f;
    probe_data part[3]; /* train, val, test */
    int64_t *y[3];
} splits;

static void open_splits(splits *s, const char *path)
{
    static const char *const names[3] = { "train", "val", "test" };
    CHECK_OK(ctx, st_open(ctx, path, &s->f));
    for (int k = 0; k < 3; k++) {
        char x[32], y[32];
        snprintf(x, sizeof x, "%s.x", names[k]);
        snprintf(y, sizeof y, "%s.y", names[k]);
        s->part[k].x = rows_named(ctx, &s->f, x);
        s->y[k] = malloc((size_t)s->part[k].x.N * sizeof *s->y[k]);
        CHECK_OK(ctx, labels_read(ctx, s->y[k], &st_find(&s->f, y)->t, s->part[k].x.N, y));
        s->part[k].y = s->y[k];
    }
}

static void close_splits(splits *s)
{
    for (int k = 0; k < 3; k++) free(s->y[k]);
    st_close(&s->f);
}

static cloob_probe_result fixed(const splits *s, double lambda, double tolerance)
{
    cloob_probe_options o = { .size = sizeof o,
                              .search = false,
                              .lambda = lambda,
                              .max_iterations = 1000,
                              .tolerance = tolerance,
                              .refit_all = true,
                              .device = NULL };
    cloob_probe_result r;
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &s->part[0], &s->part[1], &s->part[2]));
    CHECK(r.converged);
    return r;
}

static void equals_the_exact_optimum(void)
{
    char path[1024];
    arena a = { 0 };
    json *ref;
    splits s;
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_probe.json", path), &ref));
    open_splits(&s, ref_path("eval_probe.safetensors", path));
    for (const json *c = ref->child; c; c = c->next) {
        cloob_probe_result r = fixed(&s, want(c, "lambda"), 1e-12);
        CHECK_NEAR(r.objective / want(c, "objective"), 1, 1e-10);
        CHECK_NEAR(r.coef_norm / want(c, "coef_norm"), 1, 1e-5);
        CHECK_NEAR(r.train_acc, want(c, "train_acc"), 1e-12);
        CHECK_NEAR(r.val_acc, want(c, "val_acc"), 1e-12);
        CHECK_NEAR(r.test_acc, want(c, "test_acc"), 1e-12);
        cloob_probe_release(&r);
        r = fixed(&s, want(c, "lambda"), 0); /* the default goes as far */
        CHECK_NEAR(r.objective / want(c, "objective"), 1, 1e-10);
        cloob_probe_release(&r);
    }
    close_splits(&s);
    arena_release(&a);
}

static void the_search_takes_the_strongest_of_equals(void)
{
    char path[1024];
    splits s;
    cloob_probe_options o = { .size = sizeof o,
                              .search = true,
                              .lambda = 0,
                              .max_iterations = 1000,
                              .tolerance = 0,
                              .refit_all = true,
                              .device = NULL };
    cloob_probe_result r;
    open_splits(&s, ref_path("eval_probe.safetensors", path));
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &s.part[0], &s.part[1], &s.part[2]));
    CHECK(r.trials >= 13 && r.trained_rows == 150 + 90);
    for (int i = 0; i < r.trials; i++) {
        CHECK(r.trial[i].val_acc <= r.val_acc);
        if (r.trial[i].val_acc == r.val_acc) CHECK(r.trial[i].lambda <= r.lambda * (1 + 1e-12));
    }
    cloob_probe_release(&r);
    o.refit_all = false;
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &s.part[0], &s.part[1], &s.part[2]));
    CHECK(r.trained_rows == 150 && r.test_acc == r.searched_test_acc);
    cloob_probe_release(&r);
    CHECK_OK(ctx, probe_run(ctx, &r, &o, &s.part[0], NULL, &s.part[2])); /* half of the training rows validate */
    CHECK(r.has_val && r.trained_rows == 150);
    cloob_probe_release(&r);
    close_splits(&s);
}

/* A random half depends on the seed alone; the mean of ties lies between the least and the largest of them. */
static void random_halves_and_ties(void)
{
    char path[1024];
    splits s;
    cloob_probe_options o = { .size = sizeof o, .search = true, .max_iterations = 1000, .random_half = true };
    cloob_probe_result r[3], tied;
    open_splits(&s, ref_path("eval_probe.safetensors", path));
    for (int i = 0; i < 3; i++) {
        o.seed = i == 2 ? 8 : 7;
        CHECK_OK(ctx, probe_run(ctx, &r[i], &o, &s.part[0], NULL, &s.part[2]));
    }
    CHECK(r[0].lambda == r[1].lambda && r[0].trial[0].objective == r[1].trial[0].objective);
    CHECK(r[0].trial[0].objective != r[2].trial[0].objective);
    bool several = false;
    for (o.seed = 1; o.seed < 30 && !several; o.seed++) { /* a seed with ties */
        cloob_probe_result largest;
        double sum = 0, n = 0;
        o.ties_mean = false;
        CHECK_OK(ctx, probe_run(ctx, &largest, &o, &s.part[0], NULL, &s.part[2]));
        for (int i = 0; i < largest.trials; i++)
            if (largest.trial[i].val_acc == largest.val_acc) sum += log(largest.trial[i].lambda), n++;
        several = n > 1;
        o.ties_mean = true;
        CHECK_OK(ctx, probe_run(ctx, &tied, &o, &s.part[0], NULL, &s.part[2]));
        CHECK_NEAR(log(tied.lambda), sum / n, 1e-9);
        CHECK(several ? tied.lambda < largest.lambda : tied.lambda <= largest.lambda * (1 + 1e-12));
        cloob_probe_release(&largest), cloob_probe_release(&tied);
    }
    CHECK(several);
    for (int i = 0; i < 3; i++) cloob_probe_release(&r[i]);
    close_splits(&s);
}

/* ---- several blocks and parts ----------------------------------------------------------------------- */

enum { N = 2500, D = 60, C = 900 }; /* three blocks; more classes than dimensions */

static void make_big(float *x, int64_t *y)
{
    for (int64_t i = 0; i < N; i++) {
        y[i] = (int64_t)rng_below(1, (uint64_t)i, C);
        for (int64_t k = 0; k < D; k++)
            x[i * D + k] = (float)(2 * rng_normal(2, (uint64_t)(y[i] * D + k)) + rng_normal(3, (uint64_t)(i * D + k)));
    }
}

/* The sum of -ln softmax over the rows, by its definition, and the gradient of the first class's weights. */
static double plain_loss(const float *x, const int64_t *y, const double *w, double first[D + 1])
{
    double loss = 0, z[C];
    for (int64_t i = 0; i < N; i++) {
        double high = -INFINITY, sum = 0;
        for (int64_t c = 0; c < C; c++) {
            z[c] = w[c * (D + 1) + D];
            for (int64_t k = 0; k < D; k++) z[c] += w[c * (D + 1) + k] * x[i * D + k];
            high = fmax(high, z[c]);
        }
        for (int64_t c = 0; c < C; c++) sum += exp(z[c] - high);
        loss += high + log(sum) - z[y[i]];
        double p = exp(z[0] - high) / sum - (y[i] == 0);
        for (int64_t k = 0; k <= D; k++) first[k] += p * (k < D ? x[i * D + k] : 1);
    }
    return loss;
}

static void blocks_and_parts_add_up(void)
{
    float *x = malloc(sizeof *x * N * D);
    int64_t *y = malloc(sizeof *y * N), n = (int64_t)C * (D + 1);
    int32_t *small = malloc(sizeof *small * N);
    double *w = malloc(sizeof *w * (size_t)n), *g = malloc(sizeof *g * (size_t)n), first[D + 1] = { 0 }, f, penalty = 0;
    objective *o;
    make_big(x, y);
    probe_data two[2] = { { rows_in(x, 600, D), y }, { rows_in(x + 600 * D, N - 600, D), y + 600 } };
    for (int64_t i = 0; i < N; i++) small[i] = (int32_t)y[i];
    for (int64_t i = 0; i < n; i++) w[i] = 0.1 * rng_normal(4, (uint64_t)i);
    for (int64_t i = 0; i < n; i++) penalty += i % (D + 1) == D ? 0 : 0.35 * w[i] * w[i];
    CHECK_OK(ctx, objective_create(ctx, &o, two, 2, small, C, 0.7, NULL));
    CHECK(!o->newton && o->block < 1500);
    lbfgs_problem p = objective_problem(o);
    CHECK_OK(ctx, p.evaluate(p.arg, &f, g, w));
    CHECK_NEAR(f / (plain_loss(x, y, w, first) + penalty), 1, 1e-12);
    for (int64_t k = 0; k <= D; k++) CHECK_NEAR(g[k], first[k] + (k < D ? 0.7 * w[k] : 0), 1e-10);
    objective_destroy(o);
    free(x), free(y), free(small), free(w), free(g);
}

/* The slope along random directions by central differences, in double. */
static void gradient_is_the_slope(void)
{
    char path[1024];
    splits s;
    objective *o;
    int32_t y[150];
    enum { n = 5 * 8 };
    double w[n], g[n], v[n], f, up, down;
    open_splits(&s, ref_path("eval_probe.safetensors", path));
    for (int i = 0; i < 150; i++) y[i] = (int32_t)s.y[0][i];
    CHECK_OK(ctx, objective_create(ctx, &o, &s.part[0], 1, y, 5, 3.0, NULL));
    lbfgs_problem p = objective_problem(o);
    for (int i = 0; i < n; i++) w[i] = rng_normal(5, (uint64_t)i);
    CHECK_OK(ctx, p.evaluate(p.arg, &f, g, w));
    for (int i = 0; i < n; i++) {
        double keep = w[i];
        w[i] = keep + 1e-5;
        CHECK_OK(ctx, p.evaluate(p.arg, &up, v, w));
        w[i] = keep - 1e-5;
        CHECK_OK(ctx, p.evaluate(p.arg, &down, v, w));
        w[i] = keep;
        CHECK_NEAR(g[i], (up - down) / 2e-5, 1e-6); /* rounding of f: 1e-13 x 300 / 2e-5 */
    }
    objective_destroy(o);
    close_splits(&s);
}

static void logits_of_any_size(void)
{
    double z[4] = { 1000, 0, -1000, 500 }, sure[2] = { 50, 0 };
    int32_t y = 1;
    float u;
    CHECK_NEAR(softmax_loss(ctx, z, NULL, &y, 1, 4), 1000, 1e-12);
    CHECK(z[0] == 1 && z[1] == -1 && z[2] == 0 && z[3] < 1e-200);
    y = 0;
    CHECK_NEAR(softmax_loss(ctx, sure, &u, &y, 1, 2) / log1p(exp(-50)), 1, 1e-12); /* far below a double's 1 + x */
    CHECK_NEAR(sure[0] / -exp(-50), 1, 1e-12);
    CHECK_NEAR((double)u / (2 * exp(-50)), 1, 1e-6);
}

/* ---- the minimiser alone ------------------------------------------------------------------------- */

static cloob_status rosenbrock(void *arg, double *f, double *g, const double *w)
{
    int n = *(int *)arg;
    *f = 0;
    memset(g, 0, sizeof *g * (size_t)n);
    for (int i = 0; i + 1 < n; i++) {
        double a = w[i + 1] - w[i] * w[i], b = 1 - w[i];
        *f += 100 * a * a + b * b;
        g[i] += -400 * a * w[i] - 2 * b;
        g[i + 1] += 200 * a;
    }
    return CLOOB_OK;
}

static void the_banana_valley(void)
{
    int n = 30;
    double w[30];
    lbfgs_options o = { 1000, 1e-14 };
    lbfgs_result r;
    lbfgs_problem p = { .n = n, .noise = 1e-15, .evaluate = rosenbrock, .arg = &n };
    for (int i = 0; i < n; i++) w[i] = i % 2 ? 1.0 : -1.2;
    CHECK_OK(ctx, lbfgs_minimize(ctx, &p, &o, w, &r));
    CHECK(r.f < 1e-12 && r.iterations < 400);
    for (int i = 0; i < n; i++) CHECK_NEAR(w[i], 1, 1e-5);
    o.max_iterations = 3;
    w[0] = -1.2;
    CHECK_OK(ctx, lbfgs_minimize(ctx, &p, &o, w, &r));
    CHECK(!r.converged && r.iterations == 3);
}

typedef struct valley {
    int shape;
    double scale; /* of w: the first step is far too short, or far too long */
} valley;

static cloob_status valley_value(void *arg, double *f, double *g, const double *w)
{
    const valley *v = arg;
    double at = v->scale * *w, slope;
    if (v->shape == 0) *f = (at - 2) * (at - 2) + 1, slope = 2 * (at - 2);
    else if (v->shape == 1) *f = exp(-at) + 1e-3 * at * at, slope = -exp(-at) + 2e-3 * at; /* flat and far */
    else *f = 2 - 1 / (1 + (at - 3) * (at - 3)), slope = 2 * (at - 3) / pow(1 + (at - 3) * (at - 3), 2); /* concave */
    *g = v->scale * slope;
    return CLOOB_OK;
}

/* The minimiser gets there from steps that are far too short or too long. */
static void steps_of_any_length(void)
{
    for (double scale = 1e-4; scale < 1e5; scale *= 10)
        for (int shape = 0; shape < 3; shape++) {
            valley v = { shape, scale };
            double w = 0, slope, f;
            lbfgs_options o = { 200, 1e-12 };
            lbfgs_result r;
            lbfgs_problem p = { .n = 1, .noise = 1e-15, .evaluate = valley_value, .arg = &v };
            CHECK_OK(ctx, lbfgs_minimize(ctx, &p, &o, &w, &r));
            valley_value(&v, &f, &slope, &w);
            CHECK(r.converged && fabs(slope / scale) < 1e-4);
        }
}

/* ---- what cannot be used ------------------------------------------------------------------------- */

static cloob_status train_on(float *x, int64_t *y, int64_t n, int64_t test_label)
{
    probe_data train = { rows_in(x, n, 2), y }, test = { rows_in(x, 1, 2), &test_label };
    cloob_probe_options o = { .size = sizeof o,
                              .search = false,
                              .lambda = 1,
                              .max_iterations = 100,
                              .tolerance = 0,
                              .refit_all = true,
                              .device = NULL };
    cloob_probe_result r;
    cloob_status status = probe_run(ctx, &r, &o, &train, NULL, &test);
    if (status == CLOOB_OK) {
        CHECK(r.unknown_labels == (test_label == 99));
        CHECK(r.classes == 2 && r.class_gaps == 4);
    }
    cloob_probe_release(&r);
    return status;
}

static void classes_that_cannot_be_learnt(void)
{
    float x[12] = { 1, 2, 3, 4, 5, 6, 1, 2, 0, 1, 7, 8 };
    int64_t same[6] = { 3, 3, 3, 3, 3, 3 }, gaps[6] = { 5, 2, 2, 5, 5, 2 };
    CHECK(train_on(x, same, 6, 3) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "two classes"));
    CHECK_OK(ctx, train_on(x, gaps, 6, 2));
    CHECK_OK(ctx, train_on(x, gaps, 6, 99)); /* never seen: wrong, and counted */
    x[5] = NAN;
    CHECK(train_on(x, gaps, 6, 2) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "row 2, column 1"));
}

static void labels_that_are_none(void)
{
    int64_t out[4];
    int32_t fine[4] = { 3, 0, 1, 2 }, negative[4] = { 0, 1, -7, 2 };
    float whole[4] = { 0, 1, 2, 5 }, broken[4] = { 0, 1.5f, 2, 3 };
    tensor t = TENSOR(CLOOB_I32, fine, 4);
    CHECK_OK(ctx, labels_read(ctx, out, &t, 4, "y"));
    CHECK(out[0] == 3 && out[3] == 2);
    CHECK(labels_read(ctx, out, &t, 3, "y") == CLOOB_ERR_FORMAT);
    t = TENSOR(CLOOB_I32, negative, 4);
    CHECK(labels_read(ctx, out, &t, 4, "y") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "row 2"));
    t = TENSOR(CLOOB_F32, whole, 4);
    CHECK_OK(ctx, labels_read(ctx, out, &t, 4, "y"));
    t = TENSOR(CLOOB_F32, broken, 4);
    CHECK(labels_read(ctx, out, &t, 4, "y") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "row 1 holds 1.5"));
}

static void imagenet_fits_the_plan(void)
{
    probe_data train = { { NULL, CLOOB_F16, 1281167, 2048, 1, "imagenet" }, NULL };
    probe_plan p = probe_plan_make(&train, 1000);
    CHECK(!probe_is_small(p.N, p.D, p.C) && p.memory_bytes < (int64_t)1 << 30 && p.blocks * p.block_rows >= p.N);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equals_the_exact_optimum);
    RUN(the_search_takes_the_strongest_of_equals);
    RUN(random_halves_and_ties);
    RUN(blocks_and_parts_add_up);
    RUN(gradient_is_the_slope);
    RUN(logits_of_any_size);
    RUN(the_banana_valley);
    RUN(steps_of_any_length);
    RUN(classes_that_cannot_be_learnt);
    RUN(labels_that_are_none);
    RUN(imagenet_fits_the_plan);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
