/* A chart as an SVG image or a PDF, drawn with cairo while the program runs: for pages without Chart.js and for
 * images that stand alone. */
#ifndef REPORT_CHART_IMAGE_H
#define REPORT_CHART_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "lab/report/chart.h"

typedef enum chart_frame {
    CHART_IN_PAGE, /* transparent; the page says the title */
    CHART_ALONE    /* on white, the title above */
} chart_frame;

/* Appends the image; at least one series has a point. False, with nothing done, in a build without cairo.
 */
bool chart_draw(sbuf *svg, const chart *c, chart_frame frame);
/* The same, alone, as a PDF of one page. */
bool chart_draw_pdf(sbuf *pdf, const chart *c);

/* Where the ticks of an axis are. */

enum { AXIS_TICKS = 24 };

typedef struct chart_axis {
    double low, high; /* of the data, widened to ticks on a plain axis */
    bool log;
    int ticks;
    double tick[AXIS_TICKS];
} chart_axis;

/* low <= high, finite; above 0 where log. At most about `wanted` ticks, at 1, 2 or 5 times a power of ten
 * (log: at powers of ten). */
void chart_axis_init(chart_axis *a, double low, double high, bool log, int wanted);
/* 0 at low, 1 at high. */
double chart_axis_at(const chart_axis *a, double value);
void chart_axis_label(const chart_axis *a, int tick, char *text, size_t bytes);

#endif
