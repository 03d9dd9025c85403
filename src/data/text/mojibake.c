/* A text that looks wrong is written as bytes of one encoding after the other; the first that gives UTF-8 is the one
 * it was read in. */
#include "data/text/repair.h"

#include <stdlib.h>
#include <string.h>

#include "data/text/mojibake_signs.h"

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

/* ---- a text as bytes ------------------------------------------------------------------------------- */

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

/* How long a sequence at t is in which a space stands for the no-break space of its UTF-8; 0: none. Only where likely
 * characters come out. */
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

/* "Ã " before a word stands for "à" and the space that ended it; Portuguese "às" and "àquele" are one word. */
static bool is_grave_word(const unsigned char *t, size_t n)
{
    return n >= 2 && t[0] == 0xC3 && t[1] == ' ' && !begins(t + 2, n - 2, " ") && !begins(t + 2, n - 2, "quele") &&
           !begins(t + 2, n - 2, "quela") && !begins(t + 2, n - 2, "quilo") && !begins(t + 2, n - 2, "s ");
}

/* b has room for half as much again. */
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

/* How long a sequence at t is of which a byte was lost (0x1A, or once "?"); 0: none. */
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

/* U+FFFD in place of such a sequence; scratch has room for three bytes each. */
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

/* ---- bytes as UTF-8 -------------------------------------------------------------------------------- */

/* The character at t and its bytes, strictly; 0: none. */
static size_t character(const unsigned char *t, size_t n, uint32_t *out)
{
    static const uint32_t min[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char a = t[0];
    size_t length = a < 0x80 ? 1 : in(a, 0xC2, 0xDF) ? 2 : in(a, 0xE0, 0xEF) ? 3 : in(a, 0xF0, 0xF4) ? 4 : 0;
    if (!length || length > n) return 0;
    *out = length == 1 ? a : a & (0x7Fu >> length);
    for (size_t k = 1; k < length; k++) {
        if (!is_tail(t[k])) return 0;
        *out = *out << 6 | (t[k] & 0x3Fu);
    }
    return *out >= min[length] && *out <= 0x10FFFF && !in(*out, 0xD800, 0xDFFF) ? length : 0;
}

/* A pair of surrogates, each written as if it were a character; Java's zero. */
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
        if (!length) length = character(b->at + i, b->n - i, &c);
        if (!length) return false;
        codes_add(out, c);
        i += length;
    }
    return !out->failed;
}

/* The text in the first encoding that makes UTF-8 of it; false: in none. */
static bool turn_back(const codes *text, codes *out)
{
    size_t room = 3 * text->n + 8; /* a lost byte becomes three */
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

/* ---- stretches ------------------------------------------------------------------------------------- */

/* How far UTF-8's shape goes from t on: leads with what follows them, in whatever encoding. */
static size_t stretch_length(const uint32_t *t, size_t n)
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

/* Every stretch for itself; one right after half of something else is left alone. */
static bool repair_stretches(const codes *text, codes *out, int depth)
{
    bool changed = false;
    for (size_t i = 0; i < text->n;) {
        const uint32_t *t = text->at + i;
        bool inside = i > 0 && (mojibake_classes(t[-1]) & TAIL_STRICT);
        size_t n = inside ? 0 : stretch_length(t, text->n - i);
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

/* ---- the whole ------------------------------------------------------------------------------------- */

/* C1 controls are what Windows-1252 has there; its five holes stay. */
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

/* One step; false: nothing is wrong, or nothing helps. */
static bool repair_step(codes *text, int depth)
{
    codes out = { 0 };
    bool beyond_ascii = false;
    for (size_t i = 0; i < text->n && !beyond_ascii; i++) beyond_ascii = text->at[i] >= 0x80;
    if (!beyond_ascii || !mojibake_looks_wrong(text->at, text->n)) return false;
    bool changed = turn_back(text, &out);
    if (!changed) out.n = 0, changed = repair_stretches(text, &out, depth);
    if (!changed) out.n = 0, changed = repair_controls(text, &out);
    if (changed) changed = out.n != text->n || memcmp(out.at, text->at, out.n * sizeof *out.at) != 0;
    out.failed |= text->failed;
    if (changed || out.failed) {
        codes_release(text);
        *text = out;
    } else codes_release(&out);
    return changed;
}

/* A stretch is shorter than its text, and what is turned back is shorter than what it was: the bounds end texts that
 * were made to go on. */
static void repair(codes *text, int depth)
{
    enum { ROUNDS = 64, DEPTH = 16 };
    if (depth > DEPTH) return;
    for (int i = 0; i < ROUNDS && !text->failed && repair_step(text, depth);) i++;
}

void mojibake_repair(codes *text) { repair(text, 0); }
