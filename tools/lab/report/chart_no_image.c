/* In place of chart_image.c where cairo was not found. */
#include "lab/report/chart_image.h"

bool chart_draw(sbuf *svg, const chart *c, chart_frame frame)
{
    (void)svg, (void)c, (void)frame;
    return false;
}

bool chart_draw_pdf(sbuf *pdf, const chart *c)
{
    (void)pdf, (void)c;
    return false;
}
