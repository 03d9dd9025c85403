/* Encodes a suspicious text in one encoding after the other, until the bytes are valid UTF-8: this is the encoding with
 * which the text was wrongly decoded. */
#include "data/text/clean.h"

#include <stdlib.h>
#include <string.h>
#include <uchar.h>

#include "core/text.h"

/* Characters that result from decoding UTF-8 with a single-byte encoding: their classes, their bytes in each encoding,
 * and the test for suspicious text. Classes and suspicious sequences are those of ftfy 6.3. */
enum {
    CONTROL = 1 << 0, /* C1 controls */
    ODD = 1 << 1,     /* symbols that are rare in text: broken bar, not sign, dagger, ... */
    LAW = 1 << 2,
    MONEY = 1 << 3,
    OPENING = 1 << 4, /* punctuation before a word */
    CLOSING = 1 << 5, /* punctuation after a word */
    NUMERIC = 1 << 6, /* fractions, powers, plus-minus */
    FACE = 1 << 7,    /* rounded vowels used in emoticons */
    UPPER = 1 << 8,   /* accented capital letters */
    LOWER = 1 << 9,
    CAPITAL = 1 << 10, /* capital letters of Greek and Cyrillic */
    SMALL = 1 << 11,
    BOX = 1 << 12,
    PLAIN = 1 << 13,       /* spaces, dashes, ellipsis: plausible next to any character */
    LEAD2 = 1 << 14,       /* first byte of a two-byte sequence in some encoding */
    LEAD3 = 1 << 15,       /* first byte of a three-byte sequence */
    LEAD4 = 1 << 16,       /* first byte of a four-byte sequence */
    TAIL = 1 << 17,        /* byte after a first byte; it may have become a space */
    TAIL_STRICT = 1 << 18, /* TAIL without characters that are common in text */
    AZ = 1 << 19,          /* a .. z */
    LATIN = 1 << 20,       /* A .. Z, a .. z */
    SPACE = 1 << 21,
    WORD = 1 << 22, /* letters, numbers, underscore */
    OTHER = 1 << 23 /* any character except A .. Z, a .. z */
};

/* Encodings, in the order of the attempts. */
enum { MOJIBAKE_LATIN1, MOJIBAKE_WINDOWS1252, MOJIBAKE_MACROMAN = 8, MOJIBAKE_ENCODINGS = 10 };

#include "mojibake_tables.inc"

static uint32_t mojibake_classes(uint32_t c)
{
    uint32_t k = uni_is_space(c) ? SPACE : 0;
    bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    if (upper || lower) return k | LATIN | WORD | (lower ? AZ : 0);
    if (c == '_' || uni_is_letter(c) || uni_is_number(c)) k |= WORD;
    k |= OTHER;
    size_t from = 0, to = sizeof known / sizeof *known;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (known[mid].last < c) from = mid + 1;
        else if (known[mid].first > c) to = mid;
        else return k | known[mid].classes;
    }
    return k;
}

/* Whether the encoding maps unassigned bytes, too, and a lost character (U+FFFD) to 0x1A, as Windows' decoders do. */
static bool mojibake_is_sloppy(int encoding) { return encoding >= MOJIBAKE_WINDOWS1252 && encoding < 7; }

/* The byte of a character; -1 if the encoding lacks it. */
static int mojibake_byte(int encoding, uint32_t c)
{
    if (c == 0x1A && mojibake_is_sloppy(encoding)) return -1;
    if (c < 0x80) return (int)c;
    if (c == 0xFFFD && mojibake_is_sloppy(encoding)) return 0x1A;
    if (encoding == MOJIBAKE_LATIN1) return c < 0x100 ? (int)c : -1;
    for (int i = 0; i < 128; i++)
        if (byte_meaning[encoding][i] == c) return 128 + i;
    return -1;
}

uint32_t mojibake_windows_1252(uint32_t control) { return byte_meaning[MOJIBAKE_WINDOWS1252][control - 0x80]; }

/* ---- is a text suspicious? ------------------------------------------------------------------------- */

enum { ALL = ODD | LOWER | UPPER | BOX | OPENING | CLOSING | MONEY | NUMERIC | LAW, PLACES = 7, START = 1u << 31 };

