/* Escaping, and what all pages begin and end with. */
#include "lab/report/html.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "core/json.h"
#include "lab/report/stylesheets.h"
#include "lab/report/page.h"
#include "lab/report/chart.h"

void html_json(sbuf *s, json_out *w)
{
    sbuf plain;
    json_out_back(w, &plain);
    for (size_t i = 0; i < plain.len; i++) {
        if (plain.data[i] == '<') sbuf_puts(s, "\\u003c"); /* stands in strings only */
        else sbuf_putc(s, plain.data[i]);
    }
    s->failed |= plain.failed;
    sbuf_release(&plain);
}

void html_number(sbuf *s, double value)
{
    double size = fabs(value);
    if (!isfinite(value)) sbuf_puts(s, "&ndash;");
    else if (value == floor(value) && size < 1e9) sbuf_printf(s, "%.0f", value);
    else if (size >= 1000) sbuf_printf(s, "%.0f", value);
    else sbuf_printf(s, "%.4g", value);
}

void html_page_begin(sbuf *s, const char *title)
{
    sbuf_puts(s, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link "
                 "rel=\"icon\" href=\"data:,\">\n<title>");
    html_text(s, title);
    sbuf_puts(s, "</title>\n<style>\n");
    sbuf_add(s, asset_tokens_css, asset_tokens_css_bytes);
    sbuf_add(s, asset_page_css, asset_page_css_bytes);
    sbuf_puts(s, "</style>\n</head>\n<body>\n<main>\n<h1>");
    html_text(s, title);
    sbuf_puts(s, "</h1>\n");
}

void html_page_end(sbuf *s)
{
    char when[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&now, &tm));
    sbuf_printf(s, "<footer>Written %s by cloob %s.</footer>\n</main>\n", when, cloob_version());
    chart_put_scripts(s);
    sbuf_puts(s, "</body>\n</html>\n");
}
