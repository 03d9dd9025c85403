/* Cells, their escapes by form, and templates of HTML. */
#include "lab/grid.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "lab/memory.h"

/* ---- cells --------------------------------------------------------------------------------------- */

static void add(grid *g, grid_cell cell)
{
    g->cell = must(arena_grow(&g->memory, g->cell, g->cells, &g->room, 64, sizeof *g->cell));
    g->cell[g->cells++] = cell;
}

void grid_text(grid *g, const char *text)
{
    add(g, (grid_cell){ .text = must(arena_string(&g->memory, text ? text : "")) });
}

void grid_printf(grid *g, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    grid_text(g, text);
}

void grid_number(grid *g, double value) { add(g, (grid_cell){ .kind = GRID_NUMBER, .number = value }); }
void grid_share(grid *g, double value) { add(g, (grid_cell){ .kind = GRID_SHARE, .number = value }); }

void grid_bold(grid *g, bool bold)
{
    if (g->cells) g->cell[g->cells - 1].bold = bold;
}

void grid_row(grid *g, const char *const *text, size_t n)
{
    for (size_t i = 0; i < n; i++) grid_text(g, text[i]);
}

void grid_release(grid *g)
{
    arena_release(&g->memory);
    *g = (grid){ .columns = g->columns };
}

/* ---- forms --------------------------------------------------------------------------------------- */

/* One character of a text, escaped; returns the bytes used. */
static size_t put_character(sbuf *s, grid_form form, const char *at)
{
    static const struct {
        grid_form form;
        const char *from, *to;
    } escape[] = { { GRID_MARKDOWN, "|", "\\|" },
                   { GRID_MARKDOWN, "\\", "\\\\" },
                   { GRID_MARKDOWN, "\n", " " },
                   { GRID_LATEX, "\\", "\\textbackslash{}" },
                   { GRID_LATEX, "~", "\\textasciitilde{}" },
                   { GRID_LATEX, "^", "\\textasciicircum{}" },
                   { GRID_LATEX, "±", "$\\pm$" },
                   { GRID_LATEX, "–", "--" } };
    for (size_t i = 0; i < sizeof escape / sizeof *escape; i++) {
        size_t n = strlen(escape[i].from);
        if (escape[i].form != form || strncmp(at, escape[i].from, n) != 0) continue;
        sbuf_puts(s, escape[i].to);
        return n;
    }
    if (form == GRID_LATEX && strchr("&%$#_{}", *at)) sbuf_putc(s, '\\');
    if (form == GRID_HTML) html_text(s, (const char[]){ *at, '\0' });
    else sbuf_putc(s, *at);
    return 1;
}

static void put_cell(sbuf *s, const grid *g, grid_form form, const grid_cell *c)
{
    char text[64];
    const char *at = c->text;
    if (c->kind != GRID_TEXT) {
        snprintf(text, sizeof text, isfinite(c->number) ? (g->format ? g->format : "%.6g") : "", c->number);
        at = text;
    }
    if (form == GRID_CSV) csv_put(s, at);
    if (c->bold && form == GRID_MARKDOWN) sbuf_puts(s, "**");
    if (c->bold && form == GRID_LATEX) sbuf_puts(s, "\\textbf{");
    while (form != GRID_CSV && *at) at += put_character(s, form, at);
    if (c->bold && form == GRID_MARKDOWN) sbuf_puts(s, "**");
    if (c->bold && form == GRID_LATEX) sbuf_putc(s, '}');
}

/* The width of a cell in characters, not bytes. */
static int width_of(const grid *g, const grid_cell *c, sbuf *scratch)
{
    int width = 0;
    scratch->len = 0;
    put_cell(scratch, g, GRID_PLAIN, c);
    for (size_t i = 0; i < scratch->len; i++) width += ((unsigned char)scratch->data[i] & 0xC0) != 0x80;
    return width;
}

/* The width of the widest cell of a column. */
static int column_width(const grid *g, int64_t column, sbuf *scratch)
{
    int widest = 0;
    for (int64_t k = column; k < g->cells; k += g->columns) {
        int width = width_of(g, &g->cell[k], scratch);
        if (width > widest) widest = width;
    }
    return widest;
}

int64_t grid_width(const grid *g)
{
    sbuf scratch = { 0 };
    int64_t width = 2 * (g->columns - 1);
    for (int64_t k = 0; k < g->columns; k++) width += column_width(g, k, &scratch);
    sbuf_release(&scratch);
    return width;
}

/* Puts the first cell of a row on its own line, unless it equals the first cell of the row above. */
static void put_section(const grid *g, int64_t i, sbuf *s)
{
    if (!i || strcmp(g->cell[i].text, g->cell[i - g->columns].text) != 0) sbuf_printf(s, "%s\n", g->cell[i].text);
    sbuf_puts(s, "  ");
}

