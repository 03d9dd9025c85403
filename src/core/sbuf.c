/* Doubling growth, one terminator. */
#include "core/sbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(sbuf *s, size_t extra)
{
    if (s->failed || extra > (size_t)-1 / 4 - s->len) return !(s->failed = true);
    size_t need = s->len + extra + 1, cap = s->cap ? s->cap : 64;
    if (need <= s->cap) return true;
    while (cap < need) cap *= 2;
    char *data = realloc(s->data, cap);
    if (!data) return !(s->failed = true);
    s->data = data;
    s->cap = cap;
    return true;
}

void sbuf_add(sbuf *s, const void *bytes, size_t n)
{
    if (!reserve(s, n)) return;
    if (n) memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void sbuf_puts(sbuf *s, const char *text) { sbuf_add(s, text, strlen(text)); }

void sbuf_putc(sbuf *s, char c) { sbuf_add(s, &c, 1); }

void sbuf_printf(sbuf *s, const char *format, ...)
{
    va_list args, copy;
    va_start(args, format);
    va_copy(copy, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, format, copy);
        s->len += (size_t)n;
    }
    va_end(copy);
    va_end(args);
}

char *sbuf_detach(sbuf *s)
{
    if (!s->data) sbuf_add(s, "", 0);
    char *data = s->failed ? NULL : s->data;
    if (s->failed) free(s->data);
    *s = (sbuf){ 0 };
    return data;
}

void sbuf_release(sbuf *s)
{
    free(s->data);
    *s = (sbuf){ 0 };
}
