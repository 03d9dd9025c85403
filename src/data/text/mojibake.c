/* Finds UTF-8 among characters that are single bytes of Latin-1 or Windows-1252, and turns it back.
 *
 * Two questions are asked of a text. Does it look wrong: do characters stand side by side that no writer puts
 * there
 * ("Ã¤", "â€™", an accented capital before a fraction)? And would it be right as bytes of UTF-8? Both yes: it
 * is turned back as a whole. If only the first, the same is asked of every stretch that has the shape of
 * UTF-8. So "CAFÉ”" stays, because a capital before a closing quote is honest text. The classes and
 * neighbours that count as wrong are those of ftfy 6.3, as far as they concern these two encodings. */
#include "data/text/repair.h"

/* ---- does it look wrong? --------------------------------------------------------------------------- */

enum {
    CONTROL = 1 << 0, /* C1 */
    ODD = 1 << 1,     /* signs that hardly ever stand in text: broken bar, not sign, dagger, ... */
    LAW = 1 << 2,
    MONEY = 1 << 3,
    OPENING = 1 << 4, /* punctuation before a word */
    CLOSING = 1 << 5, /* punctuation after a word */
    NUMBER = 1 << 6,  /* fractions, powers, plus-minus */
    UPPER = 1 << 7,   /* accented capitals; round vowels that make faces are left out */
    LOWER = 1 << 8,
    PLAIN = 1 << 9, /* spaces, dashes, ellipsis: at home anywhere */
    AZ = 1 << 10,   /* a .. z */
    SPACE = 1 << 11
};

/* Classes of the bytes 0x80 .. 0xFF as Windows-1252 reads them; its five holes are controls. */
static const uint16_t byte_class[128] = {
    MONEY,   CONTROL, OPENING, ODD,     OPENING, PLAIN,   ODD,     ODD,    ODD,     ODD,     UPPER,
    OPENING, UPPER,   CONTROL, UPPER,   CONTROL, /* 80 */
    CONTROL, OPENING, PLAIN,   OPENING, CLOSING, OPENING, PLAIN,   PLAIN,  ODD,     CLOSING, LOWER,
    CLOSING, LOWER,   CONTROL, LOWER,   UPPER,   PLAIN,   OPENING, MONEY,  MONEY,   ODD,     MONEY,
    ODD,     LAW,     ODD,     OPENING, ODD,     OPENING, ODD,     PLAIN,  CLOSING, ODD, /* A0 */
    0,       NUMBER,  NUMBER,  NUMBER,  PLAIN,   NUMBER,  LAW,     PLAIN,  ODD,     NUMBER,  ODD,
    CLOSING, NUMBER,  NUMBER,  NUMBER,  OPENING, UPPER,   UPPER,   UPPER,  UPPER,   UPPER,   UPPER,
    UPPER,   UPPER,   UPPER,   UPPER,   UPPER,   UPPER,   UPPER,   UPPER,  UPPER,   UPPER, /* C0 */
    UPPER,   UPPER,   0,       0,       0,       0,       0,       NUMBER, UPPER,   0,       0,
    0,       UPPER,   UPPER,   0,       LOWER,   LOWER,   LOWER,   LOWER,  LOWER,   LOWER,   LOWER,
    LOWER,   LOWER,   LOWER,   LOWER,   LOWER,   LOWER,   LOWER,   LOWER,  LOWER,   LOWER, /* E0 */
    LOWER,   LOWER,   0,       0,       0,       0,       0,       NUMBER, 0,       0,       0,
    0,       LOWER,   0,       0,       0,
};

/* The byte a character was, -1 when it is none of them. */
static int byte_of(uint32_t c)
{
    if (c < 0x100) return (int)c;
    if (c > 0x2122 || (c > 0x2DC && c < 0x2013)) return -1;
    for (uint32_t i = 0x80; i < 0xA0; i++)
        if (uni_windows_1252(i) == c) return (int)i;
    return -1;
}

static unsigned class_of(uint32_t c)
{
    if (c < 0x80) return c >= 'a' && c <= 'z' ? AZ : uni_is_space(c) ? SPACE : 0;
    if (c < 0xA0) return CONTROL;
    if (c == 0xFFFD) return ODD;
    int byte = byte_of(c);
    unsigned k = byte < 0 ? 0 : byte_class[byte - 0x80];
    return c == 0xA0 ? k | SPACE : k;
}

