/* UTF-8 by its definition. */
#include <stdint.h>

#include "core/text.h"

int utf8_decode(const char *text, size_t n, uint32_t *code)
{
    static const uint32_t min[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *t = (const unsigned char *)text;
    if (t[0] < 0x80) {
        *code = t[0];
        return 1;
    }
    int len = t[0] >= 0xF0 && t[0] < 0xF8 ? 4 : t[0] >= 0xE0 && t[0] < 0xF0 ? 3 : t[0] >= 0xC0 && t[0] < 0xE0 ? 2 : 0;
    if (!len || (size_t)len > n) return 0;
    uint32_t c = t[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((t[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (t[i] & 0x3Fu);
    }
    if (c < min[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *code = c;
    return len;
}

int utf8_encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    static const unsigned char lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    out[0] = (char)(lead[len] | c);
    return len;
}

/* ---- base64 ---------------------------------------------------------------------------------------- */

void base64_put(sbuf *s, const void *bytes, size_t n)
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

/* ---- CSV and HTML -------------------------------------------------------------------------------- */

void csv_put(sbuf *s, const char *text)
{
    bool quoted = strpbrk(text, ",\"\n\r") != NULL;
    if (quoted) sbuf_putc(s, '"');
    for (; *text; text++) {
        if (*text == '"') sbuf_putc(s, '"');
        sbuf_putc(s, *text);
    }
    if (quoted) sbuf_putc(s, '"');
}

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
