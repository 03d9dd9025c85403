/* Replaces utf8proc.c in a build without the library: exact for ASCII, approximate by block beyond (see unicode.h). */
#include "data/text/unicode.h"

bool uni_complete(void) { return false; }

typedef struct range {
    uint32_t first, last;
} range;

static bool is_symbol(uint32_t c)
{
    static const range blocks[] = {
        { 0x80, 0xA9 },     { 0xAB, 0xB4 },       { 0xB6, 0xB9 },        { 0xBB, 0xBF },     { 0xD7, 0xD7 },
        { 0xF7, 0xF7 },     { 0x300, 0x36F },     { 0x2000, 0x2070 },    { 0x20A0, 0x2101 }, { 0x2190, 0x2BFF },
        { 0x3000, 0x3004 }, { 0x3008, 0x3020 },   { 0xE000, 0xF8FF },    { 0xFE00, 0xFE6F }, { 0xFF00, 0xFF0F },
        { 0xFFF0, 0xFFFF }, { 0x1F000, 0x1FAFF }, { 0xE0000, 0x10FFFF },
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (c >= blocks[i].first && c <= blocks[i].last) return true;
    return false;
}

bool uni_is_number(uint32_t c)
{
    return (c >= '0' && c <= '9') || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE) ||
           (c >= 0x660 && c <= 0x669) || (c >= 0x2150 && c <= 0x2189) || (c >= 0x2460 && c <= 0x249B) ||
           (c >= 0xFF10 && c <= 0xFF19);
}

bool uni_is_letter(uint32_t c)
{
    if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
    return !uni_is_number(c) && !uni_is_space(c) && !is_symbol(c);
}

uint32_t uni_upper(uint32_t c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }

static uint32_t lower(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if ((c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3AB) || (c >= 0x410 && c <= 0x42F))
        return c + 32;
    if (c >= 0x400 && c <= 0x40F) return c + 80;
    if ((c >= 0x100 && c <= 0x137 && c != 0x130) || (c >= 0x14A && c <= 0x177)) return c | 1;
    if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c + (c & 1);
    return c;
}

void uni_lower(const uint32_t *in, size_t n, codes *out)
{
    for (size_t i = 0; i < n; i++) {
        if (in[i] == 0x130) codes_add_all(out, (const uint32_t[]){ 'i', 0x307 }, 2);
        else codes_add(out, lower(in[i]));
    }
}

void uni_nfc(codes *text) { (void)text; }

void uni_width(uint32_t c, codes *out) { codes_add(out, c <= 0xFF5E ? c - 0xFEE0 : c); }

size_t uni_grapheme(const uint32_t *in, size_t n)
{
    size_t i = 1;
    while (i < n && in[i] >= 0x300 && in[i] <= 0x36F) i++; /* combining marks */
    return i;
}

void uni_nfd(codes *text, bool compatible) { (void)text, (void)compatible; }

bool uni_is_mark(uint32_t c) { return c >= 0x300 && c <= 0x36F; }
bool uni_is_punctuation(uint32_t c) { return is_symbol(c) && c >= 0x80 && c < 0x20A0; }
bool uni_is_other(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || c == 0x200B || c == 0xFEFF; }
