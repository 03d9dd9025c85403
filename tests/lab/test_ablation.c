/* Tables of an ablation, against values worked out by hand. */
#include "check.h"
#include "lab/compare/groups.h"
#include "core/json.h"

static cloob_ctx *ctx;

static void add(arena *a, ablation *t, int method, const char *text)
{
    json *root;
    CHECK_OK(ctx, json_parse(ctx, a, text, strlen(text), "a run", &root));
    CHECK_OK(ctx, ablation_add(ctx, a, t, method, root));
}

/* Five against five without overlap: two of C(10, 5) = 252 orders are as extreme. */
static void fill(arena *a, ablation *t)
{
    char text[256];
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text,
                 "{\"seed\": %d, \"R@1\": %g, \"image_ajne\": %g, \"val_loss\": %g, \"zero\": {\"top1\": %g, "
                 "\"n\": 9}}",
                 i, 0.1 + 0.01 * i, 5.0 + i, 1.0 + i, 0.5);
        add(a, t, 0, text);
        snprintf(text, sizeof text,
                 "{\"seed\": %d, \"R@1\": %g, \"image_ajne\": %g, \"val_loss\": %g, \"zero\": {\"top1\": %g, "
                 "\"n\": 9}}",
                 i, 0.2 + 0.01 * i, 4.0 - 0.5 * i, 9.0 + i, 0.5);
        add(a, t, 1, text);
    }
}

static void means_spreads_and_winners(void)
{
    arena a = { 0 };
    ablation t = { .method = { "clip", "cloob" }, .methods = 2, .seeds = 5, .alpha = 0.05 };
    fill(&a, &t);
    CHECK_OK(ctx, ablation_test(ctx, &t));
    CHECK(t.count == 4); /* seed and n are no metrics */
    const ablation_metric *r = &t.metric[0], *ajne = &t.metric[1], *loss = &t.metric[2], *top = &t.metric[3];
    CHECK_STR(r->name, "R@1");
    CHECK_NEAR(r->mean[0], 0.12, 1e-12);
    CHECK_NEAR(r->deviation[0], 0.015811388300841896, 1e-12); /* 0.01 sqrt(2.5) */
    CHECK_NEAR(r->p[0][1], 2.0 / 252, 1e-12);
    CHECK(r->best == 1 && r->significant);
    CHECK(ajne->aim == AIM_LOW && ajne->best == 1 && ajne->significant);
    CHECK(loss->aim == AIM_NONE && loss->best == -1 && !loss->significant);
    CHECK_STR(top->name, "zero/top1");
    CHECK_NEAR(top->p[0][1], 1, 1e-12);
    CHECK(!top->significant);
    arena_release(&a);
}

/* The best must beat every other: with a third method as good as the second there is no winner. */
static void a_winner_beats_all(void)
{
    arena a = { 0 };
    char text[64];
    ablation t = { .method = { "clip", "cloob", "infoloob" }, .methods = 3, .seeds = 5, .alpha = 0.05 };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 3; k++) {
            snprintf(text, sizeof text, "{\"R@1\": %g}", (k ? 1.0 : 0.0) + 0.1 * i + 0.01 * k);
            add(&a, &t, k, text);
        }
    CHECK_OK(ctx, ablation_test(ctx, &t));
    CHECK(t.metric[0].best == 2 && t.metric[0].p[2][0] < 0.05 && t.metric[0].p[2][1] > 0.05);
    CHECK(!t.metric[0].significant);
    CHECK_NEAR(t.metric[0].p_best, t.metric[0].p[2][1], 0);
    arena_release(&a);
}

static void tables_say_it(void)
{
    arena a = { 0 };
    sbuf markdown = { 0 }, numbers = { 0 };
    json *root = NULL;
    ablation t = { .method = { "clip", "cloob" }, .methods = 2, .seeds = 5, .alpha = 0.05 };
    fill(&a, &t);
    CHECK_OK(ctx, ablation_test(ctx, &t));
    ablation_markdown(&t, &markdown);
    ablation_json(&t, &numbers);
    CHECK(strstr(markdown.data, "| R@1 ↑ | 0.120 ± 0.016 | **0.220 ± 0.016** | 0.0079 |"));
    CHECK(strstr(markdown.data, "| image_ajne ↓ | 7.0 ± 1.6 | **3.00 ± 0.79** | 0.0079 |"));
    CHECK(strstr(markdown.data, "| val_loss | 3.0 ± 1.6 | 11.0 ± 1.6 | |"));
    CHECK_OK(ctx, json_parse(ctx, &a, numbers.data, numbers.len, "ablation.json", &root));
    const json *m = root ? json_get(json_get(root, "metrics"), "R@1") : NULL,
               *cloob = m ? json_get(json_get(m, "methods"), "cloob") : NULL;
    CHECK_STR(m ? json_string(json_get(m, "best")) : "", "cloob");
    CHECK(cloob && json_get(cloob, "values")->count == 5);
    CHECK_NEAR(cloob ? json_get(json_get(cloob, "p"), "clip")->number : 0, 2.0 / 252, 1e-12);
    sbuf_release(&markdown);
    sbuf_release(&numbers);
    arena_release(&a);
}

/* A method without values for a metric has a dash and no test. */
static void missing_values(void)
{
    arena a = { 0 };
    sbuf markdown = { 0 }, numbers = { 0 };
    json *root;
    ablation t = { .method = { "clip", "cloob" }, .methods = 2, .seeds = 2, .alpha = 0.05 };
    add(&a, &t, 0, "{\"R@1\": 0.5, \"bad_number\": null}");
    CHECK_OK(ctx, ablation_test(ctx, &t));
    CHECK(t.count == 1 && t.metric[0].best == 0 && !t.metric[0].significant);
    ablation_markdown(&t, &markdown);
    ablation_json(&t, &numbers);
    CHECK(strstr(markdown.data, "| – |"));
    CHECK_OK(ctx, json_parse(ctx, &a, numbers.data, numbers.len, "ablation.json", &root));
    sbuf_release(&markdown);
    sbuf_release(&numbers);
    arena_release(&a);
}

/* Seeds that agree exactly are rounded like the cells beside them, or by their mean where all agree. */
static void equal_seeds_round_like_their_row(void)
{
    arena a = { 0 };
    sbuf markdown = { 0 };
    ablation t = { .method = { "clip", "cloob" }, .methods = 2, .seeds = 2, .alpha = 0.05 };
    add(&a, &t, 0, "{\"R@1\": 0.25, \"R@5\": 0.5}"), add(&a, &t, 0, "{\"R@1\": 0.25, \"R@5\": 0.5}");
    add(&a, &t, 1, "{\"R@1\": 0.24, \"R@5\": 0.5}"), add(&a, &t, 1, "{\"R@1\": 0.28, \"R@5\": 0.5}");
    CHECK_OK(ctx, ablation_test(ctx, &t));
    ablation_markdown(&t, &markdown);
    CHECK(strstr(markdown.data, "| R@1 ↑ | 0.250 ± 0.000 | 0.260 ± 0.028 |"));
    CHECK(strstr(markdown.data, "| R@5 ↑ | 0.50000 ± 0.00000 | 0.50000 ± 0.00000 |"));
    sbuf_release(&markdown);
    arena_release(&a);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(means_spreads_and_winners);
    RUN(a_winner_beats_all);
    RUN(tables_say_it);
    RUN(missing_values);
    RUN(equal_seeds_round_like_their_row);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
