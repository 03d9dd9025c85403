/* How a byte-pair tokenizer reads a text: words, then merges inside each word. */
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "data/text/tokenizer_impl.h"
#include "data/text/unicode.h"

/* ---- words ------------------------------------------------------------------------------------- */

/* Splits cleaned text into words by CLIP's rule: the special names, English contractions, runs of letters, single
 * digits, runs of anything else that is not white space; the first match wins. */
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

/* ---- merges ------------------------------------------------------------------------------------ */

/* Byte-pair merging: the pair learned earliest is merged first, everywhere, from the left.
 *
 * Parts of a merge are always older than the merge, so taking one pair at a time by (rank, position) gives
 * the same as sweeping once per rank. Short words search for the best pair anew each time; long ones keep a
 * heap. */
enum { SHORT_WORD = 40 };

static int64_t merge_short(const tokenizer *t, int32_t *s, int64_t n)
{
    int32_t rank[SHORT_WORD]; /* of the pair (i, i + 1) */
    for (int64_t i = 0; i + 1 < n; i++) rank[i] = token_pair(t, s[i], s[i + 1]);
    while (n > 1) {
        int64_t best = -1;
        for (int64_t i = 0; i + 1 < n; i++)
            if (rank[i] >= 0 && (best < 0 || rank[i] < rank[best])) best = i;
        if (best < 0) break;
        s[best] = rank[best];
        memmove(s + best + 1, s + best + 2, (size_t)(n - best - 2) * sizeof *s);
        memmove(rank + best, rank + best + 1, (size_t)(n - best - 2) * sizeof *rank);
        n--;
        if (best > 0) rank[best - 1] = token_pair(t, s[best - 1], s[best]);
        if (best + 1 < n) rank[best] = token_pair(t, s[best], s[best + 1]);
    }
    return n;
}

/* ---- long words ------------------------------------------------------------------------------------ */

typedef struct long_word {
    int32_t *symbol; /* (n); -1: merged into the one before */
    int32_t *next, *prev;
    uint64_t *heap; /* rank << 32 | position; smallest first */
    int64_t heap_n, n;
} long_word;

static void sift_down(uint64_t *heap, int64_t n, int64_t i)
{
    uint64_t moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (moved <= heap[child]) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void heap_push(long_word *w, uint64_t item)
{
    int64_t i = w->heap_n++;
    for (; i > 0 && item < w->heap[(i - 1) / 2]; i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = item;
}

static uint64_t heap_pop(long_word *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->heap_n];
    if (w->heap_n) sift_down(w->heap, w->heap_n, 0);
    return top;
}

static int32_t rank_at(const tokenizer *t, const long_word *w, int32_t i)
{
    if (w->symbol[i] < 0 || w->next[i] >= w->n) return -1;
    return token_pair(t, w->symbol[i], w->symbol[w->next[i]]);
}

static void consider(const tokenizer *t, long_word *w, int32_t i)
{
    int32_t rank = rank_at(t, w, i);
    if (rank >= 0) heap_push(w, (uint64_t)rank << 32 | (uint32_t)i);
}

static void merge_long(const tokenizer *t, long_word *w)
{
    for (int32_t i = 0; i < w->n; i++) w->next[i] = i + 1, w->prev[i] = i - 1;
    for (int32_t i = 0; i < w->n; i++) consider(t, w, i);
    while (w->heap_n) {
        uint64_t top = heap_pop(w);
        int32_t i = (int32_t)(top & 0xFFFFFFFFu), rank = (int32_t)(top >> 32);
        if (rank_at(t, w, i) != rank) continue; /* one of the two has been merged since */
        int32_t right = w->next[i];
        w->symbol[i] = rank;
        w->symbol[right] = -1;
        w->next[i] = w->next[right];
        if (w->next[i] < w->n) w->prev[w->next[i]] = i;
        consider(t, w, i);
        if (w->prev[i] >= 0) consider(t, w, w->prev[i]);
    }
}

bool bpe_merge(const tokenizer *t, int32_t *symbol, int64_t *n)
{
    if (*n <= SHORT_WORD) {
        *n = merge_short(t, symbol, *n);
        return true;
    }
    size_t count = (size_t)*n; /* each merge pushes at most two and removes one, so 3 n slots are enough */
    long_word w = { symbol,
                    malloc(count * sizeof(int32_t)),
                    malloc(count * sizeof(int32_t)),
                    malloc(3 * count * sizeof(uint64_t)),
                    0,
                    *n };
    bool ok = w.next && w.prev && w.heap;
    if (ok) {
        merge_long(t, &w);
        *n = 0;
        for (size_t i = 0; i < count; i++)
            if (symbol[i] >= 0) symbol[(*n)++] = symbol[i];
    }
    free(w.next);
    free(w.prev);
    free(w.heap);
    return ok;
}
