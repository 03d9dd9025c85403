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

void html_base64(sbuf *s, const void *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) | (left > 2 ? b[i + 2] : 0);
        char quad[4] = { digit[v >> 18], digit[v >> 12 & 63], left > 1 ? digit[v >> 6 & 63] : '=',
                         left > 2 ? digit[v & 63] : '=' };
        sbuf_add(s, quad, 4);
    }
}

void html_number(sbuf *s, double value)
{
    double size = fabs(value);
    if (!isfinite(value)) sbuf_puts(s, "&ndash;");
    else if (value == floor(value) && size < 1e9) sbuf_printf(s, "%.0f", value);
    else if (size >= 1000) sbuf_printf(s, "%.0f", value);
    else sbuf_printf(s, "%.4g", value);
}
