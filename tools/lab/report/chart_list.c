/* Without a library that draws: the first, the last, the smallest and the largest value of each line. */
#include "lab/report/chart.h"
#include "lab/report/html.h"

static void put_row(sbuf *html, const chart_series *s)
{
    double low = s->y[0], high = s->y[0];
    for (int64_t i = 1; i < s->n; i++) {
        if (s->y[i] < low) low = s->y[i];
        if (s->y[i] > high) high = s->y[i];
    }
    const double shown[] = { s->y[0], s->y[s->n - 1], low, high };
    sbuf_puts(html, "<tr><td>");
    html_text(html, s->name);
    sbuf_puts(html, "</td>");
    for (int i = 0; i < 4; i++) {
        sbuf_puts(html, "<td>");
        html_number(html, shown[i]);
        sbuf_puts(html, "</td>");
    }
    sbuf_puts(html, "</tr>");
}

void chart_put_body(sbuf *html, const chart *c)
{
    sbuf_puts(html, "<div "
                    "class=\"wide\"><table><tr><th></th><th>first</th><th>last</th><th>smallest</"
                    "th><th>largest</th></tr>");
    for (int64_t i = 0; i < c->count; i++)
        if (c->series[i].n) put_row(html, &c->series[i]);
    sbuf_puts(html, "</table></div>");
}

void chart_put_scripts(sbuf *html) { (void)html; }
