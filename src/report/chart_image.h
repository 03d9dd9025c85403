/* A chart as an SVG image or a PDF, drawn with cairo while the program runs: for pages without Chart.js and for
 * images that stand alone. */
#ifndef REPORT_CHART_IMAGE_H
#define REPORT_CHART_IMAGE_H

#include "report/chart.h"

typedef enum chart_frame {
    CHART_IN_PAGE, /* transparent; the page says the title */
    CHART_ALONE    /* on white, the title above */
} chart_frame;

/* Appends the image; at least one series has a point. False, with nothing done, in a build without cairo.
 */
bool chart_draw(sbuf *svg, const chart *c, chart_frame frame);
/* The same, alone, as a PDF of one page. */
bool chart_draw_pdf(sbuf *pdf, const chart *c);

#endif
