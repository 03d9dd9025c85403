/* A growing string. Zero-initialised is empty; data is always zero-terminated once something was added.
 *
 *     sbuf s = { 0 };
 *     sbuf_printf(&s, "%d pairs", n);
 *     puts(s.data); sbuf_release(&s);
 *
 * When out of memory the buffer keeps its content and `failed` is set; check it once at the end. */
#ifndef CORE_SBUF_H
#define CORE_SBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sbuf {
    char *data;
    size_t len, cap;
    bool failed;
} sbuf;

void sbuf_add(sbuf *s, const void *bytes, size_t n);
void sbuf_puts(sbuf *s, const char *text);
void sbuf_putc(sbuf *s, char c);
void sbuf_printf(sbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *sbuf_detach(sbuf *s); /* the caller frees; NULL if failed */
void sbuf_release(sbuf *s);

#endif
