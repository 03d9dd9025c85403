/* Finds UTF-8 sequences among characters that are single bytes of Latin-1 or Windows-1252.
 *
 * A sequence is a lead character and its continuations. Runs of adjacent sequences stand or fall together: a run is
 * turned back when one of its sequences is "strong", that is, no writer would put these characters side by side
 * ("Ã¤", "â€™"); a capital before a closing quote or a dash is weak, because "CAFÉ”" is honest text. When the whole
 * text is such bytes, one strong sequence convinces for all of it. */
#include "data/text_mojibake.h"

/* The byte a character was, -1 when it is none of them. */
static int byte_of(uint32_t c)
{
    if (c < 0x100) return (int)c;
    for (uint32_t i = 0x80; i < 0xA0; i++)
        if (uni_windows_1252(i) == c) return (int)i;
    return -1;
}

/* ---- how much a character says --------------------------------------------------------------------- */

/* Signs that stand beside accented letters in honest text: spaces, quotes, dashes, trade marks. */
static bool is_punctuation(uint32_t c)
{
    switch (c) {
    case 0xA0: case 0xA1: case 0xA9: case 0xAB: case 0xAD: case 0xAE: case 0xB0: case 0xB4: case 0xB7: case 0xBB: case 0xBF:
    case 0x2013: case 0x2014: case 0x2018: case 0x2019: case 0x201A: case 0x201C: case 0x201D: case 0x201E: case 0x2022:
    case 0x2026: case 0x2039: case 0x203A: case 0x2122: return true;
    default: return false;
    }
}

/* Of those, the ones that no word has in its middle. */
static bool splits_words(uint32_t c)
{
    return is_punctuation(c) && c != 0xA0 && c != 0xAD && c != 0xB0 && c != 0xB4 && c != 0xB7 && c != 0x2013 && c != 0x2014 &&
           c != 0x2019 && c != 0x2026;
}

static bool is_money(uint32_t c) { return c == 0xA2 || c == 0xA3 || c == 0xA5 || c == 0x20AC; }

static bool is_letter_byte(uint32_t c) { return c == 0x160 || c == 0x161 || c == 0x152 || c == 0x153 || c == 0x17D || c == 0x17E || c == 0x178; }

static bool is_word(const codes *t, size_t i)
{
    return i < t->n && (t->at[i] == '_' || uni_is_letter(t->at[i]) || uni_is_number(t->at[i]));
}

static bool is_lower_ascii(const codes *t, size_t i) { return i < t->n && t->at[i] >= 'a' && t->at[i] <= 'z'; }

/* ---- one sequence ---------------------------------------------------------------------------------- */

typedef struct sequence {
    size_t length;  /* characters; 0: none here */
    uint32_t value; /* the character meant */
    bool strong;
    bool keep_space; /* "Ã " in place of "Ã\u00A0": the space stays, it was a word's end */
} sequence;

static bool strong_pair(const codes *t, size_t i)
{
    uint32_t lead = t->at[i], next = t->at[i + 1];
    bool busy = lead == 0xC2 || lead == 0xC3 || lead == 0xCE || lead == 0xD0; /* Latin-1, Greek, Cyrillic */
    if (busy) return next != 0x2019 && next != 0x2026 && next != 0xA5 && next != 0x152 && next != 0x17D;
    if (next == 0xB0) return lead != 0xDF;
    if (is_punctuation(next)) return splits_words(next) && is_word(t, i + 2);
    if (is_money(next)) return i > 0 && (is_lower_ascii(t, i - 1) || uni_is_space(t->at[i - 1]));
    return !is_letter_byte(next);
}

/* Two or three continuations: honest only when all of them are punctuation. */
static bool strong_longer(const codes *t, size_t i, size_t length)
{
    for (size_t k = 1; k < length; k++)
        if (!is_punctuation(t->at[i + k]) && !is_letter_byte(t->at[i + k])) return true;
    return length == 4;
}

/* "voilÃ le", "2Â km": the no-break space of the pair has become a plain one. */
static sequence spaced_pair(const codes *t, size_t i)
{
    bool begins = i == 0 || is_lower_ascii(t, i - 1) ||
                  (i > 1 && uni_is_space(t->at[i - 1]) && is_lower_ascii(t, i - 2));
    if ((t->at[i] != 0xC2 && t->at[i] != 0xC3) || !begins) return (sequence){ 0 };
    bool grave = t->at[i] == 0xC3 && !(i + 2 < t->n && t->at[i + 2] == ' ');
    return (sequence){ .length = 2, .value = t->at[i] == 0xC3 ? 0xE0 : 0xA0, .strong = true, .keep_space = grave };
}

static bool valid_value(uint32_t v, size_t length)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    return v >= least[length] && v <= 0x10FFFF && !(v >= 0xD800 && v < 0xE000);
}

static sequence sequence_at(const codes *t, size_t i)
{
    sequence none = { 0 };
    int lead = t->at[i] < 0x80 ? -1 : byte_of(t->at[i]);
    size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC2 && lead < 0xE0 ? 2 : 0;
    if (!length || i + length > t->n) return none;
    if (length == 2 && t->at[i + 1] == ' ') return spaced_pair(t, i);
    uint32_t value = (uint32_t)lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; k++) {
        int byte = t->at[i + k] < 0x80 ? -1 : byte_of(t->at[i + k]);
        if (byte < 0x80 || byte > 0xBF) return none;
        value = value << 6 | (uint32_t)(byte & 0x3F);
    }
    if (!valid_value(value, length)) return none;
    return (sequence){ .length = length, .value = value, .strong = length == 2 ? strong_pair(t, i) : strong_longer(t, i, length) };
}

/* ---- the text -------------------------------------------------------------------------------------- */

/* True when every character beyond ASCII belongs to a sequence; *strong when one of them convinces. */
static bool whole_is_bytes(const codes *t, bool *strong)
{
    bool whole = true;
    *strong = false;
    for (size_t i = 0; i < t->n;) {
        sequence s = t->at[i] < 0x80 ? (sequence){ 0 } : sequence_at(t, i);
        if (!s.length && t->at[i] >= 0x80) whole = false;
        *strong |= s.strong;
        i += s.length ? s.length : 1;
    }
    return whole;
}

static void add_sequence(codes *out, const sequence *s)
{
    codes_add(out, s->value);
    if (s->keep_space) codes_add(out, ' ');
}

/* Copies the run that starts at i, turned back if it convinces (or everything does). Returns its end. */
static size_t copy_run(const codes *t, size_t i, bool all, codes *out)
{
    bool strong = all;
    size_t end = i;
    for (sequence s; end < t->n && (s = sequence_at(t, end)).length; end += s.length) strong |= s.strong;
    if (!strong) codes_add_all(out, t->at + i, end - i);
    else
        for (size_t k = i; k < end;) {
            sequence s = sequence_at(t, k);
            add_sequence(out, &s);
            k += s.length;
        }
    return end;
}

static bool repair_once(codes *text)
{
    bool any;
    bool all = whole_is_bytes(text, &any);
    if (!any) return false;
    codes out = { 0 };
    for (size_t i = 0; i < text->n;) {
        size_t end = copy_run(text, i, all, &out);
        if (end == i) codes_add(&out, text->at[end++]);
        i = end;
    }
    codes_release(text);
    *text = out;
    return true;
}

void mojibake_repair(codes *text)
{
    enum { ROUNDS = 16 }; /* each round at least halves what it touches; nothing is broken more often by accident */
    for (int i = 0; i < ROUNDS && !text->failed && repair_once(text);) i++;
}
