/* Cleaned text into words, by CLIP's rule: the special names, English contractions, runs of letters, single
 * digits, runs of anything else that is not white space; the first that fits wins. */
#include <string.h>

#include "core/text.h"
#include "data/text/unicode.h"
#include "data/text/tokenizer_impl.h"
#include "data/text/tokenizer.h"

typedef enum kind { SPACE, LETTER, NUMBER, OTHER } kind;

static const uint8_t ascii_kind[128] = {
    3, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, /* controls */
    0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, /* digits */
    3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, /* A .. Z */
    3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, /* a .. z */
};

/* The kind of the character at text[0] and its length in bytes. */
static kind kind_at(clean_mode mode, const char *text, size_t n, size_t *length)
{
    uint32_t c;
    *length = 1;
    if ((unsigned char)text[0] < 0x80) return (kind)ascii_kind[(unsigned char)text[0]];
    int used = utf8_decode(text, n, &c);
    if (!used) return OTHER;
    *length = (size_t)used;
    if (c == 0x345 && mode != CLEAN_HF)
        return SPACE; /* the iota below: a mark that folds to a letter, so CLIP's rule finds it in no class */
    return uni_is_letter(c) ? LETTER : uni_is_number(c) ? NUMBER : uni_is_space(c) ? SPACE : OTHER;
}

/* Bytes of text that spell `name`, 0 when it does not. The long s counts as an s, as case folding has it. */
static size_t spells(const char *text, size_t n, const char *name)
{
    size_t i = 0;
    for (; *name; name++) {
        if (i < n && text[i] == *name) i++;
        else if (*name == 's' && n - i >= 2 && (unsigned char)text[i] == 0xC5 && (unsigned char)text[i + 1] == 0xBF)
            i += 2;
        else return 0;
    }
    return i;
}

static size_t special(const char *text, size_t n, word_kind *k)
{
    static const char *const names[] = { "<start_of_text>", "<end_of_text>" };
    for (int i = 0; i < 2; i++) {
        size_t used = spells(text, n, names[i]);
        if (!used) continue;
        if (used == strlen(names[i])) *k = i == 0 ? WORD_START : WORD_END;
        return used;
    }
    return 0;
}

static size_t contraction(clean_mode mode, const char *text, size_t n)
{
    static const char *const endings[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t used = spells(text, n, endings[i]);
        if (used && (mode != CLEAN_HF || used == strlen(endings[i]))) return used; /* there the long s is none */
    }
    return 0;
}

static size_t run_length(clean_mode mode, const char *text, size_t n, kind k)
{
    size_t i = 0, length;
    while (i < n && (unsigned char)text[i] < 0x80 && ascii_kind[(unsigned char)text[i]] == k) i++;
    while (i < n && kind_at(mode, text + i, n - i, &length) == k) i += length;
    return i;
}

/* Whether "|>" at i ends a special name that began a word: transformers' expression then ends a word here, too. */
static bool ends_special(const char *text, size_t i)
{
    static const char *const heads[] = { "<|startoftext", "<|endoftext" };
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(heads[k]), length, before;
        if (i < n || memcmp(text + i - n, heads[k], n) != 0) continue;
        if (i == n || (i - n >= 2 && memcmp(text + i - n - 2, "|>", 2) == 0 && ends_special(text, i - n - 2)))
            return true;
        for (before = i - n - 1; before && ((unsigned char)text[before] & 0xC0) == 0x80;) before--;
        return kind_at(CLEAN_HF, text + before, i - n - before, &length) != OTHER;
    }
    return false;
}

bool words_next(clean_mode mode, const char *text, size_t bytes, size_t *pos, word *w)
{
    size_t i = *pos, used = 0, length = 1;
    kind k = SPACE;
    while (i < bytes && (k = kind_at(mode, text + i, bytes - i, &length)) == SPACE) i += length;
    if (i >= bytes) return false;
    w->kind = WORD_PLAIN;
    if (text[i] == '<' && mode != CLEAN_HF) used = special(text + i, bytes - i, &w->kind);
    else if (text[i] == '\'') used = contraction(mode, text + i, bytes - i);
    else if (mode == CLEAN_HF && text[i] == '|' && i + 1 < bytes && text[i + 1] == '>' && ends_special(text, i))
        used = 2;
    if (!used) used = k == NUMBER ? length : run_length(mode, text + i, bytes - i, k);
    w->at = text + i;
    w->bytes = used;
    *pos = i + used;
    return true;
}
