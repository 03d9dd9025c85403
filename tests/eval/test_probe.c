/* The linear probe: against exact optima (Newton, in double), in float against
 * double, and with labels and features that cannot be used. */
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
                              .refit_all = true };
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
        r = fixed(&s, want(c, "lambda"), 0); /* ends where SciPy does: when a step gains 2e-9 of the objective */
        CHECK_NEAR(r.objective / want(c, "objective"), 1, 2e-8);
        cloob_probe_release(&r);
    }
    close_splits(&s);
    arena_release(&a);
}

static void the_search_takes_the_strongest_of_equals(void)
{
    char path[1024];
    splits s;
    cloob_probe_options o = {
        .size = sizeof o, .search = true, .lambda = 0, .max_iterations = 1000, .tolerance = 0, .refit_all = true
    };
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

/* ---- larger than what is done in double ---------------------------------------------------------- */

enum { N = 4200, D = 60, C = 900 }; /* N (D+1) C = 2.3e8: float; several blocks; more classes than dimensions */

static void make_big(float *x, int64_t *y)
{
    for (int64_t i = 0; i < N; i++) {
        y[i] = (int64_t)rng_below(1, (uint64_t)i, C);
        for (int64_t k = 0; k < D; k++)
            x[i * D + k] = (float)(2 * rng_normal(2, (uint64_t)(y[i] * D + k)) + rng_normal(3, (uint64_t)(i * D + k)));
    }
}

static void float_agrees_with_double(void)
{
    float *x = malloc(sizeof *x * N * D);
    int64_t *y = malloc(sizeof *y * N);
    int32_t *small = malloc(sizeof *small * N);
    objective *narrow, *wide;
    int64_t n = (int64_t)C * (D + 1);
    double *w = malloc(sizeof *w * (size_t)n), *g = malloc(sizeof *g * (size_t)n), *h = malloc(sizeof *h * (size_t)n),
           f, e;
    make_big(x, y);
    probe_data all = { rows_in(x, N, D), y }, first = { rows_in(x, 600, D), y },
               rest = { rows_in(x + 600 * D, N - 600, D), y + 600 };
    probe_data two[2] = { first, rest };
    for (int64_t i = 0; i < N; i++) small[i] = (int32_t)y[i];
    for (int64_t i = 0; i < n; i++) w[i] = 0.1 * rng_normal(4, (uint64_t)i);
    CHECK_OK(ctx, objective_create(ctx, &narrow, &all, 1, small, C, 0.7));
    CHECK(!narrow->wide && !narrow->exact);
    lbfgs_problem p = objective_problem(narrow);
    CHECK_OK(ctx, p.evaluate(p.arg, &f, g, w));
    double sum = 0; /* double, by the small path over parts of the rows that are small enough */
    memset(h, 0, sizeof *h * (size_t)n);
    double *part = malloc(sizeof *part * (size_t)n);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(ctx, objective_create(ctx, &wide, &two[k], 1, small + (k ? 600 : 0), C, k ? 0 : 0.7));
        CHECK(wide->wide);
        lbfgs_problem q = objective_problem(wide);
        CHECK_OK(ctx, q.evaluate(q.arg, &e, part, w));
        sum += e;
        for (int64_t i = 0; i < n; i++) h[i] += part[i];
        objective_destroy(wide);
    }
    double off = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) off += (g[i] - h[i]) * (g[i] - h[i]), norm += h[i] * h[i];
    CHECK_NEAR(f / sum, 1, 1e-7);
    CHECK(sqrt(off / norm) < 1e-6);
    objective_destroy(narrow);
    free(x), free(y), free(small), free(w), free(g), free(h), free(part);
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
    CHECK_OK(ctx, objective_create(ctx, &o, &s.part[0], 1, y, 5, 3.0));
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
    float z[4] = { 1000, 0, -1000, 500 };
    double wide[4] = { 1000, 0, -1000, 500 };
    int32_t y = 1;
    CHECK_NEAR(softmax_loss_f(z, NULL, &y, 1, 4), 1000, 1e-12);
    CHECK_NEAR(softmax_loss_d(wide, NULL, &y, 1, 4), 1000, 1e-12);
    CHECK(z[0] == 1 && z[1] == -1 && z[2] == 0 && z[3] == 0);
    float sure[2] = { 20, 0 }, u;
    y = 0;
    CHECK_NEAR(softmax_loss_f(sure, &u, &y, 1, 2) / log1p(exp(-20)), 1, 1e-6); /* far below float's 1 + x */
    CHECK_NEAR(sure[0] / -exp(-20), 1, 1e-6);
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
    lbfgs_options o = { .history = 10, .max_iterations = 1000, .tolerance = 1e-14 };
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

/* From a first step that is far too short, too long, or right: both conditions hold where the search ends. */
static void steps_satisfy_both_conditions(void)
{
    for (double first = 1e-4; first < 1e5; first *= 10)
        for (int shape = 0; shape < 3; shape++) {
            line_verdict verdict = LINE_GO_ON;
            int count = 0;
            double f = 0, slope = 0, slope0 = shape == 0 ? -4 : shape == 1 ? -1 : -0.9;
            double f0 = shape == 0 ? 4 : shape == 1 ? 1 : 0;
            line_step s = line_step_begin(f0, slope0, first, 0);
            double at = first;
            for (; verdict == LINE_GO_ON && count < 40; count++) {
                at = s.step;
                if (shape == 0) f = (at - 2) * (at - 2), slope = 2 * (at - 2);                     /* minimum at 2 */
                else if (shape == 1) f = exp(-at) + 1e-3 * at * at, slope = -exp(-at) + 2e-3 * at; /* flat and far */
                else
                    f = -at / (at * at + 2) - 0.4 * sin(at),
                    slope = (at * at - 2) / ((at * at + 2) * (at * at + 2)) - 0.4 * cos(at);
                verdict = line_step_next(&s, f, slope);
            }
            CHECK(verdict == LINE_DONE);
            CHECK(f <= f0 + 1e-3 * at * slope0 && fabs(slope) <= 0.9 * fabs(slope0));
        }
}

/* ---- what cannot be used ------------------------------------------------------------------------- */

static cloob_status train_on(float *x, int64_t *y, int64_t n, int64_t test_label)
{
    probe_data train = { rows_in(x, n, 2), y }, test = { rows_in(x, 1, 2), &test_label };
    cloob_probe_options o = {
        .size = sizeof o, .search = false, .lambda = 1, .max_iterations = 100, .tolerance = 0, .refit_all = true
    };
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

static void invalid_labels_are_refused(void)
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
    CHECK(labels_read(ctx, out, &t, 4, "y") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "row 1 is 1.5"));
}

static void imagenet_fits_the_plan(void)
{
    probe_data train = { { NULL, CLOOB_F16, 1281167, 2048, 1, "imagenet" }, NULL };
    probe_plan p = probe_plan_make(&train, 1000, 2);
    CHECK(!p.wide && p.memory_bytes < (int64_t)1 << 30 && p.blocks * p.block_rows >= p.N);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equals_the_exact_optimum);
    RUN(the_search_takes_the_strongest_of_equals);
    RUN(random_halves_and_ties);
    RUN(float_agrees_with_double);
    RUN(gradient_is_the_slope);
    RUN(logits_of_any_size);
    RUN(the_banana_valley);
    RUN(steps_satisfy_both_conditions);
    RUN(classes_that_cannot_be_learnt);
    RUN(invalid_labels_are_refused);
    RUN(imagenet_fits_the_plan);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
