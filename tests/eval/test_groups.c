/* Groups of runs against SciPy and NumPy: Holm's correction, Cliff's delta, means; bootstrap intervals against the
 * normal interval of a large sample; folders and lines give the same groups. */
#include <sys/stat.h>
#include <unistd.h>

#include "ref_values.h"

#include "cloob/cloob.h"
#include "core/file.h"
#include "core/rng.h"
#include "lab/compare/groups.h"
#include "core/json.h"

static cloob_ctx *ctx;

static void holm_is_a_step_down(void)
{
    double p[] = { 0.01, 0.04, NAN, 0.03, 0.005 }, want_p[] = { 0.03, 0.06, NAN, 0.06, 0.02 };
    holm_correct(p, 5);
    for (int i = 0; i < 5; i++)
        if (i != 2) CHECK_NEAR(p[i], want_p[i], 1e-15);
    CHECK(isnan(p[2]));
    double large[] = { 0.9, 0.8 };
    holm_correct(large, 2);
    CHECK(large[0] == 1 && large[1] == 1);
}

static void deltas_count_pairs(void)
{
    const double a[] = { 1, 2, 3 }, b[] = { 4, 5 }, c[] = { 2, 2 };
    CHECK_NEAR(cliffs_delta(b, 2, a, 3), 1, 0);
    CHECK_NEAR(cliffs_delta(a, 3, b, 2), -1, 0);
    CHECK_NEAR(cliffs_delta(a, 3, c, 2), 0, 0);
}

/* Of 400 normal values the interval of the mean is 1.96 spreads over 20, to the noise of 4,000 resamples. */
static void intervals_are_those_of_the_mean(void)
{
    enum { N = 400 };
    double x[N], mean = 0, square = 0, low, high, again_low, again_high;
    for (int i = 0; i < N; i++) x[i] = 5 + rng_normal(11, (uint64_t)i), mean += x[i] / N;
    for (int i = 0; i < N; i++) square += (x[i] - mean) * (x[i] - mean);
    double half = 1.96 * sqrt(square / (N - 1) / N);
    bootstrap_mean(x, N, 4000, 1, 0.95, &low, &high);
    CHECK_NEAR(low, mean - half, 0.1 * half);
    CHECK_NEAR(high, mean + half, 0.1 * half);
    bootstrap_mean(x, N, 4000, 1, 0.95, &again_low, &again_high);
    CHECK(low == again_low && high == again_high); /* the seed decides */
}

static const json *group_of(const json *m, const char *name) { return json_get(json_get(m, "groups"), name); }

static void check_metric(const groups_result *g, const group_row *m, const json *ref)
{
    for (int64_t k = 0; k < g->groups; k++) {
        CHECK_NEAR(m->group[k].mean, want(group_of(ref, g->name[k]), "mean"), 1e-12);
        CHECK_NEAR(m->group[k].deviation, want(group_of(ref, g->name[k]), "spread"), 1e-12);
        CHECK(m->group[k].low < m->group[k].mean && m->group[k].mean < m->group[k].high);
    }
    const json *pair = json_get(ref, "pairs")->child;
    for (int64_t i = 0; i < g->pairs && pair; i++, pair = pair->next) {
        CHECK_NEAR(m->pair[i].p, want(pair, "p"), 1e-12);
        CHECK_NEAR(m->pair[i].p_holm, want(pair, "p_holm"), 1e-12);
        CHECK_NEAR(m->pair[i].delta, want(pair, "delta"), 1e-12);
    }
}

/* Three groups with intervals side by side are wider than a terminal: the text has a section per metric. */
static void check_plain(const char *text)
{
    CHECK(strncmp(text, "metric\n  runs ", 14) == 0 && strstr(text, "\naccuracy\n  ") &&
          strstr(text, "\nnested/loss\n  "));
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        int width = 0;
        for (const char *at = line; *at && *at != '\n'; at++) width += ((unsigned char)*at & 0xC0) != 0x80;
        CHECK(width <= 80);
    }
}

