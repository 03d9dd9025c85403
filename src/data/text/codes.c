/* Code points in a growing array, and the few facts about them that need no library. */
#include <stdlib.h>
#include <string.h>

#include "data/text/unicode.h"

static bool reserve(codes *c, size_t more)
{
    if (c->failed) return false;
    if (c->cap - c->n >= more) return true;
    size_t cap = c->cap + c->cap / 2 + more + 64;
    uint32_t *at = cap > SIZE_MAX / sizeof *at ? NULL : realloc(c->at, cap * sizeof *at);
    if (!at) {
        c->failed = true;
        return false;
    }
    c->at = at;
    c->cap = cap;
    return true;
}

void codes_add(codes *c, uint32_t code)
{
    if (c->n < c->cap || reserve(c, 1)) c->at[c->n++] = code;
}

void codes_add_all(codes *c, const uint32_t *code, size_t n)
{
    if (!n || !reserve(c, n)) return;
    memcpy(c->at + c->n, code, n * sizeof *code);
    c->n += n;
}

void codes_release(codes *c)
{
    free(c->at);
    *c = (codes){ 0 };
}

bool uni_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}