/* A position in a suspicious sequence: a character of one of the classes, or one of `also`. */
typedef struct place {
    uint32_t classes;
    const char32_t *also; /* NULL: none */
} place;

/* Sequences of adjacent characters that do not occur in normal text; an empty place ends a sequence. */
static const place wrong[][PLACES] = {
    { { CONTROL, 0 } },
    { { ALL, 0 }, { ODD, 0 } },
    { { LATIN, 0 }, { SMALL | CAPITAL, 0 }, { ODD, 0 } },
    { { ODD, 0 }, { ALL & ~ODD, 0 } },
    { { LOWER | SMALL | BOX | CLOSING | MONEY | NUMERIC, 0 }, { UPPER, 0 } },
    { { BOX | CLOSING | MONEY | NUMERIC, 0 }, { LOWER, 0 } },
    { { LOWER | BOX | CLOSING, 0 }, { MONEY, 0 } },
    { { SPACE, 0 }, { UPPER, 0 }, { MONEY, 0 } },
    { { UPPER | BOX, 0 }, { NUMERIC | LAW, 0 } },
    { { LOWER | UPPER | BOX | MONEY | CLOSING, 0 }, { OPENING, 0 }, { NUMERIC, 0 } },
    { { LOWER | UPPER | MONEY | NUMERIC | BOX | LAW, 0 }, { CLOSING, 0 }, { OPENING, 0 } },
    { { MONEY | NUMERIC | BOX, 0 }, { OPENING, 0 } },
    { { AZ, 0 }, { UPPER, 0 }, { OPENING | MONEY, 0 } },
    { { BOX, 0 }, { FACE | CLOSING, 0 } },
    { { ALL & ~(ODD | BOX), 0 }, { BOX, 0 } },
    { { LOWER | UPPER, 0 }, { OPENING | CLOSING, 0 }, { WORD, 0 } },
    { { 0, U"Œœ" }, { OTHER, 0 } },
    { { UPPER, 0 }, { 0, U"°" } },
    { { 0, U"ÂÃÎÐ" }, { OPENING | CLOSING, U"€œŠš¢£Ÿž\u00a0\u00ad®©°·»–—´" } },
    { { 0, U"×" }, { 0, U"²³" } },
    { { 0, U"ØÙ" },
      { PLAIN | MONEY | ODD | NUMERIC | OPENING, U"ŸŠ®°µ»" },
      { 0, U"ØÙ" },
      { PLAIN | MONEY | ODD | NUMERIC | OPENING, U"ŸŠ®°µ»" } }, /* Arabic in UTF-8 alternates between these */
    { { 0, U"à" }, { 0, U"²µ¹¼½¾" } },
    { { 0, U"√" }, { 0, U"±∂†≠®™´≤≥¥µø" } }, /* MacRoman: a pair */
    { { 0, U"≈" }, { 0, U"°¢" } },
    { { 0, U"‚" }, { 0, U"Ä" }, { 0, U"ìîïòôúùû†°¢π" } },
    { { 0, U"‚" }, { 0, U"âó" }, { 0, U"àä°ê" } },
    { { 0, U"в" }, { 0, U"Ђ" } }, /* Windows-1251 */
    { { 0, U"ВГРС" }, { CONTROL | ODD | OPENING | CLOSING | MONEY, U"°µ" }, { 0, U"ВГРС" } },
    { { 0, U"Г" }, { 0, U"ў" }, { 0, U"В" }, { 0, U"Ђ" }, { 0, U"В" }, { LATIN | OTHER, 0 }, { LATIN, U" " } },
    { { 0, U"Ã" }, { 0, U"\u00a0¡" } },
    { { AZ, 0 }, { 0, U"ÃÂ" }, { 0, U" " } }, /* the no-break space of a pair became a normal space: "voilÃ le" */
    { { AZ, 0 }, { SPACE, 0 }, { 0, U"ÃÂ" }, { 0, U" " } },
    { { START, 0 }, { 0, U"ÃÂ" }, { 0, U" " } },
    { { AZ | CLOSING, U".,?!" }, { 0, U"Â" }, { OPENING | CLOSING, U" " } },
    { { 0, U"β" }, { 0, U"€" }, { 0, U"™\u00a0Ά\u00ad®°" } }, /* Windows-1253 */
    { { 0, U"ΒΓΞΟ" }, { CONTROL | ODD | OPENING | CLOSING | MONEY, U"°" }, { 0, U"ΒΓΞΟ" } },
    { { 0, U"ā" }, { 0, U"€" } }, /* Windows-1257 */
};

