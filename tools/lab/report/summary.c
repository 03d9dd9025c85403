/* The main results, the settings, and curves by step and by epoch. */
#include <math.h>
#include <string.h>

#include "lab/report/page.h"

/* ---- numbers of a run ---------------------------------------------------------------------------- */

typedef struct figure {
    const char *label;
    const char *key;    /* of a validation, or NULL */
    const char *metric; /* column of the training metrics, or NULL */
} figure;

static const figure figures[] = {
    { "steps", NULL, "step" },
    { "training loss", NULL, "loss" },
    { "validation loss", "val_loss", NULL },
    { "image to text R@1", "image_to_text_R@1", NULL },
    { "image to text R@10", "image_to_text_R@10", NULL },
    { "text to image R@1", "text_to_image_R@1", NULL },
    { "text to image R@10", "text_to_image_R@10", NULL },
    { "Ajne, images", "image_ajne", NULL },
    { "Ajne, texts", "text_ajne", NULL },
    { "effective eigenvalues, images", "image_effective_eigenvalues", NULL },
    { "effective eigenvalues, texts", "text_effective_eigenvalues", NULL },
    { "pairs per second", NULL, "pairs_per_s" },
};
enum { FIGURES = sizeof figures / sizeof *figures };

static bool value_of(const run_files *r, const figure *f, double *out)
{
    if (f->key) return run_last_result(r, f->key, out);
    int64_t column = tsv_find(&r->metrics, f->metric);
    if (column < 0 || !r->metrics.rows) return false;
    *out = tsv_at(&r->metrics, r->metrics.rows - 1, column);
    return isfinite(*out);
}

