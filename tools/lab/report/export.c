/* Names, CSV, LaTeX, Markdown. */
#include "lab/report/export.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "lab/report/chart.h"
#include "core/text.h"

/* The way from one absolute folder to another, "" or with a slash at its end; NULL: memory is out. */
static char *way(const char *from, const char *to)
{
    sbuf s = { 0 };
    size_t same = 0; /* bytes of the folders that both share */
    for (size_t i = 0;; i++) {
        if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/')) same = i;
        if (!from[i] || from[i] != to[i]) break;
    }
    for (const char *c = from + same; *c; c++)
        if (*c == '/') sbuf_puts(&s, "../");
    if (to[same]) sbuf_printf(&s, "%s/", to + same + 1);
    else sbuf_puts(&s, "");
    if (!s.failed) return s.data ? s.data : strdup("");
    sbuf_release(&s);
    return NULL;
}

static char *way_to(const char *dir, const char *page)
{
    const char *slash = strrchr(page, '/');
    char *folder = !slash ? strdup(".") : strndup(page, slash == page ? 1 : (size_t)(slash - page));
    char *from = folder ? realpath(folder, NULL) : NULL, *to = realpath(dir, NULL);
    char *found = from && to ? way(from, to) : NULL;
    free(folder), free(from), free(to);
    return found;
}

void export_begin(export_files *e, cloob_ctx *ctx, const char *dir, const char *page)
{
    *e = (export_files){ .ctx = ctx, .dir = dir };
    if (dir) e->status = file_make_dirs(ctx, dir);
    if (dir && e->status == CLOOB_OK) e->href = way_to(dir, page);
}

void export_end(export_files *e)
{
    free(e->href);
    e->href = NULL;
}

/* "Recall, image to text" -> "recall-image-to-text" */
static void name_of(const char *title, char out[96])
{
    size_t n = 0;
    for (const char *c = title; *c && n < 90; c++) {
        if (isalnum((unsigned char)*c)) out[n++] = (char)tolower((unsigned char)*c);
        else if (n && out[n - 1] != '-') out[n++] = '-';
    }
    while (n && out[n - 1] == '-') n--;
    out[n] = '\0';
}

void export_file(export_files *e, const char *name, const char *ending, const sbuf *text)
{
    char file[128];
    if (e->status != CLOOB_OK) return;
    snprintf(file, sizeof file, "%s.%s", name, ending);
    e->status = file_write_in(e->ctx, e->dir, file, text);
    e->files += e->status == CLOOB_OK;
}

static void put_tex(sbuf *s, const char *text)
{
    for (; *text; text++) {
        if (strchr("&%$#_{}", *text)) sbuf_printf(s, "\\%c", *text);
        else if (*text == '\\') sbuf_puts(s, "\\textbackslash{}");
        else if (*text == '~') sbuf_puts(s, "\\textasciitilde{}");
        else if (*text == '^') sbuf_puts(s, "\\textasciicircum{}");
        else sbuf_putc(s, *text);
    }
}

static void put_md(sbuf *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '\\') sbuf_putc(s, '\\');
        sbuf_putc(s, *text == '\n' ? ' ' : *text);
    }
}

/* ---- charts -------------------------------------------------------------------------------------- */

static bool has_bands(const chart *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].low && c->series[i].high) return true;
    return false;
}

static void put_point(sbuf *csv, const chart *c, const chart_series *s, int64_t k, bool bands)
{
    int64_t at = (int64_t)s->x[k];
    csv_put(csv, s->name);
    sbuf_putc(csv, ',');
    if (c->category && at < c->categories) csv_put(csv, c->category[at]);
    else sbuf_printf(csv, "%.9g", s->x[k]);
    sbuf_printf(csv, ",%.9g", s->y[k]);
    if (bands && s->low && s->high) sbuf_printf(csv, ",%.9g,%.9g", s->low[k], s->high[k]);
    else if (bands) sbuf_puts(csv, ",,");
    sbuf_putc(csv, '\n');
}

static void put_link(const export_files *e, const char *name, const char *ending, const char *text, sbuf *links)
{
    if (!e->href || !links) return;
    sbuf_puts(links, "<a href=\"");
    html_text(links, e->href);
    sbuf_printf(links, "%s.%s\">%s</a> ", name, ending, text);
}

void export_chart(export_files *e, const chart *c, sbuf *links)
{
    char name[96];
    name_of(c->title, name);
    export_chart_as(e, name, c, links);
}

bool export_chart_as(export_files *e, const char *name, const chart *c, sbuf *links)
{
    bool bands = has_bands(c);
    sbuf svg = { 0 }, pdf = { 0 }, csv = { 0 };
    if (!e->dir || e->status != CLOOB_OK) return false;
    bool drawn = chart_draw(&svg, c, CHART_ALONE);
    if (drawn) export_file(e, name, "svg", &svg), put_link(e, name, "svg", "SVG", links);
    if (chart_draw_pdf(&pdf, c)) export_file(e, name, "pdf", &pdf), put_link(e, name, "pdf", "PDF", links);
    sbuf_puts(&csv, "series,");
    csv_put(&csv, *c->x_label ? c->x_label : "category");
    sbuf_putc(&csv, ',');
    csv_put(&csv, c->y_label);
    sbuf_puts(&csv, bands ? ",low,high\n" : "\n");
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->series[i].n; k++) put_point(&csv, c, &c->series[i], k, bands);
    export_file(e, name, "csv", &csv);
    put_link(e, name, "csv", "CSV", links);
    sbuf_release(&svg), sbuf_release(&pdf), sbuf_release(&csv);
    return drawn;
}

/* ---- tables -------------------------------------------------------------------------------------- */

void export_table_begin(export_table *t, const char *name) { *t = (export_table){ .name = name }; }

void export_table_row(export_table *t, const char *const *cell, int64_t n)
{
    if (t->rows == 0) {
        t->columns = n;
        sbuf_puts(&t->tex, "\\begin{tabular}{l");
        for (int64_t i = 1; i < n; i++) sbuf_putc(&t->tex, 'r');
        sbuf_puts(&t->tex, "}\n\\hline\n");
    }
    sbuf_puts(&t->md, "|");
    for (int64_t i = 0; i < n; i++) {
        if (i) sbuf_putc(&t->csv, ','), sbuf_puts(&t->tex, " & ");
        csv_put(&t->csv, cell[i]);
        put_tex(&t->tex, cell[i]);
        sbuf_putc(&t->md, ' ');
        put_md(&t->md, cell[i]);
        sbuf_puts(&t->md, " |");
    }
    sbuf_putc(&t->csv, '\n');
    sbuf_puts(&t->tex, t->rows ? " \\\\\n" : " \\\\\n\\hline\n");
    sbuf_putc(&t->md, '\n');
    if (t->rows++ == 0) {
        sbuf_puts(&t->md, "|---|");
        for (int64_t i = 1; i < n; i++) sbuf_puts(&t->md, "---:|");
        sbuf_putc(&t->md, '\n');
    }
}

void export_table_end(export_files *e, export_table *t)
{
    if (t->rows) sbuf_puts(&t->tex, "\\hline\n\\end{tabular}\n");
    if (e->dir && t->rows > 1) {
        export_file(e, t->name, "csv", &t->csv);
        export_file(e, t->name, "tex", &t->tex);
        export_file(e, t->name, "md", &t->md);
    }
    sbuf_release(&t->csv), sbuf_release(&t->tex), sbuf_release(&t->md);
}
