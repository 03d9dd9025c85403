/* Average precision, means over classes, accuracy by group, calibration, McNemar's test and neighbours against values
 * of NumPy, SciPy and scikit-learn (tests/ref/make/make_metrics_ref.py); few shots by their promises; files of
 * predictions. */
#include <unistd.h>

#include "ref_values.h"

#include "cloob/cloob.h"
#include "core/file.h"
#include "core/rng.h"
#include "eval/metrics.h"
#include "eval/probe/probe.h"
#include "core/json.h"
#include "infer/predictions.h"

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

static void calibration_is_the_mean_gap(void)
{
    const json *f = json_get(frozen, "calibration");
    double p[MOST], r[MOST];
    unsigned char right[MOST];
    int64_t n = list(f, "p", p);
    calibration c;
    list(f, "right", r);
    for (int64_t i = 0; i < n; i++) right[i] = r[i] != 0;
    CHECK_OK(ctx, calibration_measure(ctx, p, right, n, 15, &c));
    CHECK_NEAR(c.ece, value(f, "ece"), 1e-12);
    CHECK_NEAR(c.mce, value(f, "mce"), 1e-12);
    CHECK_NEAR(c.brier, value(f, "brier"), 1e-12);
    p[3] = 1.5;
    CHECK(calibration_measure(ctx, p, right, n, 15, &c) == CLOOB_ERR_NUMERIC && strstr(cloob_error(ctx), "row 3"));
    CHECK(calibration_measure(ctx, p, right, n, 0, &c) == CLOOB_ERR_ARGUMENT);
}

static void mcnemar_is_scipys(void)
{
    for (const json *f = json_get(frozen, "mcnemar")->child; f; f = f->next) {
        int64_t a = (int64_t)value(f, "a"), b = (int64_t)value(f, "b");
        CHECK_NEAR(mcnemar_exact(a, b), value(f, "exact"), 1e-9); /* logarithms of 40,000! leave ten digits */
        CHECK_NEAR(mcnemar_chi2(a, b), value(f, "chi2"), 1e-12);
        CHECK_NEAR(mcnemar_exact(b, a), mcnemar_exact(a, b), 1e-12);
    }
}

/* Of 900 images with known shares the interval is that of the normal distribution, to the noise of resampling. */
static void intervals_are_normal_for_many_images(void)
{
    enum { N = 900 };
    unsigned char a[N], b[N];
    paired_result r, again;
    for (int i = 0; i < N; i++) a[i] = rng_uniform(1, (uint64_t)i) < 0.7, b[i] = rng_uniform(2, (uint64_t)i) < 0.6;
    CHECK_OK(ctx, paired_compare(ctx, a, b, N, 4000, 3, 0.95, &r));
    CHECK_OK(ctx, paired_compare(ctx, a, b, N, 4000, 3, 0.95, &again));
    CHECK(memcmp(&r, &again, sizeof r) == 0 && r.both + r.a_only + r.b_only + r.neither == N);
    CHECK_NEAR(r.difference, r.accuracy_a - r.accuracy_b, 1e-15);
    double half = 1.96 * sqrt(r.accuracy_a * (1 - r.accuracy_a) / N);
    CHECK_NEAR(r.interval_a[1] - r.accuracy_a, half, 0.003);
    CHECK_NEAR(r.accuracy_a - r.interval_a[0], half, 0.003);
    double one =
        (double)(r.a_only + r.b_only) / N - r.difference * r.difference; /* variance of one image's difference */
    CHECK_NEAR(r.interval_difference[1] - r.interval_difference[0], 2 * 1.96 * sqrt(one / N), 0.006);
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
    o.probe.device = "cpu";
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
    o.search = false, o.lambda = 1, o.device = "cpu";
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

/* ---- files --------------------------------------------------------------------------------------- */

static const char *write_temporary(const char *name, const char *text, char path[128])
{
    snprintf(path, 128, "/tmp/cloob-predictions-%d-%s", (int)getpid(), name);
    CHECK_OK(ctx, file_write(ctx, path, text, strlen(text)));
    return path;
}

static cloob_status opens(const char *name, const char *text)
{
    char path[128];
    predictions *p;
    cloob_status status = predictions_open(ctx, write_temporary(name, text, path), &p);
    predictions_close(p);
    unlink(path);
    return status;
}

static void files_are_matched_by_image(void)
{
    char pa[128], pb[128];
    predictions *a, *b;
    paired_result r;
    calibration c;
    write_temporary("a.csv",
                    "image,label,predicted,p,correct\n1,cat,cat,0.9,1\n2,dog,cat,0.6,0\n\"3,x\",dog,dog,0.8,1\n", pa);
    write_temporary("b.jsonl",
                    "{\"image\": \"3,x\", \"label\": \"dog\", \"predicted\": \"cat\"}\n{\"image\": \"1\", \"label\": "
                    "\"cat\", \"predicted\": \"cat\", \"correct\": true}\n{\"image\": \"9\", \"correct\": false}\n",
                    pb);
    CHECK_OK(ctx, predictions_open(ctx, pa, &a));
    CHECK_OK(ctx, predictions_open(ctx, pb, &b));
    CHECK_OK(ctx, predictions_compare(ctx, a, b, NULL, &r));
    CHECK(r.n == 2 && r.left_out == 2 && r.both == 1 && r.a_only == 1 && r.b_only == 0);
    CHECK_OK(ctx, predictions_calibrate(ctx, a, 15, &c));
    CHECK_NEAR(c.accuracy, 2.0 / 3, 1e-12);
    CHECK(predictions_calibrate(ctx, b, 15, &c) == CLOOB_ERR_FORMAT);
    predictions_close(a), predictions_close(b);
    unlink(pa), unlink(pb);
}

static void broken_files_are_refused(void)
{
    CHECK(opens("c.csv", "") == CLOOB_ERR_FORMAT);
    CHECK(opens("c.csv", "name,label\nx,y\n") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "image,label"));
    CHECK(opens("c.csv", "image,label,predicted\n") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "no predictions"));
    CHECK(opens("c.csv", "image,correct\n1,yes\n") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "line 2"));
    CHECK(opens("c.csv", "image,correct,p\n1,1,2.5\n") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "2.5"));
    CHECK(opens("c.csv", "image,correct\n1,1\n1,0\n") == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "two lines"));
    CHECK(opens("c.jsonl", "{\"image\": \"1\"}\n") == CLOOB_ERR_FORMAT);
    CHECK(opens("c.jsonl", "{broken\n") == CLOOB_ERR_FORMAT);
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
    RUN(calibration_is_the_mean_gap);
    RUN(mcnemar_is_scipys);
    RUN(intervals_are_normal_for_many_images);
    RUN(neighbours_vote);
    RUN(shots_are_drawn_by_class_and_seed);
    RUN(more_shots_do_not_hurt);
    RUN(classes_are_matched_by_name);
    RUN(files_are_matched_by_image);
    RUN(broken_files_are_refused);
    arena_release(&a);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
