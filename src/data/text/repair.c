/* Repairs of single characters, and the loop that applies all repairs until a line does not change.
 *
 * Unlike in ftfy, line breaks are not normalised, because white space is folded afterwards. */
#include "data/text/clean.h"

#include <string.h>

enum { SEGMENT_CODES = 1000000 }; /* longer lines are repaired in pieces of this size */

/* ---- single characters ----------------------------------------------------------------------------- */

typedef struct ligature {
    uint32_t code;
    char letters[4];
} ligature;

static const ligature ligatures[] = {
    { 0x132, "IJ" },  { 0x133, "ij" },  { 0x149, "'n" },  { 0x1C7, "LJ" },   { 0x1C8, "Lj" },   { 0x1C9, "lj" },
    { 0x1CA, "NJ" },  { 0x1CB, "Nj" },  { 0x1CC, "nj" },  { 0x1F1, "DZ" },   { 0x1F2, "Dz" },   { 0x1F3, "dz" },
    { 0xFB00, "ff" }, { 0xFB01, "fi" }, { 0xFB02, "fl" }, { 0xFB03, "ffi" }, { 0xFB04, "ffl" }, { 0xFB06, "st" },
};

/* Replaces ligatures of Latin letters, which come from typeset text. */
static bool add_ligature(codes *out, uint32_t c)
{
    static const uint32_t carons[3][2] = { { 'D', 0x17D }, { 'D', 0x17E }, { 'd', 0x17E } };
    if (c >= 0x1C4 && c <= 0x1C6) {
        codes_add_all(out, carons[c - 0x1C4], 2);
        return true;
    }
    if (c == 0xFB05) {
        codes_add_all(out, (const uint32_t[]){ 0x17F, 't' }, 2);
        return true;
    }
    for (size_t i = 0; i < sizeof ligatures / sizeof *ligatures; i++)
        if (ligatures[i].code == c) {
            for (const char *l = ligatures[i].letters; *l; l++) codes_add(out, (unsigned char)*l);
            return true;
        }
    return false;
}

static uint32_t straight_quote(uint32_t c)
{
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) return '\'';
    return c >= 0x201C && c <= 0x201F ? '"' : c;
}

static void add_repaired(codes *out, uint32_t c)
{
    if (c >= 0x80 && c < 0xA0) c = mojibake_windows_1252(c);
    if (c < 0x132) codes_add(out, c);
    else if (c == 0x3000) codes_add(out, ' ');
    else if (c > 0xFF00 && c < 0xFFF0) uni_width(c, out);
    else if (!add_ligature(out, c)) codes_add(out, straight_quote(c));
}

static bool is_unwanted(uint32_t c)
{
    return c < 0x09 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F || (c >= 0x206A && c < 0x2070) ||
           c == 0xFEFF || (c >= 0xFFF9 && c < 0xFFFD);
}

/* Length of a terminal escape "ESC [ digits letter"; 0 if there is none. */
static size_t escape_length(const uint32_t *t, size_t n)
{
    size_t i = 2;
    if (n < 3 || t[0] != 0x1B || t[1] != '[') return 0;
    while (i < n && ((t[i] >= '0' && t[i] <= '9') || t[i] == ';')) i++;
    return i < n && t[i] < 0x80 && (t[i] | 32) >= 'a' && (t[i] | 32) <= 'z' ? i + 1 : 0;
}

static void drop_controls(codes *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n;) {
        size_t escape = escape_length(text->at + i, text->n - i);
        if (!escape && !is_unwanted(text->at[i])) text->at[n++] = text->at[i];
        i += escape ? escape : 1;
    }
    text->n = n;
}

/* ---- lines ----------------------------------------------------------------------------------------- */

static bool same(const codes *a, const codes *b)
{
    return a->n == b->n && (!a->n || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}

static bool has(const codes *t, uint32_t c)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->at[i] == c) return true;
    return false;
}

static void repair_once(codes *text, bool references)
{
    codes out = { 0 };
    if (references && has(text, '&')) {
        html_unescape_strict(text->at, text->n, &out);
        codes_replace(text, &out);
    }
    if (!text->failed) mojibake_repair(text);
    for (size_t i = 0; i < text->n && !text->failed; i++) add_repaired(&out, text->at[i]);
    codes_replace(text, &out);
    if (text->failed) return;
    drop_controls(text);
    uni_nfc(text);
}

/* Repairs until nothing changes. A text that changes in every round ("&amp;amp;amp;...") would take quadratic time; the
 * budget limits this, far beyond what captions need. */
static void repair_line(codes *line, bool references)
{
    codes before = { 0 };
    size_t budget = line->n * 8 + ((size_t)1 << 21);
    do {
        before.n = 0;
        codes_add_all(&before, line->at, line->n);
        budget -= line->n < budget ? line->n + 1 : budget;
        repair_once(line, references);
    } while (!line->failed && !before.failed && budget && !same(line, &before));
    line->failed |= before.failed;
    codes_release(&before);
}

static size_t line_end(const codes *text, size_t i)
{
    size_t last = text->n - i > SEGMENT_CODES ? i + SEGMENT_CODES : text->n;
    while (i < last)
        if (text->at[i++] == '\n') break;
    return i;
}

void text_repair(codes *text)
{
    codes out = { 0 }, line = { 0 };
    bool references = true; /* false after a tag, because references such as "&lt;" may then be intended */
    for (size_t i = 0, end; i < text->n && !out.failed; i = end) {
        end = line_end(text, i);
        line.n = 0;
        codes_add_all(&line, text->at + i, end - i);
        if (has(&line, '<')) references = false;
        if (!line.failed) repair_line(&line, references);
        codes_add_all(&out, line.at, line.n);
        out.failed |= line.failed;
    }
    codes_release(&line);
    codes_replace(text, &out);
}
