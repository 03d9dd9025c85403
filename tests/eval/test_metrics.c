/* Average precision, means over classes, accuracy by group and neighbours against values of NumPy, SciPy and
 * scikit-learn (tests/ref/make/make_metrics_ref.py); few shots by their promises. */
#include "ref_values.h"

#include "cloob/cloob.h"
#include "core/rng.h"
#include "eval/metrics.h"
#include "eval/probe/probe.h"
#include "core/json.h"

static cloob_ctx *ctx;
static const json *frozen;

enum { MOST = 1024 };

/* A list of the frozen values into numbers; how many. */
static int64_t list(const json *object, const char *key, double *out)
{
    int64_t n = 0;
    const json *l = json_get(object, key);
    for (const json *e = l ? l->child : NULL; e && n < MOST; e = e->next) out[n++] = e->number;
    return n;
}

static double value(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v ? v->number : NAN;
}

static void precision_is_scikit_learns(void)
{
    const json *f = json_get(frozen, "average_precision");
    double s[MOST], p[MOST], expected[MOST], ap[16];
    float score[MOST];
    unsigned char positive[MOST];
    int64_t n = (int64_t)value(f, "n"), C = (int64_t)value(f, "C");
    CHECK(list(f, "score", s) == n * C && list(f, "positive", p) == n * C && list(f, "ap", expected) == C);
    for (int64_t i = 0; i < n * C; i++) score[i] = (float)s[i], positive[i] = p[i] != 0;
    CHECK_OK(ctx, average_precision(ctx, score, positive, n, C, ap));
    for (int64_t c = 0; c < C; c++) CHECK_NEAR(ap[c], expected[c], 1e-12);
}

static void means_are_over_classes_that_occur(void)
{
    const json *f = json_get(frozen, "classes");
    double a[MOST], b[MOST];
    int64_t label[MOST], predicted[MOST], n = list(f, "label", a);
    class_means m;
    list(f, "predicted", b);
    for (int64_t i = 0; i < n; i++) label[i] = (int64_t)a[i], predicted[i] = (int64_t)b[i];
    CHECK_OK(ctx, means_over_classes(ctx, label, predicted, n, (int64_t)value(f, "C"), &m));
    CHECK_NEAR(m.f1, value(f, "f1"), 1e-12);
    CHECK_NEAR(m.recall, value(f, "recall"), 1e-12);
}

static void groups_leave_out_empty_ones(void)
{
    const json *f = json_get(frozen, "groups");
    double g[MOST], r[MOST], expected[MOST], accuracy[8];
    int64_t group[MOST], count[8], n = list(f, "group", g), groups = list(f, "accuracy", expected), sum = 0;
    unsigned char right[MOST];
    list(f, "right", r);
    for (int64_t i = 0; i < n; i++) group[i] = (int64_t)g[i], right[i] = r[i] != 0;
    CHECK_NEAR(accuracy_by_group(right, group, n, groups, accuracy, count), value(f, "worst"), 1e-15);
    for (int64_t k = 0; k < groups; k++) {
        sum += count[k];
        if (expected[k] >= 0) CHECK_NEAR(accuracy[k], expected[k], 1e-15);
        else CHECK(isnan(accuracy[k]) && count[k] == 0);
    }
    CHECK(sum == n);
}

