#include "data/text/mojibake_signs.h"

#include <uchar.h>

#include "mojibake_tables.inc"

uint32_t mojibake_classes(uint32_t c)
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

bool mojibake_is_sloppy(int encoding) { return encoding >= MOJIBAKE_WINDOWS1252 && encoding < 7; }

int mojibake_byte(int encoding, uint32_t c)
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

/* ---- does it look wrong? --------------------------------------------------------------------------- */

enum { ALL = ODD | LOWER | UPPER | BOX | OPENING | CLOSING | MONEY | NUMERIC | LAW, PLACES = 7, START = 1u << 31 };

/* One character: of some class, or one of these. */
typedef struct place {
    uint32_t classes;
    const char32_t *also; /* NULL: none */
} place;

/* Neighbours that no writer puts side by side; an empty place ends them. */
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
      { PLAIN | MONEY | ODD | NUMERIC | OPENING, U"ŸŠ®°µ»" } }, /* Arabic comes in pairs */
    { { 0, U"à" }, { 0, U"²µ¹¼½¾" } },
    { { 0, U"√" }, { 0, U"±∂†≠®™´≤≥¥µø" } }, /* MacRoman */
    { { 0, U"≈" }, { 0, U"°¢" } },
    { { 0, U"‚" }, { 0, U"Ä" }, { 0, U"ìîïòôúùû†°¢π" } },
    { { 0, U"‚" }, { 0, U"âó" }, { 0, U"àä°ê" } },
    { { 0, U"в" }, { 0, U"Ђ" } }, /* Windows-1251 */
    { { 0, U"ВГРС" }, { CONTROL | ODD | OPENING | CLOSING | MONEY, U"°µ" }, { 0, U"ВГРС" } },
    { { 0, U"Г" }, { 0, U"ў" }, { 0, U"В" }, { 0, U"Ђ" }, { 0, U"В" }, { LATIN | OTHER, 0 }, { LATIN, U" " } },
    { { 0, U"Ã" }, { 0, U"\u00a0¡" } },
    { { AZ, 0 }, { 0, U"ÃÂ" }, { 0, U" " } }, /* the no-break space of a pair has become a plain one: "voilÃ le" */
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

/* classes: of the characters from t on. */
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

bool mojibake_looks_wrong(const uint32_t *t, size_t n)
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