typedef struct neighbours {
    unsigned first, second, third; /* third 0: two are enough */
} neighbours;

static const neighbours wrong[] = {
    { CONTROL, ~0u, 0 },
    { ODD | LOWER | UPPER | OPENING | CLOSING | MONEY | NUMBER | LAW, ODD, 0 },
    { ODD, LOWER | UPPER | OPENING | CLOSING | MONEY | NUMBER | LAW, 0 },
    { LOWER | CLOSING | MONEY | NUMBER, UPPER, 0 },
    { CLOSING | MONEY | NUMBER, LOWER, 0 },
    { LOWER | CLOSING, MONEY, 0 },
    { UPPER, NUMBER | LAW, 0 },
    { MONEY | NUMBER, OPENING, 0 },
    { SPACE, UPPER, MONEY },
    { AZ, UPPER, OPENING | MONEY },
    { LOWER | UPPER | MONEY | CLOSING, OPENING, NUMBER },
    { LOWER | UPPER | MONEY | NUMBER | LAW, CLOSING, OPENING },
};

static bool is_word(uint32_t c) { return c == '_' || uni_is_letter(c) || uni_is_number(c); }
static bool is_latin(uint32_t c) { return c < 0x80 && (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* What classes do not tell: particular letters. c, d: this character and the next; e: the one after, 0 at the
 * end. */
static bool wrong_letters(uint32_t c, uint32_t d, uint32_t e)
{
    unsigned k = class_of(c), n = class_of(d);
    if ((k & (LOWER | UPPER)) && (n & (OPENING | CLOSING)) && e && is_word(e)) return true;
    if ((c == 0x152 || c == 0x153) && !is_latin(d)) return true;
    if ((k & UPPER) && d == 0xB0) return true;
    if (c == 0xC2 || c == 0xC3 || c == 0xCE || c == 0xD0) { /* where Latin-1, Greek and Cyrillic begin */
        if ((n & (OPENING | CLOSING)) || (d != 0x2026 && d != 0x2019 && (n & PLAIN))) return true;
        if (d == 0x20AC || d == 0xA2 || d == 0xA3 || d == 0x160 || d == 0x178 ||
            (n & LOWER & class_of(0x161) && d > 0xFF))
            return true;
    }
    if (c == 0xD7 && (d == 0xB2 || d == 0xB3)) return true;
    return c == 0xE0 && (n & NUMBER) && d >= 0xB2 && d != 0xB3 && d != 0xD7;
}

/* Arabic: a pair whose second half is nothing odd counts when it comes twice. */
static bool is_arabic_pair(const uint32_t *t)
{
    uint32_t d = t[1];
    return (t[0] == 0xD8 || t[0] == 0xD9) && ((class_of(d) & (PLAIN | MONEY | ODD | NUMBER | OPENING)) || d == 0x178 ||
                                              d == 0x160 || d == 0xAE || d == 0xB0 || d == 0xBB);
}

/* "voilÃ le", "2Â km": the no-break space of a pair has become a plain one. */
static bool wrong_before_space(const uint32_t *t, size_t i, size_t n)
{
    if ((t[i] != 0xC2 && t[i] != 0xC3) || i + 1 >= n) return false;
    unsigned before = i ? class_of(t[i - 1]) : 0, next = class_of(t[i + 1]);
    if (t[i + 1] == ' ' && (i == 0 || (before & AZ) || ((before & SPACE) && i > 1 && (class_of(t[i - 2]) & AZ))))
        return true;
    return t[i] == 0xC2 && i &&
           ((before & (AZ | CLOSING)) || t[i - 1] == '.' || t[i - 1] == ',' || t[i - 1] == '?' || t[i - 1] == '!') &&
           (t[i + 1] == ' ' || (next & (OPENING | CLOSING)));
}

static bool looks_wrong(const uint32_t *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned a = class_of(t[i]), b = i + 1 < n ? class_of(t[i + 1]) : 0, c = i + 2 < n ? class_of(t[i + 2]) : 0;
        if (a & CONTROL) return true;
        if (i + 1 >= n) break;
        for (size_t k = 1; k < sizeof wrong / sizeof *wrong; k++)
            if ((a & wrong[k].first) && (b & wrong[k].second) && (!wrong[k].third || (c & wrong[k].third))) return true;
        if (t[i] >= 0x80 && wrong_letters(t[i], t[i + 1], i + 2 < n ? t[i + 2] : 0)) return true;
        if (i + 3 < n && is_arabic_pair(t + i) && is_arabic_pair(t + i + 2)) return true;
        if (wrong_before_space(t, i, n)) return true;
    }
    return false;
}

/* ---- would it be right as bytes? ------------------------------------------------------------------- */

typedef struct sequence {
    size_t length;   /* characters; 0: none here */
    uint32_t value;  /* the character meant */
    bool keep_space; /* "Ã " stands for "à" and the space that ended its word */
} sequence;

static size_t length_by_lead(int lead)
{
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC2 && lead < 0xE0 ? 2 : 0;
}

static bool is_continuation(uint32_t c)
{
    int byte = c < 0x80 ? -1 : byte_of(c);
    return byte >= 0x80 && byte < 0xC0;
}

/* Whether a space at place k of a sequence can have been a no-break space: only where likely characters come
 * out. */
static bool space_fits(const uint32_t *t, int lead, size_t length, size_t k)
{
    if (length == 2)
        return lead == 0xC2 || lead == 0xC3 || lead == 0xC5 || lead == 0xCE || lead == 0xD0 || lead == 0xD9;
    if (length == 4) return lead == 0xF0;
    int other = byte_of(t[k == 1 ? 2 : 1]);
    return (k == 1 ? lead == 0xE2 || lead == 0xE3 : lead <= 0xE3) && other != 0x85 && other != 0xA0;
}

static bool begins_with(const uint32_t *t, size_t n, const char *ascii)
{
    for (; *ascii; ascii++, t++, n--)
        if (!n || *t != (unsigned char)*ascii) return false;
    return true;
}

/* Portuguese "às" and "àquele" are one word; else "à" is one by itself. */
static bool grave_word(const uint32_t *t, size_t n)
{
    return t[0] == 0xC3 && !begins_with(t + 2, n - 2, " ") && !begins_with(t + 2, n - 2, "quele") &&
           !begins_with(t + 2, n - 2, "quela") && !begins_with(t + 2, n - 2, "quilo") &&
           !begins_with(t + 2, n - 2, "s ");
}

/* Half of a pair of surrogates that was written as if it were a character, at t[0 .. 2]; 0 when it is none.
 */
static uint32_t surrogate_at(const uint32_t *t, size_t n)
{
    if (n < 3 || t[0] != 0xED || !is_continuation(t[1]) || !is_continuation(t[2])) return 0;
    uint32_t v = 0xD000u | (uint32_t)(byte_of(t[1]) & 0x3F) << 6 | (uint32_t)(byte_of(t[2]) & 0x3F);
    return v >= 0xD800 ? v : 0;
}

static sequence surrogate_pair(const uint32_t *t, size_t n, uint32_t high)
{
    uint32_t low = n >= 6 ? surrogate_at(t + 3, n - 3) : 0;
    if (high >= 0xDC00 || low < 0xDC00) return (sequence){ 0 };
    return (sequence){ .length = 6, .value = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) };
}

