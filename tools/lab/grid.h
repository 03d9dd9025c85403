/* Tables of cells in five forms: aligned text for a terminal, Markdown, LaTeX, CSV and HTML. Cells follow each other
 * row by row; the first row is the heading.
 *
 *     grid g = { .columns = 3 };
 *     grid_texts(&g, "set", "images", "top-1");
 *     grid_text(&g, name), grid_number(&g, images), grid_share(&g, top1);
 *     grid_put(&g, GRID_MARKDOWN, &out);
 *     grid_release(&g);
 */
#ifndef LAB_GRID_H
#define LAB_GRID_H

#include "core/arena.h"
#include "core/sbuf.h"

typedef enum grid_form { GRID_PLAIN, GRID_MARKDOWN, GRID_LATEX, GRID_CSV, GRID_HTML } grid_form;

typedef enum grid_kind { GRID_TEXT, GRID_NUMBER, GRID_SHARE } grid_kind;

typedef struct grid_cell {
    grid_kind kind;
    const char *text;
    double number;
    bool bold;
} grid_cell;

typedef struct grid {
    int64_t columns;
    const char *format; /* of numbers, but for HTML; NULL: "%.6g" */
    grid_cell *cell;
    int64_t cells, room;
    arena memory; /* owns the texts */
} grid;

void grid_text(grid *g, const char *text); /* copied; NULL: "" */
void grid_printf(grid *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void grid_number(grid *g, double value); /* not finite: empty, in HTML a dash */
void grid_share(grid *g, double value);  /* the same; in HTML per cent with a bar */
void grid_bold(grid *g, bool bold);      /* the last cell, where the form has bold */
void grid_row(grid *g, const char *const *text, size_t n);
#define grid_texts(g, ...)                                                                                             \
    grid_row(g, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

void grid_put(const grid *g, grid_form form, sbuf *out);
/* The width of the plain form, in characters. */
int64_t grid_width(const grid *g);
/* The plain form in sections: first cells, which are texts, become headings of the rows below. Narrower where they are
 * wide. */
void grid_put_sections(const grid *g, sbuf *out);
void grid_release(grid *g);

/* A template of HTML: the text of %s is escaped (NULL: empty); %d, %lld, %f and %g, also with a precision, work as in
 * printf. */
void html_put(sbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A number with four digits, for reading; a dash where it is not finite. For the length of a block: NUMBER(x). */
const char *number_text(double value, char out[32]);
#define NUMBER(value) number_text(value, (char[32]){ 0 })

#endif
