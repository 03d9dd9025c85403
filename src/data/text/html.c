/* HTML character references: a sorted table of names, and the special cases of numeric references. */
#include "data/text/clean.h"

#include <stdlib.h>
#include <string.h>
#include <uchar.h>

typedef struct entity {
    char name[33];
    bool bare;        /* also valid without a semicolon */
    char32_t code[3]; /* one or two code points, then 0 */
} entity;

static const entity entities[] = {
#include "data/text/html_entities.inc"
};

enum { LONGEST_NAME = 32 };

static int by_name(const void *key, const void *row) { return strcmp(key, ((const entity *)row)->name); }

static const entity *find(const char *name)
{
    return bsearch(name, entities, sizeof entities / sizeof *entities, sizeof *entities, by_name);
}

static void add_entity(codes *out, const entity *e) { codes_add_all(out, e->code, e->code[1] ? 2 : 1); }

/* ---- numbers ------------------------------------------------------------------------------------- */

static int digit_value(uint32_t c, int base)
{
    if (c >= '0' && c <= '9') return (int)(c - '0');
    if (base == 16 && (c | 32) >= 'a' && (c | 32) <= 'f' && c < 0x80) return (int)((c | 32) - 'a') + 10;
    return -1;
}

static void add_number(codes *out, uint32_t c)
{
    if (c >= 0x80 && c < 0xA0) codes_add(out, mojibake_windows_1252(c)); /* as in browsers */
    else if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) codes_add(out, 0xFFFD);
    else if (c < 0x09 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F || (c >= 0xFDD0 && c < 0xFDF0) ||
             (c & 0xFFFE) == 0xFFFE)
        return; /* not a character */
    else codes_add(out, c);
}

/* Reads the number after "&#" at in[0]. Returns its length in code points; 0 if there is none. */
static size_t read_number(const uint32_t *in, size_t n, uint32_t *value)
{
    int base = n && (in[0] == 'x' || in[0] == 'X') ? 16 : 10;
    size_t i = base == 16, first = i;
    for (*value = 0; i < n && digit_value(in[i], base) >= 0; i++)
        if (*value <= 0x10FFFF) *value = *value * (uint32_t)base + (uint32_t)digit_value(in[i], base);
    return i > first ? i : 0;
}

/* ---- names --------------------------------------------------------------------------------------- */

/* Replaces the longest known name at in[0], among the first `length` code points. Returns the length consumed. */
static size_t add_name(codes *out, const uint32_t *in, size_t length, bool semicolon)
{
    char name[LONGEST_NAME + 1];
    size_t ascii = 0;
    while (ascii < length && in[ascii] < 0x80) name[ascii] = (char)in[ascii], ascii++;
    name[ascii] = '\0';
    const entity *e = ascii == length ? find(name) : NULL;
    if (e && (semicolon || e->bare)) {
        add_entity(out, e);
        return length + semicolon;
    }
    for (size_t k = ascii; k > 1; k--) {
        name[k] = '\0';
        e = find(name);
        if (e && e->bare) {
            add_entity(out, e);
            return k;
        }
    }
    return 0;
}

static bool ends_name(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\f' || c == ' ' || c == '<' || c == '&' || c == '#' || c == ';';
}

/* Replaces one reference at in[0] == '&'. Returns its length in code points; 0 if it is not a reference. */
static size_t unescape_one(const uint32_t *in, size_t n, codes *out)
{
    uint32_t value;
    size_t length = 0;
    if (n > 2 && in[1] == '#') {
        length = read_number(in + 2, n - 2, &value);
        if (!length) return 0;
        add_number(out, value);
        length += 2;
        return length + (length < n && in[length] == ';');
    }
    while (1 + length < n && length < LONGEST_NAME && !ends_name(in[1 + length])) length++;
    if (!length) return 0;
    size_t used = add_name(out, in + 1, length, 1 + length < n && in[1 + length] == ';');
    return used ? used + 1 : 0;
}

/* Replaces references. one: appends the characters of the reference at `in` and returns its length; 0 if there is
 * none. */
static void unescape(const uint32_t *in, size_t n, codes *out, size_t (*one)(const uint32_t *in, size_t n, codes *out))
{
    for (size_t i = 0; i < n;) {
        size_t used = in[i] == '&' ? one(in + i, n - i, out) : 0;
        if (!used) codes_add(out, in[i]);
        i += used ? used : 1;
    }
}

void html_unescape(const uint32_t *in, size_t n, codes *out) { unescape(in, n, out, unescape_one); }

/* ---- unambiguous references only ------------------------------------------------------------------ */

static bool is_alnum(uint32_t c) { return (c >= '0' && c <= '9') || (c < 0x80 && (c | 32) >= 'a' && (c | 32) <= 'z'); }

/* The lower-case name of a name in capitals, such as "EACUTE", if neither it nor a prefix of it is a name itself; NULL
 * if there is none. */
static const entity *find_capitals(const char *name, size_t length)
{
    char other[LONGEST_NAME + 1];
    for (size_t k = length; k > 1; k--) {
        memcpy(other, name, k);
        other[k] = '\0';
        const entity *e = find(other);
        if (e && (e->bare || k == length)) return NULL;
    }
    for (size_t k = 0; k <= length; k++) {
        if (name[k] >= 'a' && name[k] <= 'z') return NULL;
        other[k] = (char)(name[k] >= 'A' && name[k] <= 'Z' ? name[k] + 32 : name[k]);
    }
    return find(other);
}

static size_t add_strict_name(codes *out, const char *name, size_t length)
{
    const entity *e = find(name);
    if (e) add_entity(out, e);
    else if ((e = find_capitals(name, length)) != NULL)
        for (int k = 0; k < 2 && e->code[k]; k++) {
            if (e->code[k] == 0xDF) codes_add_all(out, (const uint32_t[]){ 'S', 'S' }, 2);
            else codes_add(out, uni_upper(e->code[k]));
        }
    return e ? length + 2 : 0;
}

static size_t unescape_strict_one(const uint32_t *in, size_t n, codes *out)
{
    enum { MAX_NAME = 24 };
    char name[MAX_NAME + 1];
    size_t hash = n > 1 && in[1] == '#', length = 0;
    uint32_t value;
    for (; 1 + hash + length < n && length < MAX_NAME && is_alnum(in[1 + hash + length]); length++)
        name[length] = (char)in[1 + hash + length];
    name[length] = '\0';
    if (!length || 1 + hash + length >= n || in[1 + hash + length] != ';') return 0;
    if (!hash) return add_strict_name(out, name, length);
    if (read_number(in + 2, length, &value) != length || value == ';') return 0;
    add_number(out, value);
    return length + 3;
}

void html_unescape_strict(const uint32_t *in, size_t n, codes *out) { unescape(in, n, out, unescape_strict_one); }