static bool fits(const place *p, uint32_t code, uint32_t classes)
{
    if (classes & p->classes) return true;
    for (const char32_t *c = p->also; c && *c; c++)
        if (*c == code) return true;
    return false;
}

/* classes: those of the characters at t. */
static bool matches(const place *p, const uint32_t *t, const uint32_t *classes, size_t n, bool first)
{
    if (p->classes == START) {
        if (!first) return false;
        p++;
    }
    for (size_t i = 0; i < PLACES && (p->classes || p->also); i++, p++)
        if (i >= n || !fits(p, t[i], classes[i])) return false;
    return true;
}

static bool mojibake_looks_wrong(const uint32_t *t, size_t n)
{
    uint32_t classes[PLACES];
    for (size_t i = 0; i < n && i < PLACES; i++) classes[i] = mojibake_classes(t[i]);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            if (matches(wrong[k], t + i, classes, n - i < PLACES ? n - i : PLACES, i == 0)) return true;
        for (size_t k = 1; k < PLACES; k++) classes[k - 1] = classes[k];
        if (i + PLACES < n) classes[PLACES - 1] = mojibake_classes(t[i + PLACES]);
    }
    return false;
}

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

/* ---- encoding a text ------------------------------------------------------------------------------ */

static bool to_bytes(const codes *text, int encoding, unsigned char *out)
{
    for (size_t i = 0; i < text->n; i++) {
        int byte = mojibake_byte(encoding, text->at[i]);
        if (byte < 0) return false;
        out[i] = (unsigned char)byte;
    }
    return true;
}

static bool in(unsigned c, unsigned from, unsigned to) { return c >= from && c <= to; }
static bool is_tail(unsigned char c) { return in(c, 0x80, 0xBF); }
static bool is_likely_tail(unsigned char c) { return is_tail(c) && c != 0x85 && c != 0xA0; }

/* Length of a UTF-8 sequence at t in which a space replaced the byte of a no-break space; 0 if there is none. Only
 * sequences of likely characters are considered. */
static size_t altered_length(const unsigned char *t, size_t n)
{
    unsigned char a = t[0];
    if (n < 2) return 0;
    if ((a == 0xC2 || a == 0xC3 || a == 0xC5 || a == 0xCE || a == 0xD0 || a == 0xD9) && t[1] == ' ') return 2;
    if (n >= 3 && (a == 0xE2 || a == 0xE3) && t[1] == ' ' && is_likely_tail(t[2])) return 3;
    if (n >= 3 && in(a, 0xE0, 0xE3) && is_likely_tail(t[1]) && t[2] == ' ') return 3;
    if (n < 4 || a != 0xF0) return 0;
    int spaces = (t[1] == ' ') + (t[2] == ' ') + (t[3] == ' ');
    int tails = is_tail(t[1]) + is_tail(t[2]) + is_tail(t[3]);
    return spaces == 1 && tails == 2 ? 4 : 0;
}

static bool begins(const unsigned char *t, size_t n, const char *text)
{
    return n >= strlen(text) && memcmp(t, text, strlen(text)) == 0;
}

/* "Ã " before a word is "à" followed by a space. In Portuguese "às" and "àquele" it is part of a word. */
static bool is_grave_word(const unsigned char *t, size_t n)
{
    return n >= 2 && t[0] == 0xC3 && t[1] == ' ' && !begins(t + 2, n - 2, " ") && !begins(t + 2, n - 2, "quele") &&
           !begins(t + 2, n - 2, "quela") && !begins(t + 2, n - 2, "quilo") && !begins(t + 2, n - 2, "s ");
}

