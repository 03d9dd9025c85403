/* Escaping. */
#include "report/html.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/json.h"

void html_text(sbuf *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') sbuf_puts(s, "&amp;");
        else if (*text == '<') sbuf_puts(s, "&lt;");
        else if (*text == '>') sbuf_puts(s, "&gt;");
        else if (*text == '"') sbuf_puts(s, "&quot;");
        else sbuf_putc(s, *text);
    }
}

void html_json_string(sbuf *s, const char *text)
{
    sbuf plain = { 0 };
    json_put_string(&plain, text);
    for (size_t i = 0; i < plain.len; i++) {
        if (plain.data[i] == '<') sbuf_puts(s, "\\u003c");
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