static void neighbours_vote(void)
{
    const json *f = json_get(frozen, "knn"), *answers = json_get(f, "answers");
    double x[MOST], q[MOST], l[MOST];
    float train[MOST], test[MOST];
    int64_t label[64], said[64], n = (int64_t)value(f, "n"), m = (int64_t)value(f, "m"), d = (int64_t)value(f, "d");
    list(f, "train", x), list(f, "test", q), list(f, "y", l);
    for (int64_t i = 0; i < n * d; i++) train[i] = (float)x[i];
    for (int64_t i = 0; i < m * d; i++) test[i] = (float)q[i];
    for (int64_t i = 0; i < n; i++) label[i] = (int64_t)l[i];
    rows a = { train, CLOOB_F32, n, d, 1, "train" }, b = { test, CLOOB_F32, m, d, 1, "test" };
    for (const json *k = answers->child; k; k = k->next) {
        int64_t i = 0;
        CHECK_OK(ctx, knn_predict(ctx, &a, label, &b, atoll(k->key), said));
        for (const json *e = k->child; e; e = e->next, i++) CHECK(said[i] == (int64_t)e->number);
    }
    CHECK(knn_predict(ctx, &a, label, &b, 0, said) == CLOOB_ERR_ARGUMENT);
    b.D = d - 1;
    CHECK(knn_predict(ctx, &a, label, &b, 3, said) == CLOOB_ERR_FORMAT);
}

/* ---- few shots ----------------------------------------------------------------------------------- */

enum { TRAIN = 60, CLASSES = 3, WIDTH = 5 };

/* Three clouds, three apart. */
static void clouds(float *x, int64_t *y, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = i % CLASSES;
        for (int64_t k = 0; k < WIDTH; k++)
            x[i * WIDTH + k] = (float)rng_normal(key, (uint64_t)(i * WIDTH + k)) + (k == y[i] ? 3.0F : 0.0F);
    }
}

static void shots_are_drawn_by_class_and_seed(void)
{
    float x[TRAIN * WIDTH];
    int64_t y[TRAIN], one[TRAIN], two[TRAIN], n, count[CLASSES] = { 0 };
    clouds(x, y, TRAIN, 4);
    probe_data d = { { x, CLOOB_F32, TRAIN, WIDTH, 1, "train" }, y };
    CHECK_OK(ctx, few_shot_choose(ctx, &d, 4, 1, one, &n));
    CHECK(n == 4 * CLASSES);
    for (int64_t i = 0; i < n; i++) {
        count[y[one[i]]]++;
        for (int64_t k = 0; k < i; k++) CHECK(one[i] != one[k]);
    }
    for (int c = 0; c < CLASSES; c++) CHECK(count[c] == 4);
    CHECK_OK(ctx, few_shot_choose(ctx, &d, 4, 1, two, &n));
    CHECK(memcmp(one, two, (size_t)n * sizeof *one) == 0);
    CHECK_OK(ctx, few_shot_choose(ctx, &d, 4, 2, two, &n));
    CHECK(memcmp(one, two, (size_t)n * sizeof *one) != 0);
    CHECK_OK(ctx, few_shot_choose(ctx, &d, 2, 1, two, &n)); /* fewer shots are the first of more */
    for (int c = 0; c < CLASSES; c++) CHECK(two[2 * c] == one[4 * c] && two[2 * c + 1] == one[4 * c + 1]);
    CHECK(few_shot_choose(ctx, &d, 21, 1, one, &n) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "20 rows"));
}

static void more_shots_do_not_hurt(void)
{
    static float x[TRAIN * WIDTH], t[TRAIN * WIDTH];
    static int64_t y[TRAIN], u[TRAIN];
    int64_t shots[] = { 1, 16 };
    clouds(x, y, TRAIN, 5), clouds(t, u, TRAIN, 6);
    cloob_split train = { .x = { x, CLOOB_F32, TRAIN, WIDTH, "train" }, .y = y },
                test = { .x = { t, CLOOB_F32, TRAIN, WIDTH, "test" }, .y = u };
    few_shot_options o = { .shots = shots, .shots_count = 2, .seeds = 5, .seed = 1 };
    static few_shot_result r;
    cloob_probe_options_init(&o.probe);
    CHECK_OK(ctx, few_shot_probe(ctx, &r, &o, &train, NULL, &test));
    CHECK(r.row[0].mean > 0.4 && r.row[1].mean > r.row[0].mean && r.row[1].mean > 0.8);
    CHECK(r.row[0].deviation > 0 && r.row[0].draw[0].lambda == FEW_SHOT_LAMBDA);
    o.seeds = 0;
    CHECK(few_shot_probe(ctx, &r, &o, &train, NULL, &test) == CLOOB_ERR_ARGUMENT);
}