/* Restores bytes 0xA0 that became spaces. The buffer of b must have 1.5 times its size. */
static void restore_spaces(bytes *b, unsigned char *scratch)
{
    size_t n = 0;
    bool altered = false;
    for (size_t i = 0; i < b->n && !altered; i++) altered = altered_length(b->at + i, b->n - i) > 0;
    if (!altered) return;
    for (size_t i = 0; i < b->n; i++) {
        bool grave = is_grave_word(b->at + i, b->n - i);
        if (grave) memcpy(scratch + n, "\xC3\xA0 ", 3), n += 3, i++;
        else scratch[n++] = b->at[i];
    }
    memcpy(b->at, scratch, n);
    b->n = n;
    for (size_t i = 0; i < b->n;) {
        size_t length = altered_length(b->at + i, b->n - i);
        for (size_t k = 0; k < length; k++)
            if (b->at[i + k] == ' ') b->at[i + k] = 0xA0;
        i += length ? length : 1;
    }
}

static bool lost(unsigned char c) { return c == 0x1A || c == '?'; }
static bool kept(unsigned char c) { return c == 0x1A || is_tail(c); }

/* Length of a sequence at t with a lost byte (0x1A, or "?"); 0 if there is none. */
static size_t lossy_length(const unsigned char *t, size_t n)
{
    unsigned char a = t[0];
    if (n >= 2 && in(a, 0xC2, 0xDF) && t[1] == 0x1A) return 2;
    if (n >= 2 && in(a, 0xC2, 0xC3) && t[1] == '?') return 2;
    if (n >= 6 && a == 0xED && in(t[1], 0xA0, 0xAF) && t[3] == 0xED && in(t[4], 0xB0, 0xBF) &&
        ((lost(t[2]) && (lost(t[5]) || is_tail(t[5]))) || ((lost(t[2]) || is_tail(t[2])) && lost(t[5]))))
        return 6;
    if (n >= 3 && in(a, 0xE0, 0xEF) && ((lost(t[1]) && kept(t[2])) || (kept(t[1]) && lost(t[2])))) return 3;
    if (n >= 4 && in(a, 0xF0, 0xF4) &&
        ((lost(t[1]) && kept(t[2]) && kept(t[3])) || (kept(t[1]) && lost(t[2]) && kept(t[3])) ||
         (kept(t[1]) && kept(t[2]) && lost(t[3]))))
        return 4;
    return a == 0x1A ? 1 : 0;
}

/* Replaces each of these sequences by U+FFFD. The buffers must have space for three bytes per sequence. */
static void replace_lost(bytes *b, unsigned char *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n;) {
        size_t length = lossy_length(b->at + i, b->n - i);
        if (length) memcpy(scratch + n, "\xEF\xBF\xBD", 3), n += 3;
        else scratch[n++] = b->at[i];
        i += length ? length : 1;
    }
    memcpy(b->at, scratch, n);
    b->n = n;
}

/* ---- decoding UTF-8 -------------------------------------------------------------------------------- */

/* Length of a UTF-8 variant at t: a surrogate pair with each half encoded separately (CESU-8), or Java's encoding of
 * zero; 0 if there is none. */
static size_t variant(const unsigned char *t, size_t n, uint32_t *out)
{
    if (n >= 2 && t[0] == 0xC0 && t[1] == 0x80) return *out = 0, 2;
    if (n < 6 || t[0] != 0xED || !in(t[1], 0xA0, 0xAF) || !is_tail(t[2]) || t[3] != 0xED || !in(t[4], 0xB0, 0xBF) ||
        !is_tail(t[5]))
        return 0;
    *out = 0x10000 + ((t[1] & 0x0Fu) << 16) + ((t[2] & 0x3Fu) << 10) + ((t[4] & 0x0Fu) << 6) + (t[5] & 0x3Fu);
    return 6;
}

static bool from_utf8(const bytes *b, codes *out)
{
    for (size_t i = 0; i < b->n;) {
        uint32_t c;
        size_t length = variant(b->at + i, b->n - i, &c);
        if (!length) length = (size_t)utf8_decode((const char *)b->at + i, b->n - i, &c);
        if (!length) return false;
        codes_add(out, c);
        i += length;
    }
    return !out->failed;
}

/* Encodes the text in the first encoding for which the bytes are valid UTF-8, and decodes them; false if there is
 * none. */