/* The reference's lines, as a file and as folders of runs. */
static void groups_are_scipys(void)
{
    char path[1024], root[256] = "test_groups.tmp.XXXXXX", line_file[300];
    arena a = { 0 };
    json *ref;
    compare_options o;
    groups_result g;
    CHECK_OK(ctx, json_read_file(ctx, &a, ref_path("eval_groups.json", path), &ref));
    if (!mkdtemp(root)) return;
    snprintf(line_file, sizeof line_file, "%s.jsonl", root);
    sbuf lines = { 0 };
    int run = 0;
    for (const json *j = json_get(ref, "runs")->child; j; j = j->next, run++) {
        char dir[300], text[400];
        const char *method = json_string(json_get(j, "method"));
        int n = snprintf(text, sizeof text, "{\"accuracy\": %.17g, \"seed\": %d, \"nested\": {\"loss\": %.17g}}\n",
                         want(j, "accuracy"), run, want(j, "loss"));
        sbuf_printf(&lines, "{\"stage\": \"final\", \"settings\": {\"method\": \"%s\"}, %s", method, text + 1);
        snprintf(dir, sizeof dir, "%s/run%02d", root, run);
        CHECK_OK(ctx, file_make_dirs(ctx, dir));
        snprintf(path, sizeof path, "%s/summary.json", dir);
        CHECK_OK(ctx, file_write(ctx, path, text, (size_t)n));
        n = snprintf(text, sizeof text, "batch_size: 8\nmethod: %s\nscale_hopfield: 8\n", method);
        snprintf(path, sizeof path, "%s/params.txt", dir);
        CHECK_OK(ctx, file_write(ctx, path, text, (size_t)n));
    }
    sbuf_puts(&lines, "{\"stage\": \"search\", \"settings\": {\"method\": \"clip\"}, \"accuracy\": 100}\n");
    CHECK_OK(ctx, file_write(ctx, line_file, lines.data, lines.len));
    for (int way = 0; way < 3; way++) { /* final runs alone by default */
        const char *const from = way == 2 ? root : line_file, *const where[] = { "stage=final" };
        compare_options_init(&o);
        if (way == 1) o.where = where, o.wheres = 1;
        CHECK_OK(ctx, compare_runs(ctx, &g, &from, 1, &o));
        CHECK(g.groups == 3 && g.pairs == 3 && g.metrics == 2);
        CHECK_STR(g.metric[1].metric, "nested/loss");
        check_metric(&g, &g.metric[0], json_get(ref, "accuracy"));
        check_metric(&g, &g.metric[1], json_get(ref, "loss"));
        static const char *const format[] = { "text", "markdown", "latex", "csv", "json" };
        for (int k = 0; k < 5; k++) {
            char *text = groups_text(&g, format[k]);
            CHECK(text && strstr(text, "accuracy"));
            if (k == 0) check_plain(text);
            free(text);
        }
        groups_release(&g);
    }
    const char *const from = root;
    o.by = "scale-hopfield";
    CHECK(compare_runs(ctx, &g, &from, 1, &o) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "nothing to compare"));
    o.by = "colour";
    CHECK(compare_runs(ctx, &g, &from, 1, &o) == CLOOB_ERR_ARGUMENT && strstr(cloob_error(ctx), "`colour`"));
    snprintf(path, sizeof path, "rm -rf '%s' '%s'", root, line_file);
    CHECK(system(path) == 0);
    sbuf_release(&lines);
    arena_release(&a);
}

/* ---- what is compared ---------------------------------------------------------------------------- */

static void write_run(const char *root, const char *name, const char *file, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK_OK(ctx, file_make_dirs(ctx, path));
    snprintf(path, sizeof path, "%s/%s/checkpoints", root, name);
    CHECK_OK(ctx, file_make_dirs(ctx, path));
    snprintf(path, sizeof path, "%s/%s/params.txt", root, name);
    char params[128];
    int n = snprintf(params, sizeof params, "epochs: 3\nmethod: %.4s\n", name);
    CHECK_OK(ctx, file_write(ctx, path, params, (size_t)n));
    snprintf(path, sizeof path, "%s/%s/%s", root, name, file);
    CHECK_OK(ctx, file_write(ctx, path, text, strlen(text)));
}

static int left_out;
static void count_left_out(void *user, cloob_log_level level, const char *line)
{
    (void)user;
    left_out += level == CLOOB_LOG_WARN && strstr(line, "left out: not finished");
}

