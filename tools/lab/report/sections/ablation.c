/* The table of an ablation, from ablation.json beside the page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report/page.h"

static double number(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_NUMBER ? v->number : NAN;
}

static void put_cell(page *p, const json *cell, bool bold)
{
    const char *text = json_string(json_get(cell, "text"));
    sbuf_puts(&p->html, bold ? "<td><strong>" : "<td>");
    html_text(&p->html, text ? text : "");
    sbuf_puts(&p->html, bold ? "</strong></td>" : "</td>");
}

static void put_row(page *p, const json *metric)
{
    const json *significant = json_get(metric, "significant"), *methods = json_get(metric, "methods");
    const char *best = json_string(json_get(metric, "best")), *better = json_string(json_get(metric, "better"));
    bool winner = significant && significant->kind == JSON_BOOL && significant->boolean;
    sbuf_puts(&p->html, "<tr><td>");
    html_text(&p->html, metric->key);
    if (better && strcmp(better, "none") != 0) sbuf_puts(&p->html, strcmp(better, "low") == 0 ? " &darr;" : " &uarr;");
    sbuf_puts(&p->html, "</td>");
    for (const json *m = methods ? methods->child : NULL; m; m = m->next)
        put_cell(p, m, winner && best && strcmp(best, m->key) == 0);
    sbuf_puts(&p->html, "<td>");
    html_number(&p->html, number(metric, "p"));
    sbuf_puts(&p->html, "</td></tr>\n");
}

void page_ablation(page *p)
{
    const json *metrics = json_get(p->ablation, "metrics"), *first = metrics ? metrics->child : NULL;
    const json *methods = first ? json_get(first, "methods") : NULL;
    if (!methods || metrics->kind != JSON_OBJECT || methods->kind != JSON_OBJECT) return;
    page_heading(p, "ablation", "Ablation",
                 "Mean &plusmn; standard deviation over the seeds. Bold: better than each of the other methods by the "
                 "two-sided Wilcoxon rank-sum test; p is the largest of those p-values. Without an arrow methods are "
                 "not comparable by the number.");
    sbuf_puts(&p->html, "<div class=\"wide\" tabindex=\"0\"><table><tr><th></th>");
    for (const json *m = methods->child; m; m = m->next)
        sbuf_puts(&p->html, "<th>"), html_text(&p->html, m->key), sbuf_puts(&p->html, "</th>");
    sbuf_puts(&p->html, "<th>p</th></tr>\n");
    for (const json *m = first; m; m = m->next) put_row(p, m);
    sbuf_puts(&p->html, "</table></div>\n");
}
