/* Curves by step and by epoch. */
#include <string.h>

#include "lab/report/page.h"

static void add_metric(page *p, chart *c, int64_t run, const char *column, const char *name, int color, double scale)
{
    const table *t = &p->run[run].metrics;
    int64_t x = table_find(t, "step"), y = table_find(t, column);
    if (x < 0 || y < 0) return;
    chart_series *s = page_series(p, c, name, color, t->rows);
    page_join(p, run, s);
    for (int64_t i = 0; s && i < t->rows; i++) chart_point(c, s, table_at(t, i, x), scale * table_at(t, i, y));
}

static void metric_chart(page *p, const char *title, const char *y_label, const char *column, bool log_y, double scale)
{
    chart c = { .title = title,
                .x_label = "step",
                .y_label = y_label,
                .log_y = log_y,
                .from_zero = !log_y && strcmp(column, "loss") != 0 };
    for (int64_t i = 0; i < p->runs; i++) add_metric(p, &c, i, column, p->run[i].name, page_color(p, i), scale);
    page_chart(p, &c);
}

static void terms_chart(page *p)
{
    chart c = { .title = "Terms of the loss", .x_label = "step", .y_label = "term" };
    add_metric(p, &c, 0, "image_term", "image anchors", 0, 1);
    add_metric(p, &c, 0, "text_term", "text anchors", 1, 1);
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
