/* UTF-8 one code point at a time. */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Reads one code point from at most n bytes. Returns its length, or 0 when the bytes are not valid UTF-8
 * (overlong forms, surrogates and values above U+10FFFF included). n must be at least 1. */
int utf8_decode(const char *text, size_t n, uint32_t *code);

/* Writes 1 to 4 bytes, without a terminator, and returns how many. */
int utf8_encode(uint32_t code, char *out);

#endif
