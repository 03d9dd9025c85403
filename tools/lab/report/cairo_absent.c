/* In place of chart_draw.c and examples.c in a build without cairo. */
#include "lab/report/chart.h"
#include "lab/report/examples.h"

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

bool examples_draw(sbuf *out, const example *e, int64_t n, bool pdf)
{
    (void)out, (void)e, (void)n, (void)pdf;
    return false;
}