/* The runs that two groups of `from` have, with one `where` or none. */
static void expect_runs(const char *from, const char *where, int64_t a, int64_t b)
{
    cloob_ctx_options co;
    cloob_ctx_options_init(&co);
    co.log = count_left_out;
    cloob_ctx *own = cloob_ctx_create(&co);
    compare_options o;
    groups_result g;
    compare_options_init(&o);
    o.where = &where, o.wheres = where != NULL;
    CHECK_OK(own, compare_runs(own, &g, &from, 1, &o));
    CHECK(g.groups == 2 && g.runs[0] == a && g.runs[1] == b);
    groups_release(&g);
    cloob_ctx_destroy(own);
}

/* Runs that were interrupted are left out and named. */
static void unfinished_runs_are_left_out(void)
{
    char root[] = "test_unfinished.tmp.XXXXXX", command[100];
    const char *const done = "{\"loss\": 2, \"epoch\": 1}\n{\"loss\": 1, \"epoch\": 3}\n",
                      *const half = "{\"loss\": 2, \"epoch\": 1}\n";
    if (!mkdtemp(root)) return;
    write_run(root, "aaaa-0", "checkpoints/results.jsonl", done);
    write_run(root, "aaaa-1", "checkpoints/results.jsonl", half);
    write_run(root, "bbbb-0", "checkpoints/results.jsonl", done);
    write_run(root, "bbbb-1", "checkpoints/results.jsonl", done);
    left_out = 0;
    expect_runs(root, NULL, 1, 2);
    CHECK(left_out == 1);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

/* A sweep's folder: final runs by default, and `where` knows what its results.jsonl says. */
static void the_search_of_a_sweep_is_left_out(void)
{
    char root[] = "test_sweep.tmp.XXXXXX", path[1024], line_file[100];
    static const char *const group[] = { "aaaa", "bbbb" };
    sbuf lines = { 0 };
    if (!mkdtemp(root)) return;
    for (int k = 0; k < 10; k++) {
        char name[32], text[100];
        bool final = k >= 6; /* three of the search, two final ones a group */
        snprintf(name, sizeof name, "%s-seed%d", group[k % 2], k / 2);
        snprintf(text, sizeof text, "{\"loss\": %d}\n", k);
        write_run(root, name, "summary.json", text);
        sbuf_printf(&lines,
                    "{\"stage\": \"%s\", \"run\": \"%s\", \"chosen\": %s, \"settings\": {\"method\": \"%s\"}, %s",
                    final ? "final" : "search", name, k == 4 || k == 5 ? "false" : "true", group[k % 2], text + 1);
    }
    write_run(root, "aaaa-seed9", "checkpoints/results.jsonl", "{\"loss\": 1, \"epoch\": 3}\n"); /* no summary yet */
    snprintf(path, sizeof path, "%s/settings.txt", root);
    CHECK_OK(ctx, file_write(ctx, path, "", 0));
    snprintf(line_file, sizeof line_file, "%s/results.jsonl", root);
    CHECK_OK(ctx, file_write(ctx, line_file, lines.data, lines.len));
    left_out = 0;
    for (int file = 0; file < 2; file++) {
        expect_runs(file ? line_file : root, NULL, 2, 2);
        expect_runs(file ? line_file : root, "stage=search", 3, 3);
        expect_runs(file ? line_file : root, "chosen=true", 2, 2);
    }
    CHECK(left_out == 3); /* the folder's three times */
    groups_result two;
    CHECK_OK(ctx, compare_files(ctx, &two, line_file, line_file, -1, 0.05));
    CHECK(two.runs[0] == 4 && two.runs[1] == 4);
    groups_release(&two);
    snprintf(path, sizeof path, "rm -rf '%s'", root);
    CHECK(system(path) == 0);
    sbuf_release(&lines);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(holm_is_a_step_down);
    RUN(deltas_count_pairs);
    RUN(intervals_are_those_of_the_mean);
    RUN(groups_are_scipys);
    RUN(unfinished_runs_are_left_out);
    RUN(the_search_of_a_sweep_is_left_out);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
