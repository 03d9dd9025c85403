/* The characters that come out where UTF-8 was read in a single-byte encoding: their classes, their bytes, and whether
 * a text looks like that. The classes and neighbours that count as wrong are those of ftfy 6.3. */
#ifndef DATA_TEXT_MOJIBAKE_SIGNS_H
#define DATA_TEXT_MOJIBAKE_SIGNS_H

#include "data/text/unicode.h"

enum {
    CONTROL = 1 << 0, /* C1 */
    ODD = 1 << 1,     /* signs that hardly ever stand in text: broken bar, not sign, dagger, ... */
    LAW = 1 << 2,
    MONEY = 1 << 3,
    OPENING = 1 << 4, /* punctuation before a word */
    CLOSING = 1 << 5, /* punctuation after a word */
    NUMERIC = 1 << 6, /* fractions, powers, plus-minus */
    FACE = 1 << 7,    /* round vowels that make faces */
    UPPER = 1 << 8,   /* accented capitals */
    LOWER = 1 << 9,
    CAPITAL = 1 << 10, /* of Greek and Cyrillic */
    SMALL = 1 << 11,
    BOX = 1 << 12,
    PLAIN = 1 << 13,       /* spaces, dashes, ellipsis: at home anywhere */
    LEAD2 = 1 << 14,       /* in some encoding the first byte of two of a character */
    LEAD3 = 1 << 15,       /* of three */
    LEAD4 = 1 << 16,       /* of four */
    TAIL = 1 << 17,        /* a byte that follows such a one; a space may have been one */
    TAIL_STRICT = 1 << 18, /* the same without what is common in text */
    AZ = 1 << 19,          /* a .. z */
    LATIN = 1 << 20,       /* A .. Z, a .. z */
    SPACE = 1 << 21,
    WORD = 1 << 22, /* letters, numbers, underscore */
    OTHER = 1 << 23 /* a character, but no letter A .. Z, a .. z */
};

uint32_t mojibake_classes(uint32_t code);
bool mojibake_looks_wrong(const uint32_t *t, size_t n);

/* Encodings, in the order in which they are tried. */
enum { MOJIBAKE_LATIN1, MOJIBAKE_WINDOWS1252, MOJIBAKE_MACROMAN = 8, MOJIBAKE_ENCODINGS = 10 };

/* Windows' encodings also take unassigned bytes, and write a lost character (U+FFFD) as 0x1A. */
bool mojibake_is_sloppy(int encoding);
/* The byte of a character, -1 when the encoding has none. */
int mojibake_byte(int encoding, uint32_t code);
/* The character that Windows-1252 has for a C1 control (0x80 .. 0x9F), or the control itself for its five holes. */
uint32_t mojibake_windows_1252(uint32_t control);

#endif
