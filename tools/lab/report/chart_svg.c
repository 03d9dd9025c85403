/* Charts as SVG images inside the page, for builds without Chart.js. An image rather than inline SVG, as
 * cairo's names for glyphs would meet those of the next chart. Dark mode inverts the image (page.css). */
#include "core/text.h"
#include "lab/report/chart_image.h"
#include "lab/report/html.h"

void chart_put_body(sbuf *html, const chart *c)
{
    sbuf svg = { 0 };
    chart_draw(&svg, c, CHART_IN_PAGE);
    sbuf_puts(html, "<img class=\"drawn\" alt=\"");
    html_text(html, c->title);
    sbuf_puts(html, "\" src=\"data:image/svg+xml;base64,");
    base64_put(html, svg.data, svg.len);
    sbuf_puts(html, "\">");
    html->failed |= svg.failed;
    sbuf_release(&svg);
}

void chart_put_scripts(sbuf *html) { (void)html; }
