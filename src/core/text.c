/* Lines, UTF-8, base64, CSV, HTML. */
#include "core/text.h"

#include <stdlib.h>

bool text_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    if (!n || strchr(word, ' ')) return false;
    for (const char *at = list; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, word, n) == 0 && (at[n] == ' ' || !at[n])) return true;
    return false;
}

bool text_line(const char **at, const char *end, const char **line, size_t *bytes)
{
    if (*at >= end) return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *line = *at;
    *bytes = (size_t)((stop ? stop : end) - *at);
    *at = stop ? stop + 1 : end;
    if (*bytes && (*line)[*bytes - 1] == '\r') --*bytes;
    return true;
}

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

static int digit_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+' || c == '-') return 62;
    if (c == '/' || c == '_') return 63;
    return -1;
}

static bool is_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Decodes groups of four letters up to the first invalid letter or the last group; returns the number of letters
 * read. */
static size_t decode_fours(const char *text, size_t n, unsigned char *to)
{
    int8_t value[256];
    size_t i = 0;
    for (int c = 0; c < 256; c++) value[c] = (int8_t)digit_value((unsigned char)c);
    for (; i + 4 < n; i += 4, to += 3) {
        const unsigned char *c = (const unsigned char *)text + i;
        int32_t word = value[c[0]] * 262144 | value[c[1]] * 4096 | value[c[2]] * 64 | value[c[3]];
        if (word < 0) break;
        to[0] = (unsigned char)(word >> 16), to[1] = (unsigned char)(word >> 8), to[2] = (unsigned char)word;
    }
    return i;
}

bool base64_decode(const char *text, size_t n, unsigned char **out, size_t *bytes)
{
    unsigned char *to = malloc(n / 4 * 3 + 4);
    size_t count = to ? decode_fours(text, n, to) : 0, length = count / 4 * 3, padding = 0;
    uint32_t word = 0;
    bool ok = to != NULL;
    for (size_t i = count; i < n && ok; i++) {
        unsigned char c = (unsigned char)text[i];
        int value = digit_value(c);
        if (is_space(c)) continue;
        if (c == '=') padding++;
        else if (value < 0 || padding) ok = false;
        if (c == '=' || !ok) continue;
        word = word << 6 | (uint32_t)value;
        if (++count % 4) continue;
        to[length++] = (unsigned char)(word >> 16), to[length++] = (unsigned char)(word >> 8);
        to[length++] = (unsigned char)word;
        word = 0;
    }
    size_t rest = count % 4;
    ok = ok && rest != 1 && padding <= 2 && (!padding || (count + padding) % 4 == 0);
    if (ok && rest == 2) to[length++] = (unsigned char)(word >> 4);
    if (ok && rest == 3) to[length++] = (unsigned char)(word >> 10), to[length++] = (unsigned char)(word >> 2);
    if (!ok) {
        free(to);
        return false;
    }
    to[length] = 0;
    *out = to, *bytes = length;
    return true;
}

/* ---- CSV and HTML -------------------------------------------------------------------------------- */

const char *text_grouped(char out[32], int64_t n)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0 && digits[i - 1] != '-') out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

void csv_put(sbuf *s, const char *text)
{
    const char *quote = strpbrk(text, ",\"\n\r") ? "\"" : "";
    sbuf_puts(s, quote);
    for (; *text; text++) {
        if (*text == '"') sbuf_putc(s, '"');
        sbuf_putc(s, *text);
    }
    sbuf_puts(s, quote);
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

/* ---- protocol buffers: a key of number and kind, then the value ------------------------------ */

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

static void varint(sbuf *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) sbuf_putc(m, (char)(v | 0x80));
    sbuf_putc(m, (char)v);
}

static void key(sbuf *m, int field, int kind) { varint(m, (uint64_t)field << 3 | (uint64_t)kind); }

void proto_int(sbuf *m, int field, int64_t v)
{
    key(m, field, VARINT);
    varint(m, (uint64_t)v);
}

void proto_float(sbuf *m, int field, float v)
{
    key(m, field, FIXED32);
    sbuf_add(m, &v, sizeof v); /* little-endian */
}

void proto_bytes(sbuf *m, int field, const void *data, size_t n)
{
    key(m, field, BYTES);
    varint(m, n);
    sbuf_add(m, data, n);
}

void proto_text(sbuf *m, int field, const char *text) { proto_bytes(m, field, text, strlen(text)); }

void proto_message(sbuf *m, int field, sbuf *inner)
{
    proto_bytes(m, field, inner->data ? inner->data : "", inner->len);
    m->failed |= inner->failed;
    sbuf_release(inner);
    *inner = (sbuf){ 0 };
}