static void put_tiles(page *p)
{
    double value;
    sbuf_puts(&p->html, "<div class=\"tiles\">\n");
    for (int i = 0; i < FIGURES; i++)
        if (value_of(&p->run[0], &figures[i], &value))
            html_put(&p->html, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", NUMBER(value), figures[i].label);
    sbuf_puts(&p->html, "</div>\n");
}

/* A row per run, without the numbers that no run has. */
static void put_table(page *p)
{
    grid g = { .columns = 2 };
    bool used[FIGURES] = { 0 };
    double value;
    grid_texts(&g, "run", "method");
    for (int i = 0; i < FIGURES; i++) {
        for (int64_t k = 0; k < p->runs; k++) used[i] |= value_of(&p->run[k], &figures[i], &value);
        if (used[i]) grid_text(&g, figures[i].label), g.columns++;
    }
    for (int64_t k = 0; k < p->runs; k++) {
        grid_texts(&g, p->run[k].name, p->run[k].method);
        for (int i = 0; i < FIGURES; i++)
            if (used[i]) grid_number(&g, value_of(&p->run[k], &figures[i], &value) ? value : NAN);
    }
    page_grid(p, &g);
}

void page_summary(page *p)
{
    page_heading(p, "summary", "Summary", "Values at the last step and of the last validation.");
    if (p->runs == 1) put_tiles(p);
    else put_table(p);
}

/* ---- the table of a sweep, from ablation.json next to the page ---------------------------------------- */

static void add_ablation_row(grid *g, const json *metric)
{
    bool winner = false;
    const char *best = json_text(metric, "best"), *better = json_text(metric, "better");
    json_bool(json_get(metric, "significant"), &winner);
    grid_printf(g, "%s%s", metric->key,
                !better || strcmp(better, "none") == 0 ? ""
                : strcmp(better, "low") == 0           ? " ↓"
                                                       : " ↑");
    for (const json *m = json_first(json_get(metric, "methods")); m; m = m->next) {
        grid_text(g, json_text(m, "text"));
        grid_bold(g, winner && best && strcmp(best, m->key) == 0);
    }
    grid_number(g, json_get_number(metric, "p"));
}

void page_ablation(page *p)
{
    const json *metrics = json_get(p->ablation, "metrics"), *first = metrics ? metrics->child : NULL;
    const json *methods = first ? json_get(first, "methods") : NULL;
    if (!methods || metrics->kind != JSON_OBJECT || methods->kind != JSON_OBJECT) return;
    page_heading(p, "ablation", "Ablation",
                 "Mean ± standard deviation over the seeds. Bold: better than each of the other methods by the "
                 "two-sided Wilcoxon rank-sum test; p is the largest of those p-values. Without an arrow methods are "
                 "not comparable by the number.");
    grid g = { .columns = methods->count + 2 };
    grid_text(&g, "");
    for (const json *m = methods->child; m; m = m->next) grid_text(&g, m->key);
    grid_text(&g, "p");
    for (const json *m = first; m; m = m->next) add_ablation_row(&g, m);
    page_grid(p, &g);
}

/* ---- settings ------------------------------------------------------------------------------------ */

static bool differs(const page *p, const char *key)
{
    for (int64_t i = 1; i < p->runs; i++)
        if (strcmp(run_param_get(&p->run[i], key), run_param_get(&p->run[0], key)) != 0) return true;
    return false;
}

static void put_different(page *p)
{
    const run_files *first = &p->run[0];
    grid g = { .columns = 1 };
    grid_text(&g, "run");
    for (int64_t k = 0; k < first->params; k++)
        if (differs(p, first->param[k].key)) grid_text(&g, first->param[k].key), g.columns++;
    for (int64_t i = 0; i < p->runs; i++) {
        grid_text(&g, p->run[i].name);
        for (int64_t k = 0; k < first->params; k++)
            if (differs(p, first->param[k].key)) grid_text(&g, run_param_get(&p->run[i], first->param[k].key));
    }
    page_grid(p, &g);
}

static void put_common(page *p)
{
    const run_files *first = &p->run[0];
    html_put(&p->html, "<details><summary>%s</summary><div class=\"wide\" tabindex=\"0\"><table>\n",
             p->runs == 1 ? "Settings of the run" : "The same in all runs");
    for (int64_t k = 0; k < first->params; k++)
        if (!differs(p, first->param[k].key))
            html_put(&p->html, "<tr><td>%s</td><td class=\"path\">%s</td></tr>\n", first->param[k].key,
                     first->param[k].value);
    sbuf_puts(&p->html, "</table></div></details>\n");
}

void page_settings(page *p)
{
    if (!p->run[0].params) return;
    page_heading(p, "settings", "Settings", NULL);
    if (p->runs > 1) put_different(p);
    put_common(p);
}

/* ---- curves by step and by epoch ------------------------------------------------------------------- */

static void add_metric(const chart *c, chart_series *s, const tsv *t, const char *column, double scale)
{
    int64_t x = tsv_find(t, "step"), y = tsv_find(t, column);
    for (int64_t i = 0; x >= 0 && y >= 0 && i < t->rows; i++)
        chart_point(c, s, tsv_at(t, i, x), scale * tsv_at(t, i, y));
}

static void metric_chart(page *p, const char *title, const char *y_label, const char *column, bool log_y, double scale)
{
    chart c = { .title = title,
                .x_label = "step",
                .y_label = y_label,
                .log_y = log_y,
                .from_zero = !log_y && strcmp(column, "loss") != 0 };
    for (int64_t i = 0; i < p->runs; i++)
        add_metric(&c, page_add(p, &c, i, p->run[i].metrics.rows), &p->run[i].metrics, column, scale);
    page_chart(p, &c);
}

static void terms_chart(page *p)
{
    const tsv *t = &p->run[0].metrics;
    chart c = { .title = "Terms of the loss", .x_label = "step", .y_label = "term" };
    add_metric(&c, chart_add(p->memory, &c, "image anchors", 0, t->rows), t, "image_term", 1);
    add_metric(&c, chart_add(p->memory, &c, "text anchors", 1, t->rows), t, "text_term", 1);
    page_chart(p, &c);
}

void page_training(page *p)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < p->runs; i++) rows += p->run[i].metrics.rows;
    if (!rows) return;
    page_heading(p, "training", "Training",
                 "Loss is the temperature times the sum of the two terms; InfoLOOB may be negative.");
    sbuf_puts(&p->html, "<div class=\"charts\">\n");
    metric_chart(p, "Training loss", "loss", "loss", false, 1);
    if (p->runs == 1) terms_chart(p);
    metric_chart(p, "Learning rate", "learning rate", "lr", false, 1);
    metric_chart(p, "Norm of the gradient", "norm", "grad_norm", true, 1);
    metric_chart(p, "Speed", "pairs per second", "pairs_per_s", false, 1);
    metric_chart(p, "Time spent waiting for data", "per cent", "wait", false, 100);
    sbuf_puts(&p->html, "</div>\n");
}

void page_validation(page *p)
{
    static const char *const loss[] = { "val_loss" }, *const clip[] = { "clip_val_loss" },
                             *const loss_label[] = { "validation loss" };
    static const char *const to_text[] = { "image_to_text_R@1", "image_to_text_R@5", "image_to_text_R@10" };
    static const char *const to_image[] = { "text_to_image_R@1", "text_to_image_R@5", "text_to_image_R@10" };
    static const char *const at[] = { "R@1", "R@5", "R@10" };
    static const char *const shot[] = { "imagenet-zeroshot-val-top1", "imagenetv2-zeroshot-val-top1",
                                        "zeroshot-val-top1" };
    static const char *const shot_label[] = { "ImageNet", "ImageNet V2", "class folders" };
    int64_t results = 0;
    for (int64_t i = 0; i < p->runs; i++) results += p->run[i].results;
    if (!results) return;
    page_heading(p, "validation", "Validation",
                 "Recall is the share of queries whose partner is among the first 1, 5 or 10.");
    sbuf_puts(&p->html, "<div class=\"charts\">\n");
    page_result_charts(p, "Recall, image to text", "recall", to_text, at, 3);
    page_result_charts(p, "Recall, text to image", "recall", to_image, at, 3);
    page_result_charts(p, "Validation loss", "loss", loss, loss_label, 1);
    page_result_charts(p, "Validation loss, InfoNCE", "loss", clip, loss_label, 1);
    page_result_charts(p, "Zero-shot accuracy", "top-1", shot, shot_label, 3);
    sbuf_puts(&p->html, "</div>\n");
}
