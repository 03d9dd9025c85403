/* A chart of lines or bars: an SVG image in a page, and SVG and PDF files. cairo draws it while the program runs;
 * without cairo a page lists the first, last, smallest and largest values instead (cairo_absent.c). */
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
    const char *group;  /* the legend names groups, once each, instead of series; NULL: by its own name */
    bool repeat;        /* one of several runs of the same settings: chart_mean makes one line of its group */
    double *low, *high; /* (n) a band around y, or the whiskers of bars; NULL: none */
} chart_series;

typedef struct chart {
    const char *title, *x_label, *y_label;
    const char *note; /* a sentence below, or NULL */
    bool log_y, fill;
    bool from_zero;              /* the y axis begins at 0 */
    bool bars;                   /* of each series one for every category */
    const char *const *category; /* (categories) names of x = 0, 1, ...; NULL: x is a number */
    int64_t categories;
    chart_series *series;
    int64_t count, room;
} chart;

/* Adds a series with space for n points, which chart_point puts. Arrays are in the arena. */
chart_series *chart_add(arena *a, chart *c, const char *name, int color, int64_t n);
/* Leaves out what cannot be drawn: not finite, or not above 0 where the axis is logarithmic. */
void chart_point(const chart *c, chart_series *s, double x, double y);

int64_t chart_points(const chart *c); /* of the longest series; 0: there is nothing to draw */

/* The same for a series with a band, which begins with its first point. */
void chart_band_point(arena *a, const chart *c, chart_series *s, int64_t room, double x, double y, double low,
                      double high);

/* Where series are repeats, each group of them becomes one: the mean with a band of one standard deviation, at every x
 * that all have, named "GROUP, mean of N". Other series stay. */
chart chart_mean(arena *a, const chart *c);

/* Appends a <figure>, with links below it unless NULL. Nothing when no series has a point. */
void chart_put(sbuf *html, const chart *c, const char *links);

typedef enum chart_frame {
    CHART_IN_PAGE, /* SVG, transparent; the page has the title */
    CHART_ALONE,   /* SVG on white, the title above */
    CHART_PDF      /* the same as a PDF of one page */
} chart_frame;

/* What a caller reports where a drawing function returns false. */
#define CHART_NO_CAIRO                                                                                                 \
    "cairo is missing, which draws plots: install libcairo2, or build again with libcairo2-dev where the build has "   \
    "none"

/* Appends the image; at least one series has a point. False, with nothing done, where cairo is missing. */
bool chart_draw(sbuf *out, const chart *c, chart_frame frame);

/* ---- where the ticks of an axis are ---------------------------------------------------------------- */

enum { AXIS_TICKS = 24 };

typedef struct chart_axis {
    double low, high; /* of the data, widened to ticks on a plain axis */
    bool log;
    int ticks;
    double tick[AXIS_TICKS];
} chart_axis;

/* The axes of a chart with points; bars and filled curves include 0. */
void chart_range(const chart *c, chart_axis *x, chart_axis *y);

#endif
