/* The numbers one looks for first, and the settings. */
#include <math.h>
#include <stdio.h>
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
    int64_t column = table_find(&r->metrics, f->metric);
    if (column < 0 || !r->metrics.rows) return false;
    *out = table_at(&r->metrics, r->metrics.rows - 1, column);
    return isfinite(*out);
}

static void put_tiles(page *p)
{
    double value;
    sbuf_puts(&p->html, "<div class=\"tiles\">\n");
    for (int i = 0; i < FIGURES; i++) {
        if (!value_of(&p->run[0], &figures[i], &value)) continue;
        sbuf_puts(&p->html, "<div class=\"tile\"><b>");
        html_number(&p->html, value);
        sbuf_printf(&p->html, "</b><span>%s</span></div>\n", figures[i].label);
    }
    sbuf_puts(&p->html, "</div>\n");
}

static void put_table(page *p)
{
    bool used[FIGURES] = { 0 };
    double value;
    for (int i = 0; i < FIGURES; i++)
        for (int64_t k = 0; k < p->runs; k++) used[i] |= value_of(&p->run[k], &figures[i], &value);
    sbuf_puts(&p->html, "<div class=\"wide\" tabindex=\"0\"><table><tr><th>run</th><th class=\"text\">method</th>");
    for (int i = 0; i < FIGURES; i++)
        if (used[i]) sbuf_printf(&p->html, "<th>%s</th>", figures[i].label);
    sbuf_puts(&p->html, "</tr>\n");
    for (int64_t k = 0; k < p->runs; k++) {
        sbuf_puts(&p->html, "<tr><td>");
        html_text(&p->html, p->run[k].name);
        sbuf_puts(&p->html, "</td><td class=\"text\">");
        html_text(&p->html, p->run[k].method);
        sbuf_puts(&p->html, "</td>");
        for (int i = 0; i < FIGURES; i++) {
            if (!used[i]) continue;
            sbuf_puts(&p->html, "<td>");
            html_number(&p->html, value_of(&p->run[k], &figures[i], &value) ? value : NAN);
            sbuf_puts(&p->html, "</td>");
        }
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div>\n");
}

/* A row per run, whether the page shows tiles or a table. */
static void export_summary(page *p)
{
    export_table t;
    const char *cell[FIGURES + 2];
    char text[FIGURES][32];
    double value;
    export_table_begin(&t, "summary");
    cell[0] = "run", cell[1] = "method";
    for (int i = 0; i < FIGURES; i++) cell[i + 2] = figures[i].label;
    export_table_row(&t, cell, FIGURES + 2);
    for (int64_t k = 0; k < p->runs; k++) {
        cell[0] = p->run[k].name, cell[1] = p->run[k].method;
        for (int i = 0; i < FIGURES; i++) {
            bool there = value_of(&p->run[k], &figures[i], &value);
            snprintf(text[i], sizeof text[i], there ? "%.6g" : "", value);
            cell[i + 2] = text[i];
        }
        export_table_row(&t, cell, FIGURES + 2);
    }
    export_table_end(&p->files, &t);
}

void page_summary(page *p)
{
    export_summary(p);
    page_heading(p, "summary", "Summary", "Values at the last step and of the last validation.");
    if (p->runs == 1) put_tiles(p);
    else put_table(p);
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
    sbuf_puts(&p->html, "<div class=\"wide\" tabindex=\"0\"><table><tr><th>run</th>");
    for (int64_t k = 0; k < first->params; k++)
        if (differs(p, first->param[k].key))
            sbuf_puts(&p->html, "<th class=\"text\">"), html_text(&p->html, first->param[k].key),
                sbuf_puts(&p->html, "</th>");
    sbuf_puts(&p->html, "</tr>\n");
    for (int64_t i = 0; i < p->runs; i++) {
        sbuf_puts(&p->html, "<tr><td>");
        html_text(&p->html, p->run[i].name);
        sbuf_puts(&p->html, "</td>");
        for (int64_t k = 0; k < first->params; k++) {
            if (!differs(p, first->param[k].key)) continue;
            sbuf_puts(&p->html, "<td class=\"text\">");
            html_text(&p->html, run_param_get(&p->run[i], first->param[k].key));
            sbuf_puts(&p->html, "</td>");
        }
        sbuf_puts(&p->html, "</tr>\n");
    }
    sbuf_puts(&p->html, "</table></div>\n");
}

static void put_common(page *p)
{
    const run_files *first = &p->run[0];
    sbuf_printf(&p->html, "<details><summary>%s</summary><div class=\"wide\" tabindex=\"0\"><table>\n",
                p->runs == 1 ? "Settings of the run" : "The same in all runs");
    for (int64_t k = 0; k < first->params; k++) {
        if (differs(p, first->param[k].key)) continue;
        sbuf_puts(&p->html, "<tr><td>");
        html_text(&p->html, first->param[k].key);
        sbuf_puts(&p->html, "</td><td class=\"path\">");
        html_text(&p->html, first->param[k].value);
        sbuf_puts(&p->html, "</td></tr>\n");
    }
    sbuf_puts(&p->html, "</table></div></details>\n");
}

void page_settings(page *p)
{
    if (!p->run[0].params) return;
    page_heading(p, "settings", "Settings", NULL);
    if (p->runs > 1) put_different(p);
    put_common(p);
}
