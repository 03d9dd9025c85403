/* Strings: lines, CSV and HTML escaping, UTF-8 and base64. */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sbuf.h"

static inline bool text_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether `word` is one of the words of `list`, which are separated by spaces; list may be NULL. */
bool text_has_word(const char *list, const char *word);

/* The next line of [*at, end) without its line end (LF or CR LF); advances *at past it. False: no more lines. */
bool text_line(const char **at, const char *end, const char **line, size_t *bytes);

/* 1234567 as "1,234,567"; returns out. */
const char *text_grouped(char out[32], int64_t n);

/* A field of a CSV file: in quotes if needed. */
void csv_put(sbuf *s, const char *text);
/* Text of an HTML page: & < > " escaped. */
void html_text(sbuf *s, const char *text);

/* UTF-8 one code point at a time. */

/* Reads one code point from at most n bytes. Returns its length, or 0 when the bytes are not valid UTF-8
 * (overlong forms, surrogates and values above U+10FFFF included). n must be at least 1. */
int utf8_decode(const char *text, size_t n, uint32_t *code);

/* Writes 1 to 4 bytes, without a terminator, and returns how many. */
int utf8_encode(uint32_t code, char *out);

/* Base64 (RFC 4648) with padding. */
void base64_put(sbuf *s, const void *bytes, size_t n);
/* The reverse, also of the URL-safe form, with or without padding; white space is skipped. The caller frees *out, which
 * is zero-terminated beyond *bytes. false: not base64, or out of memory. */
bool base64_decode(const char *text, size_t n, unsigned char **out, size_t *bytes);

/* A writer of protocol buffers: the part of the wire format that TensorBoard and sentencepiece need. Messages are built
 * inside out: the content of one in a string, then the string as a field of the next. */

void proto_int(sbuf *m, int field, int64_t v);
void proto_float(sbuf *m, int field, float v);
void proto_bytes(sbuf *m, int field, const void *data, size_t n);
void proto_text(sbuf *m, int field, const char *text);
/* Releases `inner`. */
void proto_message(sbuf *m, int field, sbuf *inner);

#endif
