/* The rank-sum test against SciPy, and the comparison of two files of runs. */
#include "ref_values.h"

#include "core/file.h"
#include "lab/compare/groups.h"
#include "core/json.h"

static cloob_ctx *ctx;

static int64_t numbers(const json *list, double *out)
{
    int64_t n = 0;
    for (const json *j = list->child; j; j = j->next) out[n++] = j->number;
    return n;
}

/* 1e-12: both sides are a few dozen operations in double. */
static void check_case(const json *c)
{
    double a[64], b[64];
    int64_t na = numbers(json_get(c, "a"), a), nb = numbers(json_get(c, "b"), b);
    rank_sum r = ranksum_test(a, na, b, nb, true);
    CHECK_NEAR(r.U, want(c, "U"), 0);
    CHECK_NEAR(r.two_sided, want(c, "normal_two-sided"), 1e-12);
    CHECK_NEAR(r.less, want(c, "normal_less"), 1e-12);
    CHECK_NEAR(r.greater, want(c, "normal_greater"), 1e-12);
    bool exact = json_get(c, "exact_less")->kind == JSON_NUMBER;
    r = ranksum_test(a, na, b, nb, false);
    CHECK(r.exact == exact);
    if (!exact) return;
    CHECK_NEAR(r.two_sided, want(c, "exact_two-sided"), 1e-12);
    CHECK_NEAR(r.less, want(c, "exact_less"), 1e-12);
    CHECK_NEAR(r.greater, want(c, "exact_greater"), 1e-12);
}

static void check_file(const char *path)
{
    arena a = { 0 };
    json *root;
    CHECK_OK(ctx, json_read_file(ctx, &a, path, &root));
    CHECK(root->count > 0);
    for (const json *c = root->child; c; c = c->next) check_case(c);
    arena_release(&a);
}

static void equals_scipy(void)
{
    char path[1024];
    check_file(ref_path("eval_ranksum.json", path));
}

/* ---- compare ------------------------------------------------------------------------------------- */

static const char *const FILE_A = "test_compare_a.tmp", *const FILE_B = "test_compare_b.tmp";

static cloob_status compare_texts(groups_result *c, const char *a, const char *b, int64_t epoch)
{
    CHECK_OK(ctx, file_write(ctx, FILE_A, a, strlen(a)));
    CHECK_OK(ctx, file_write(ctx, FILE_B, b, strlen(b)));
    cloob_status status = compare_files(ctx, c, FILE_A, FILE_B, epoch, 0.05);
    remove(FILE_A), remove(FILE_B);
    return status;
}

static void groups_of_runs(void)
{
    groups_result c;
    CHECK_OK(ctx, compare_texts(&c,
                                "{\"top1\": 20.33, \"name\": \"a\", \"deep\": {\"x\": 1}}\n{\"top1\": 20.1}\n\n"
                                "{\"top1\": 20.6}\n{\"top1\": 20.5}\r\n{\"top1\": 20.2, \"lost\": null}",
                                "{\"top1\": 23.97}\n{\"top1\": 24.1}\n{\"top1\": 23.8, \"deep\": {\"x\": 1}}\n"
                                "{\"top1\": 24.0}\n{\"top1\": 23.9, \"only_b\": 3}\n",
                                -1));
    CHECK(c.runs[0] == 5 && c.runs[1] == 5 && c.metrics == 3 && c.skipped == 1);
    CHECK_STR(c.metric[0].metric, "top1");
    CHECK_NEAR(c.metric[0].group[0].mean, 20.346, 1e-12);
    CHECK_NEAR(c.metric[0].group[0].deviation, 0.20634921855921837, 1e-9);
    CHECK_NEAR(c.metric[0].pair[0].p, 0.007936507936507936, 1e-12);
    CHECK(c.metric[0].pair[0].test.exact && c.metric[0].pair[0].significant);
    CHECK_STR(c.metric[1].metric, "deep/x");
    CHECK(c.metric[1].group[0].n == 1 && c.metric[1].pair[0].p > 0 && !c.metric[1].pair[0].significant);
    CHECK_STR(c.metric[2].metric, "only_b");
    CHECK(isnan(c.metric[2].pair[0].p) && c.metric[2].group[0].n == 0);
    groups_release(&c);
}

static void one_epoch_of_many(void)
{
    groups_result c;
    const char *a = "{\"epoch\": 1, \"m\": 1}\n{\"epoch\": 2, \"m\": 5}\n", *b = "{\"epoch\": 2, \"m\": 6}\n";
    CHECK_OK(ctx, compare_texts(&c, a, b, 2));
    CHECK(c.metrics == 1 && c.runs[0] == 1 && c.metric[0].group[0].mean == 5);
    groups_release(&c);
    CHECK(compare_texts(&c, a, b, 7) == CLOOB_ERR_FORMAT && strstr(cloob_error(ctx), "epoch 7"));
}

static void bad_lines_are_named(void)
{
    groups_result c;
    CHECK(compare_texts(&c, "{\"m\": 1}\n{\"m\": }\n", "{\"m\": 1}", -1) == CLOOB_ERR_FORMAT);
    CHECK(strstr(cloob_error(ctx), "line 2"));
    CHECK(compare_texts(&c, "{\"m\": 1}\n[1]\n", "{\"m\": 1}", -1) == CLOOB_ERR_FORMAT);
    CHECK(compare_texts(&c, "\n\n", "{\"m\": 1}", -1) == CLOOB_ERR_FORMAT);
    CHECK(compare_files(ctx, &c, "no/such.jsonl", "no/such.jsonl", -1, 0.05) == CLOOB_ERR_IO);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(equals_scipy);
    RUN(groups_of_runs);
    RUN(one_epoch_of_many);
    RUN(bad_lines_are_named);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