/* The sequence at t[0]. Lost characters (U+FFFD, and once "?") may stand in it; then U+FFFD is what it means.
 */
static sequence sequence_at(const uint32_t *t, size_t n)
{
    static const uint32_t min[] = { 0, 0, 0x80, 0x800, 0x10000 };
    sequence none = { 0 };
    if (t[0] == 0xFFFD) return (sequence){ .length = 1, .value = 0xFFFD };
    int lead = t[0] < 0x80 ? -1 : byte_of(t[0]), spaces = 0, lost = 0, asked = 0;
    size_t length = length_by_lead(lead);
    uint32_t value = (uint32_t)lead & (0x7Fu >> length), high = surrogate_at(t, n);
    if (high) return surrogate_pair(t, n, high);
    if (!length || length > n) return none;
    for (size_t k = 1; k < length; k++) {
        bool space = t[k] == ' ' && space_fits(t, lead, length, k);
        if (!space && t[k] != 0xFFFD && t[k] != '?' && !is_continuation(t[k])) return none;
        spaces += space, lost += t[k] == 0xFFFD, asked += t[k] == '?';
        value = value << 6 | (uint32_t)((space ? 0xA0 : byte_of(t[k])) & 0x3F);
    }
    if (spaces > 1 || asked > 1 || (asked && length == 2 && lead > 0xC3)) return none;
    if (lost || asked) return (sequence){ .length = length, .value = 0xFFFD };
    if (value < min[length] || value > 0x10FFFF) return none;
    return (sequence){ .length = length, .value = value, .keep_space = spaces && length == 2 && grave_word(t, n) };
}

