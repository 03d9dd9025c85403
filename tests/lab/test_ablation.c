/* Tables of an ablation, against values worked out by hand. */
#include "check.h"
#include "lab/compare/groups.h"
#include "core/json.h"

static cloob_ctx *ctx;

static const char *const method[] = { "clip", "cloob", "infoloob" };

static void add(groups *g, int k, const char *text)
{
    json *root;
    CHECK_OK(ctx, json_parse(ctx, g->memory, text, strlen(text), "a run", &root));
    groups_add(g, method[k], root);
}

/* Columns for `methods` of them, whether or not they have runs. */
static groups begin(arena *a, int methods)
{
    groups g = { .memory = a };
    for (int k = 0; k < methods; k++) CHECK(groups_at(&g, method[k]) == k);
    return g;
}

static groups_result finish(groups *g)
{
    groups_result r = { 0 };
    groups_finish(g, &(compare_options){ .alpha = 0.05 }, &r);
    return r;
}

/* Five against five without overlap: two of C(10, 5) = 252 orders are as extreme. */
static void fill(groups *g)
{
    char text[256];
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text,
                 "{\"seed\": %d, \"R@1\": %g, \"image_ajne\": %g, \"val_loss\": %g, \"zero\": {\"top1\": %g, "
                 "\"n\": 9}}",
                 i, 0.1 + 0.01 * i, 5.0 + i, 1.0 + i, 0.5);
        add(g, 0, text);
        snprintf(text, sizeof text,
                 "{\"seed\": %d, \"R@1\": %g, \"image_ajne\": %g, \"val_loss\": %g, \"zero\": {\"top1\": %g, "
                 "\"n\": 9}}",
                 i, 0.2 + 0.01 * i, 4.0 - 0.5 * i, 9.0 + i, 0.5);
        add(g, 1, text);
    }
}

static void means_spreads_and_winners(void)
{
    arena a = { 0 };
    groups g = begin(&a, 2);
    fill(&g);
    groups_result t = finish(&g);
    CHECK(t.metrics == 4); /* seed and n are no metrics */
    const group_row *r = &t.metric[0], *ajne = &t.metric[1], *loss = &t.metric[2], *top = &t.metric[3];
    CHECK_STR(r->metric, "R@1");
    CHECK_NEAR(r->group[0].mean, 0.12, 1e-12);
    CHECK_NEAR(r->group[0].deviation, 0.015811388300841896, 1e-12); /* 0.01 sqrt(2.5) */
    CHECK_NEAR(r->pair[0].p, 2.0 / 252, 1e-12);
    CHECK(r->best == 1 && r->won);
    CHECK(ajne->aim == AIM_LOW && ajne->best == 1 && ajne->won);
    CHECK(loss->aim == AIM_NONE && loss->best == -1 && !loss->won);
    CHECK_STR(top->metric, "zero/top1");
    CHECK_NEAR(top->pair[0].p, 1, 1e-12);
    CHECK(!top->won);
    arena_release(&a);
}

/* The best must beat every other: with a third method as good as the second there is no winner. */
static void a_winner_beats_all(void)
{
    arena a = { 0 };
    char text[64];
    groups g = begin(&a, 3);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 3; k++) {
            snprintf(text, sizeof text, "{\"R@1\": %g}", (k ? 1.0 : 0.0) + 0.1 * i + 0.01 * k);
            add(&g, k, text);
        }
    groups_result t = finish(&g);
    CHECK(t.metric[0].best == 2 && groups_pair(&t, &t.metric[0], 2, 0)->p < 0.05 &&
          groups_pair(&t, &t.metric[0], 2, 1)->p > 0.05);
    CHECK(!t.metric[0].won);
    CHECK_NEAR(t.metric[0].p_best, groups_pair(&t, &t.metric[0], 2, 1)->p, 0);
    arena_release(&a);
}

static void tables_have_the_result(void)
{
    arena a = { 0 };
    sbuf markdown = { 0 }, numbers = { 0 };
    json *root = NULL;
    groups g = begin(&a, 2);
    fill(&g);
    groups_result t = finish(&g);
    ablation_markdown(&t, 5, &markdown);
    ablation_json(&t, 5, &numbers);
    CHECK(strstr(markdown.data, "| R@1 ↑ | 0.120 ± 0.016 | **0.220 ± 0.016** | 0.0079 |"));
    CHECK(strstr(markdown.data, "| image_ajne ↓ | 7.0 ± 1.6 | **3.00 ± 0.79** | 0.0079 |"));
    CHECK(strstr(markdown.data, "| val_loss | 3.0 ± 1.6 | 11.0 ± 1.6 |  |"));
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
    groups g = begin(&a, 2);
    add(&g, 0, "{\"R@1\": 0.5, \"bad_number\": null}");
    groups_result t = finish(&g);
    CHECK(t.metrics == 1 && t.metric[0].best == 0 && !t.metric[0].won);
    ablation_markdown(&t, 5, &markdown);
    ablation_json(&t, 5, &numbers);
    CHECK(strstr(markdown.data, "| – |"));
    CHECK_OK(ctx, json_parse(ctx, &a, numbers.data, numbers.len, "ablation.json", &root));
    sbuf_release(&markdown);
    sbuf_release(&numbers);
    arena_release(&a);
}

/* Seeds that agree exactly are rounded like the cells next to them, or by their mean where all agree. */
static void equal_seeds_round_like_their_row(void)
{
    arena a = { 0 };
    sbuf markdown = { 0 };
    groups g = begin(&a, 2);
    add(&g, 0, "{\"R@1\": 0.25, \"R@5\": 0.5}"), add(&g, 0, "{\"R@1\": 0.25, \"R@5\": 0.5}");
    add(&g, 1, "{\"R@1\": 0.24, \"R@5\": 0.5}"), add(&g, 1, "{\"R@1\": 0.28, \"R@5\": 0.5}");
    groups_result t = finish(&g);
    ablation_markdown(&t, 5, &markdown);
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
    RUN(tables_have_the_result);
    RUN(missing_values);
    RUN(equal_seeds_round_like_their_row);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