static bool recode(const codes *text, codes *out)
{
    size_t room = 3 * text->n + 8; /* a lost byte becomes three bytes */
    unsigned char *memory = malloc(2 * room);
    bool done = false;
    if (!memory) return out->failed = true, false;
    for (int e = 0; e < MOJIBAKE_ENCODINGS && !done; e++) {
        bytes b = { memory, text->n };
        if (!to_bytes(text, e, b.at)) continue;
        if (e != MOJIBAKE_MACROMAN) restore_spaces(&b, memory + room);
        if (mojibake_is_sloppy(e)) replace_lost(&b, memory + room);
        out->n = 0;
        done = from_utf8(&b, out);
    }
    free(memory);
    return done;
}

/* ---- parts of a text ------------------------------------------------------------------------------ */

/* Length of the longest part at t in which each first byte of a sequence is followed by its other bytes, in any
 * encoding. */
static size_t part_length(const uint32_t *t, size_t n)
{
    size_t end = 0;
    while (end < n) {
        uint32_t k = mojibake_classes(t[end]);
        size_t length = k & LEAD2 ? 2 : k & LEAD3 ? 3 : k & LEAD4 ? 4 : 0, at = 1;
        if (!length || length > n - end) break;
        while (at < length && (mojibake_classes(t[end + at]) & TAIL)) at++;
        if (at < length) break;
        end += length;
    }
    return end;
}

static void repair(codes *text, int depth);

/* Repairs each such part separately. Parts directly after half of another sequence are skipped. */
static bool repair_parts(const codes *text, codes *out, int depth)
{
    bool changed = false;
    for (size_t i = 0; i < text->n;) {
        const uint32_t *t = text->at + i;
        bool inside = i > 0 && (mojibake_classes(t[-1]) & TAIL_STRICT);
        size_t n = inside ? 0 : part_length(t, text->n - i);
        if (n && n < text->n && mojibake_looks_wrong(t, n)) {
            codes part = { 0 };
            codes_add_all(&part, t, n);
            repair(&part, depth + 1);
            changed |= part.n != n || memcmp(part.at, t, n * sizeof *t) != 0;
            codes_add_all(out, part.at, part.n);
            out->failed |= part.failed;
            codes_release(&part);
        } else codes_add_all(out, t, n ? n : 1);
        i += n ? n : 1;
    }
    return changed;
}

/* ---- whole texts ----------------------------------------------------------------------------------- */

/* Replaces C1 controls by the characters of Windows-1252; its five unassigned bytes are kept. */
static bool repair_controls(const codes *text, codes *out)
{
    bool any = false;
    for (size_t i = 0; i < text->n; i++) {
        bool control = in(text->at[i], 0x80, 0x9F);
        codes_add(out, control ? mojibake_windows_1252(text->at[i]) : text->at[i]);
        any |= control;
    }
    return any;
}

/* One repair step; false if the text is not suspicious or nothing helps. */
static bool repair_step(codes *text, int depth)
{
    codes out = { 0 };
    bool beyond_ascii = false;
    for (size_t i = 0; i < text->n && !beyond_ascii; i++) beyond_ascii = text->at[i] >= 0x80;
    if (!beyond_ascii || !mojibake_looks_wrong(text->at, text->n)) return false;
    bool changed = recode(text, &out);
    if (!changed) out.n = 0, changed = repair_parts(text, &out, depth);
    if (!changed) out.n = 0, changed = repair_controls(text, &out);
    if (changed) changed = out.n != text->n || memcmp(out.at, text->at, out.n * sizeof *out.at) != 0;
    if (changed || out.failed) codes_replace(text, &out);
    codes_release(&out);
    return changed;
}

/* Repairs until nothing changes. Parts are shorter than their text and repaired texts are shorter than before; the
 * bounds limit the recursion on malicious texts. */
static void repair(codes *text, int depth)
{
    enum { ROUNDS = 64, DEPTH = 16 };
    if (depth > DEPTH) return;
    for (int i = 0; i < ROUNDS && !text->failed && repair_step(text, depth);) i++;
}

void mojibake_repair(codes *text) { repair(text, 0); }