/* Appends the text turned back; false when some character does not fit (out then holds the beginning). A text
 * has either controls or the characters that Windows-1252 puts in their place. */
static bool turn_back(const uint32_t *t, size_t n, codes *out)
{
    bool controls = false, windows = false;
    for (size_t i = 0; i < n; i++) {
        controls |= t[i] >= 0x80 && t[i] < 0xA0 && uni_windows_1252(t[i]) != t[i];
        windows |= t[i] > 0xFF;
    }
    if (controls && windows) return false;
    for (size_t i = 0; i < n;) {
        sequence s = t[i] < 0x80 ? (sequence){ .length = 1, .value = t[i] } : sequence_at(t + i, n - i);
        if (!s.length || (controls && s.value == 0xFFFD)) return false;
        codes_add(out, s.value);
        if (s.keep_space) codes_add(out, ' ');
        i += s.length;
    }
    return !out->failed;
}

/* ---- stretches ------------------------------------------------------------------------------------- */

/* How far UTF-8's shape goes from t[0] on: leads with their continuations, spaces counted as such. */
static size_t stretch_length(const uint32_t *t, size_t n)
{
    size_t end = 0;
    while (end < n) {
        int lead = t[end] < 0x80 ? -1 : byte_of(t[end]);
        size_t length = length_by_lead(lead), k = 1;
        if (!length || length > n - end || (length == 4 && lead != 0xF0 && lead != 0xF3)) break;
        while (k < length && (t[end + k] == ' ' || is_continuation(t[end + k]))) k++;
        if (k < length) break;
        end += length;
    }
    return end;
}

/* A stretch does not begin right after half of something else. */
static bool begins_inside(uint32_t before)
{
    if (before == 0xC6 || before == 0xD8 || before == 0xE6 || before == 0xF8) return true;
    return is_continuation(before) && !(before > 0xFF && (class_of(before) & (OPENING | PLAIN))) && before != 0x201D;
}

static void repair_stretches(const codes *text, codes *out)
{
    for (size_t i = 0; i < text->n;) {
        const uint32_t *t = text->at + i;
        size_t n = i > 0 && begins_inside(t[-1]) ? 0 : stretch_length(t, text->n - i), before = out->n;
        if (n && (n == text->n || !looks_wrong(t, n) || !turn_back(t, n, out))) {
            out->n = before;
            codes_add_all(out, t, n);
        }
        if (!n) codes_add(out, *t);
        i += n ? n : 1;
    }
}

static bool repair_once(codes *text)
{
    codes out = { 0 };
    bool beyond_ascii = false;
    for (size_t i = 0; i < text->n && !beyond_ascii; i++) beyond_ascii = text->at[i] >= 0x80;
    if (!beyond_ascii || !looks_wrong(text->at, text->n)) return false;
    if (!turn_back(text->at, text->n, &out)) {
        out.n = 0;
        repair_stretches(text, &out);
    }
    out.failed |= text->failed;
    bool shorter = out.n != text->n;
    codes_release(text);
    *text = out;
    return shorter;
}

void mojibake_repair(codes *text)
{
    enum { ROUNDS = 16 }; /* each round at least halves what it touches; nothing is broken more often by accident */
    for (int i = 0; i < ROUNDS && !text->failed && repair_once(text);) i++;
}