/* Classes of two splits that number them differently are matched by name; a class without training rows is wrong in the
 * accuracy and in the mean over classes, for probes as for neighbours. */
static void classes_are_matched_by_name(void)
{
    static float x[TRAIN * WIDTH];
    static int64_t y[TRAIN], u[TRAIN], v[TRAIN];
    static const char *const one[] = { "jeans", "belt", "watch" }, *const other[] = { "watch", "hat", "jeans", "belt" },
                             *const none[] = { "cup", "pen", "key" }, *const twice[] = { "jeans", "belt", "belt" };
    const int64_t renumbered[] = { 2, 3, 0 };
    clouds(x, y, TRAIN, 5);
    for (int64_t i = 0; i < TRAIN; i++) u[i] = renumbered[y[i]], v[i] = y[i] == 1 ? 1 : u[i];
    cloob_matrix m = { x, CLOOB_F32, TRAIN, WIDTH, "rows" };
    cloob_split train = { m, y, one, 3 }, test = { m, u, other, 4 }, partly = { m, v, other, 4 };
    cloob_split foreign = { m, y, none, 3 }, doubled = { m, y, twice, 3 }, nameless = { m, u, NULL, 0 };
    cloob_split few = { m, u, other, 2 };
    knn_result k;
    cloob_probe_result r;
    cloob_probe_options o;
    cloob_probe_options_init(&o);
    o.search = false, o.lambda = 1;
    CHECK_OK(ctx, knn_classify(ctx, &k, 1, &train, &test));
    CHECK(k.test_acc == 1 && k.test_mean_per_class == 1);
    CHECK_OK(ctx, cloob_probe(ctx, &r, &o, &train, &test, &test));
    CHECK(r.test_acc == r.train_acc && r.test_acc > 0.8 && r.val_acc == r.test_acc);
    cloob_probe_release(&r);
    CHECK_OK(ctx, knn_classify(ctx, &k, 1, &train, &partly));
    CHECK_NEAR(k.test_acc, 2.0 / 3, 1e-12);
    CHECK_NEAR(k.test_mean_per_class, 2.0 / 3, 1e-12);
    CHECK_OK(ctx, cloob_probe(ctx, &r, &o, &train, NULL, &partly));
    CHECK(r.unknown_labels == TRAIN / 3 && r.test_acc < 0.67);
    CHECK_NEAR(r.test_mean_per_class, r.test_acc, 1e-12); /* all three have 20 rows */
    cloob_probe_release(&r);
    CHECK(knn_classify(ctx, &k, 1, &train, &foreign) == CLOOB_ERR_ARGUMENT &&
          strstr(cloob_error(ctx), "none of its 3"));
    CHECK(knn_classify(ctx, &k, 1, &train, &doubled) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "\"belt\""));
    CHECK(knn_classify(ctx, &k, 1, &train, &few) == CLOOB_ERR_FORMAT &&
          strstr(cloob_error(ctx), "2 classes have names"));
    CHECK_OK(ctx, knn_classify(ctx, &k, 1, &train, &nameless)); /* by number */
    CHECK(k.test_acc < 0.5);
}

int main(void)
{
    arena a = { 0 };
    json *root;
    char path[1024];
    ctx = cloob_ctx_create(NULL);
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_metrics.json", path), &root));
    frozen = root;
    RUN(precision_is_scikit_learns);
    RUN(means_are_over_classes_that_occur);
    RUN(groups_leave_out_empty_ones);
    RUN(neighbours_vote);
    RUN(shots_are_drawn_by_class_and_seed);
    RUN(more_shots_do_not_hurt);
    RUN(classes_are_matched_by_name);
    arena_release(&a);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
