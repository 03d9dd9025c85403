/* Unicode functions using utf8proc. */
#include <stdlib.h>
#include <utf8proc.h>

#include "data/text/unicode.h"

#include "young_characters.inc"

bool uni_complete(void) { return true; }

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

static bool in_ranges(const uint32_t range[][2], size_t n, uint32_t c)
{
    size_t from = 0, to = n;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (c < range[mid][0]) to = mid;
        else if (c > range[mid][1]) from = mid + 1;
        else return true;
    }
    return false;
}

#define IN(table, c) in_ranges(table, sizeof table / sizeof *table, c)

bool uni_is_letter(uint32_t c)
{
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_CN) return IN(young_letters, c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool uni_is_number(uint32_t c)
{
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_CN) return IN(young_numbers, c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool uni_is_mark(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool uni_is_punctuation(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool uni_is_other(uint32_t c)
{
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_CC && k <= UTF8PROC_CATEGORY_CO;
}

uint32_t uni_upper(uint32_t c) { return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c); }

/* ---- lower case ---------------------------------------------------------------------------------- */

/* Whether c is a letter with case, or has Other_Lowercase or Other_Uppercase. */
static bool is_cased(uint32_t c)
{
    static const uint32_t other[][2] = {
        { 0xAA, 0xAA },       { 0xBA, 0xBA },       { 0x2B0, 0x2B8 },     { 0x2C0, 0x2C1 },     { 0x2E0, 0x2E4 },
        { 0x345, 0x345 },     { 0x37A, 0x37A },     { 0x1D2C, 0x1D6A },   { 0x1D78, 0x1D78 },   { 0x1D9B, 0x1DBF },
        { 0x2071, 0x2071 },   { 0x207F, 0x207F },   { 0x2090, 0x209C },   { 0x2160, 0x217F },   { 0x24B6, 0x24E9 },
        { 0x2C7C, 0x2C7D },   { 0xA69C, 0xA69D },   { 0xA770, 0xA770 },   { 0xA7F8, 0xA7F9 },   { 0xAB5C, 0xAB5F },
        { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107B0 }, { 0x107B2, 0x107BA }, { 0x1F130, 0x1F149 },
        { 0x1F150, 0x1F169 }, { 0x1F170, 0x1F189 },
    };
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || IN(other, c);
}

/* Whether c is ignored in the search for the end of a word: combining marks, modifiers, format characters, and
 * punctuation like the apostrophe. */
static bool is_case_ignorable(uint32_t c)
{
    static const uint32_t middle[][2] = {
        { 0x27, 0x27 },     { 0x2E, 0x2E },     { 0x3A, 0x3A },     { 0xB7, 0xB7 },
        { 0x387, 0x387 },   { 0x55F, 0x55F },   { 0x5F4, 0x5F4 },   { 0x2018, 0x2019 },
        { 0x2024, 0x2024 }, { 0x2027, 0x2027 }, { 0xFE13, 0xFE13 }, { 0xFE52, 0xFE52 },
        { 0xFE55, 0xFE55 }, { 0xFF07, 0xFF07 }, { 0xFF0E, 0xFF0E }, { 0xFF1A, 0xFF1A },
    };
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return IN(middle, c);
    }
}

/* Whether a cased letter follows, ignoring case-ignorable characters; a sigma is final if one precedes it and none
 * follows. The search ends at the next sigma, so the total time is linear. */
static bool cased_follows(const uint32_t *in, size_t n, size_t i)
{
    do i++;
    while (i < n && is_case_ignorable(in[i]));
    return i < n && is_cased(in[i]);
}

void uni_lower(const uint32_t *in, size_t n, codes *out)
{
    bool cased_before = false;
    for (size_t i = 0; i < n; i++) {
        if (in[i] == 0x3A3) codes_add(out, cased_before && !cased_follows(in, n, i) ? 0x3C2 : 0x3C3);
        else if (in[i] == 0x130) codes_add_all(out, (const uint32_t[]){ 'i', 0x307 }, 2);
        else codes_add(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)in[i]));
        if (!is_case_ignorable(in[i])) cased_before = is_cased(in[i]);
    }
}

/* ---- normal forms -------------------------------------------------------------------------------- */

static int combining_class(uint32_t c) { return utf8proc_get_property((utf8proc_int32_t)c)->combining_class; }

/* Appends the decomposition of a character; itself if it has none. */
static void add_parts(uint32_t c, bool compatible, codes *out)
{
    utf8proc_int32_t part[16];
    int boundclass = 0;
    utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, part, 16, how, &boundclass);
    if (n < 1 || n > 16) codes_add(out, c);
    else codes_add_all(out, (const uint32_t *)part, (size_t)n);
}

void uni_width(uint32_t c, codes *out) { add_parts(c, true, out); }

size_t uni_grapheme(const uint32_t *in, size_t n)
{
    utf8proc_int32_t state = 0;
    size_t i = 1;
    while (i < n && !utf8proc_grapheme_break_stateful((utf8proc_int32_t)in[i - 1], (utf8proc_int32_t)in[i], &state))
        i++;
    return i;
}

/* Stable counting sort of a run of marks by combining class: linear for runs of any length. */
static void sort_marks(uint32_t *marks, size_t n, codes *scratch)
{
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++) start[(combining_class(marks[i]) & 255) + 1]++;
    for (int k = 1; k < 257; k++) start[k] += start[k - 1];
    scratch->n = 0;
    codes_add_all(scratch, marks, n);
    if (scratch->failed) return;
    for (size_t i = 0; i < n; i++) marks[start[combining_class(scratch->at[i]) & 255]++] = scratch->at[i];
}

/* Decomposes all characters and sorts runs of marks canonically. */
void uni_nfd(codes *text, bool compatible)
{
    codes apart = { 0 }, scratch = { 0 };
    for (size_t i = 0; i < text->n; i++) add_parts(text->at[i], compatible, &apart);
    for (size_t i = 0; i < apart.n;) {
        size_t end = i;
        while (end < apart.n && combining_class(apart.at[end]) > 0) end++;
        if (end - i > 1) sort_marks(apart.at + i, end - i, &scratch);
        i = end + 1;
    }
    apart.failed |= scratch.failed;
    codes_release(&scratch);
    codes_replace(text, &apart);
}

static bool may_change(const codes *text)
{
    for (size_t i = 0; i < text->n; i++)
        if (text->at[i] >= 0x300) return true; /* no character below U+0300 changes under normal form C */
    return false;
}

void uni_nfc(codes *text)
{
    if (!may_change(text)) return;
    uni_nfd(text, false);
    if (text->failed) return;
    utf8proc_ssize_t n = utf8proc_normalize_utf32((utf8proc_int32_t *)text->at, (utf8proc_ssize_t)text->n,
                                                  UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n >= 0) text->n = (size_t)n;
}