static void put_plain(const grid *g, bool sections, sbuf *s)
{
    sbuf scratch = { 0 };
    for (int64_t i = 0; i < g->cells; i++) {
        int64_t column = i % g->columns;
        if (sections && !column) {
            put_section(g, i, s);
            continue;
        }
        put_cell(s, g, GRID_PLAIN, &g->cell[i]);
        if (column == g->columns - 1) sbuf_putc(s, '\n');
        else sbuf_printf(s, "%*s", column_width(g, column, &scratch) - width_of(g, &g->cell[i], &scratch) + 2, "");
    }
    s->failed |= scratch.failed;
    sbuf_release(&scratch);
}

void grid_put_sections(const grid *g, sbuf *out) { put_plain(g, true, out); }

/* The CSS class of a column, by the kind of its first cell below the heading. */
static const char *class_of(const grid *g, int64_t column)
{
    if (!column || g->cells <= g->columns) return "";
    grid_kind kind = g->cell[g->columns + column].kind;
    return kind == GRID_TEXT ? " class=\"text\"" : kind == GRID_SHARE ? " class=\"meter\"" : "";
}

static void put_html(const grid *g, sbuf *s)
{
    sbuf_puts(s, "<div class=\"wide\" tabindex=\"0\"><table>");
    for (int64_t i = 0; i < g->cells; i++) {
        const grid_cell *c = &g->cell[i];
        const char *tag = i < g->columns ? "th" : "td";
        if (i % g->columns == 0) sbuf_puts(s, "<tr>");
        sbuf_printf(s, "<%s%s>%s", tag, class_of(g, i % g->columns), c->bold ? "<strong>" : "");
        if (c->kind == GRID_TEXT) put_cell(s, g, GRID_HTML, c);
        else if (c->kind == GRID_NUMBER || !isfinite(c->number)) html_put(s, "%s", NUMBER(c->number));
        else
            html_put(s, "%.1f&nbsp;%%<i style=\"width:%.1f%%\"></i>", 100 * c->number,
                     100 * fmin(fmax(c->number, 0), 1));
        sbuf_printf(s, "%s</%s>%s", c->bold ? "</strong>" : "", tag, (i + 1) % g->columns ? "" : "</tr>\n");
    }
    sbuf_puts(s, "</table></div>\n");
}

/* The text of a form around its rows and between its cells. */
static void put_rows(const grid *g, grid_form form, const char *begin, const char *between, const char *end, sbuf *s)
{
    for (int64_t i = 0; i < g->cells; i++) {
        bool last = (i + 1) % g->columns == 0;
        if (i % g->columns == 0) sbuf_puts(s, begin);
        put_cell(s, g, form, &g->cell[i]);
        sbuf_puts(s, last ? end : between);
        if (i + 1 != g->columns) continue; /* below the heading */
        if (form == GRID_LATEX) sbuf_puts(s, "\\hline\n");
        for (int64_t k = 0; form == GRID_MARKDOWN && k < g->columns; k++) sbuf_puts(s, k ? "---:|" : "|---|");
        if (form == GRID_MARKDOWN) sbuf_putc(s, '\n');
    }
}

void grid_put(const grid *g, grid_form form, sbuf *out)
{
    switch (form) {
    case GRID_PLAIN: put_plain(g, false, out); break;
    case GRID_MARKDOWN: put_rows(g, form, "| ", " | ", " |\n", out); break;
    case GRID_CSV: put_rows(g, form, "", ",", "\n", out); break;
    case GRID_HTML: put_html(g, out); break;
    case GRID_LATEX:
        sbuf_puts(out, "\\begin{tabular}{l");
        for (int64_t i = 1; i < g->columns; i++) sbuf_putc(out, 'r');
        sbuf_puts(out, "}\n\\hline\n");
        put_rows(g, form, "", " & ", " \\\\\n", out);
        sbuf_puts(out, "\\hline\n\\end{tabular}\n");
        break;
    }
}

/* ---- HTML ---------------------------------------------------------------------------------------- */

void html_put(sbuf *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    while (*format) {
        size_t plain = strcspn(format, "%");
        const char *at = format + plain;
        char spec[24];
        sbuf_add(s, format, plain);
        if (!*at) break;
        size_t n = strspn(at + 1, "+.*0123456789l") + 2;
        snprintf(spec, sizeof spec, "%.*s", (int)n, at);
        int digits = strchr(spec, '*') ? va_arg(args, int) : -1;
        switch (at[n - 1]) {
        case '%': sbuf_putc(s, '%'); break;
        case 's': {
            const char *text = va_arg(args, const char *);
            html_text(s, text ? text : "");
            break;
        }
        case 'd':
            if (strstr(spec, "ll")) sbuf_printf(s, spec, va_arg(args, long long));
            else sbuf_printf(s, spec, va_arg(args, int));
            break;
        default:
            if (digits >= 0) sbuf_printf(s, spec, digits, va_arg(args, double));
            else sbuf_printf(s, spec, va_arg(args, double));
        }
        format = at + n;
    }
    va_end(args);
}

const char *number_text(double value, char out[32])
{
    bool whole = value == floor(value) && fabs(value) < 1e9;
    if (!isfinite(value)) snprintf(out, 32, "–");
    else snprintf(out, 32, whole || fabs(value) >= 1000 ? "%.0f" : "%.4g", value);
    return out;
}
