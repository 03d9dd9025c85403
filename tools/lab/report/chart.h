/* A chart of lines: an SVG image, in a page or in a file, and its numbers as CSV. */
#ifndef LAB_REPORT_CHART_H
#define LAB_REPORT_CHART_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/sbuf.h"

typedef struct chart_series {
    const char *name;
    double *x, *y; /* (n), finite; y above 0 on a logarithmic axis */
    int64_t n;
    int color;          /* index into the palette, any number from 0 */
    const char *group;  /* runs of the same settings, which chart_mean averages; NULL: not averaged */
    double *low, *high; /* (n) a band around y; NULL: none */
} chart_series;

typedef struct chart {
    const char *title, *x_label, *y_label;
    const char *note; /* a sentence below, or NULL */
    bool log_y, fill;
    bool from_zero; /* the y axis begins at 0 */
    chart_series *series;
    int64_t count, room;
} chart;

/* Adds a series with space for n points, which chart_point puts. Arrays are in the arena. */
chart_series *chart_add(arena *a, chart *c, const char *name, int color, int64_t n);
/* Skips points that cannot be drawn: not finite, or not above 0 on a logarithmic axis. */
void chart_point(const chart *c, chart_series *s, double x, double y);

int64_t chart_points(const chart *c); /* of the longest series; 0: there is nothing to draw */

/* Each group of series becomes one: the mean with a band of one standard deviation, at every x that all have, named
 * "GROUP, mean of N". Other series stay. */
chart chart_mean(arena *a, const chart *c);

/* Appends a <figure>. At least one series has a point, here and below. */
void chart_put(sbuf *html, const chart *c);

/* Appends the image. alone: for a file, on white with the title above; else the page has both. */
void chart_svg(sbuf *out, const chart *c, bool alone);

/* NAME.svg and NAME.csv in a folder, NAME made from the title. */
cloob_status chart_write(cloob_ctx *ctx, const chart *c, const char *dir);

#endif
