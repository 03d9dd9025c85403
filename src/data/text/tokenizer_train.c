/* Learns merges: repeatedly makes the most frequent pair of adjacent symbols a token.
 *
 * Words are counted first, so each caption is read once and each distinct word is stored once. Every pair has a count
 * and a list of words that may contain it; a merge only changes these words and the counts of pairs next to it. The
 * best pair comes from a heap, which may contain outdated entries. Ties are decided by the smaller ids, so the result
 * is the same on every machine. */
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/needs.h"
#include "core/pool.h"
#include "core/text.h"
#include "data/text/tokenizer_impl.h"
#include "io/gzip.h"

/* ---- counting words: a list per thread, which are then combined and sorted ------------------------- */

enum { COUNT_WORD_LIMIT = 256 }; /* longer words are skipped: they are rare and slow */

typedef struct caption {
    const char *at;
    size_t bytes;
} caption;

typedef struct word_count {
    size_t at; /* offset in the text of its list */
    uint32_t bytes;
    int64_t count;
} word_count;

typedef struct word_counts {
    word_count *item;
    int64_t n, cap;
    sbuf text;
    hash_map index; /* hash of a word to its item; among 10^8 words, the probability of a collision is 1 in 4000 */
} word_counts;

static void word_counts_release(word_counts *w)
{
    free(w->item);
    sbuf_release(&w->text);
    hash_map_release(&w->index);
    *w = (word_counts){ 0 };
}

static bool count_word(word_counts *w, const char *text, size_t bytes, int64_t count)
{
    int64_t *at = hash_map_put(&w->index, fnv_add(FNV_START, text, bytes));
    if (!at || !heap_grow(&w->item, w->n, &w->cap, sizeof *w->item)) return false;
    if (*at < 0) {
        *at = w->n;
        w->item[w->n++] = (word_count){ w->text.len, (uint32_t)bytes, 0 };
        sbuf_add(&w->text, text, bytes);
    }
    w->item[*at].count += count;
    return !w->text.failed;
}

typedef struct count_job {
    const caption *captions;
    word_counts *part; /* one per range of captions */
} count_job;

static cloob_status count_caption(cloob_ctx *ctx, word_counts *words, const caption *c, sbuf *clean)
{
    clip_word w;
    clean->len = 0;
    CLOOB_TRY(text_clean_words(ctx, CLEAN_FULL, c->at, c->bytes, clean));
    for (size_t pos = 0; clean->len && words_next(false, clean->data, clean->len, &pos, &w);)
        if (w.kind == WORD_PLAIN && w.bytes <= COUNT_WORD_LIMIT && !count_word(words, w.at, w.bytes, 1))
            return ctx_no_memory(ctx, w.bytes, "counting words");
    return CLOOB_OK;
}

static cloob_status count_range(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread)
{
    count_job *j = arg;
    sbuf clean = { 0 };
    cloob_status status = CLOOB_OK;
    for (int64_t i = begin; i < end && status == CLOOB_OK; i++)
        status = count_caption(ctx, &j->part[thread], &j->captions[i], &clean);
    sbuf_release(&clean);
    return status;
}

static int by_bytes(const void *a, const void *b, void *text)
{
    const word_count *x = a, *y = b;
    int c = memcmp((char *)text + x->at, (char *)text + y->at, x->bytes < y->bytes ? x->bytes : y->bytes);
    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Cleans the captions and counts their words, on all threads. The words are sorted by their bytes, so the result does
 * not depend on the number of threads. */
static cloob_status words_count(cloob_ctx *ctx, const caption *captions, int64_t n, word_counts *out)
{
    enum { GRAIN = 1024 };
    int ranges = pool_ranges(ctx, n, GRAIN);
    count_job j = { captions, calloc((size_t)ranges, sizeof *j.part) };
    *out = (word_counts){ 0 };
    if (!j.part) return ctx_no_memory(ctx, (size_t)ranges * sizeof *j.part, "counting words");
    cloob_status status = pool_try(ctx, n, GRAIN, count_range, &j);
    *out = j.part[0];
    for (int r = 1; r < ranges; r++) {
        for (int64_t i = 0; status == CLOOB_OK && i < j.part[r].n; i++) {
            const word_count *w = &j.part[r].item[i];
            if (!count_word(out, j.part[r].text.data + w->at, w->bytes, w->count))
                status = ctx_no_memory(ctx, w->bytes, "counting words");
        }
        word_counts_release(&j.part[r]);
    }
    free(j.part);
    if (status != CLOOB_OK) word_counts_release(out);
    else if (out->n) qsort_r(out->item, (size_t)out->n, sizeof *out->item, by_bytes, out->text.data);
    return status;
}

/* ---- learning ------------------------------------------------------------------------------------ */

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *word; /* words in which the pair occurred; it may have been merged in some of them since */
    int32_t words, word_cap;
} pair;

typedef struct candidate {
    int64_t count;
    int32_t left, right, pair;
} candidate;

typedef struct learner {
    cloob_ctx *ctx;
    tokenizer *t;
    int32_t merges;
    const word_count *word;
    const char *text; /* text of the words */
    int64_t words;
    int32_t *symbol; /* symbols of all words */
    int64_t *start;  /* (words + 1) */
    int32_t *length; /* (words): current number of symbols */
    pair *pair;
    int32_t pairs;
    int64_t pair_cap;
    hash_map index; /* pair of ids to the number of the pair */
    candidate *heap;
    int64_t heap_n, heap_cap;
    bool failed; /* out of memory */
} learner;

/* ---- the heap: largest count first, then smallest ids ---------------------------------------------- */

static bool before(const candidate *a, const candidate *b)
{
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void heap_push(learner *l, int32_t p)
{
    if (!heap_grow(&l->heap, l->heap_n, &l->heap_cap, sizeof *l->heap)) {
        l->failed = true;
        return;
    }
    candidate c = { l->pair[p].count, l->pair[p].left, l->pair[p].right, p };
    int64_t i = l->heap_n++;
    for (; i > 0 && before(&c, &l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = c;
}

static candidate heap_pop(learner *l)
{
    candidate top = l->heap[0], moved = l->heap[--l->heap_n];
    int64_t i = 0, child;
    for (; (child = 2 * i + 1) < l->heap_n; i = child) {
        if (child + 1 < l->heap_n && before(&l->heap[child + 1], &l->heap[child])) child++;
        if (!before(&l->heap[child], &moved)) break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = moved;
    return top;
}

/* ---- pairs ----------------------------------------------------------------------------------------- */

/* The number of a pair, which is added if it is new; -1: out of memory. */
static int32_t pair_number(learner *l, int32_t left, int32_t right)
{
    int64_t *at = hash_map_put(&l->index, hash_pair(left, right));
    if (!at || !heap_grow(&l->pair, l->pairs, &l->pair_cap, sizeof *l->pair)) return -1;
    if (*at >= 0) return (int32_t)*at;
    *at = l->pairs;
    l->pair[l->pairs] = (pair){ .left = left, .right = right };
    return l->pairs++;
}

static bool pair_seen_in(pair *p, int32_t where)
{
    if (p->words && p->word[p->words - 1] == where) return true; /* the pair occurs twice in the word */
    if (p->words == p->word_cap) {
        int32_t cap = p->word_cap + p->word_cap / 2 + 4;
        int32_t *list = realloc(p->word, (size_t)cap * sizeof *list);
        if (!list) return false;
        p->word = list;
        p->word_cap = cap;
    }
    p->word[p->words++] = where;
    return true;
}

/* Adds `by` to the count of a pair in one word. */
static void pair_count(learner *l, int32_t left, int32_t right, int32_t where, int64_t by)
{
    int32_t p = pair_number(l, left, right);
    if (p < 0) {
        l->failed = true;
        return;
    }
    l->pair[p].count += by;
    if (by > 0 && !pair_seen_in(&l->pair[p], where)) l->failed = true;
}

/* ---- merging --------------------------------------------------------------------------------------- */

/* Merges the pair in one word, and updates the counts of the pairs next to it. */
static void merge_in_word(learner *l, int32_t w, const candidate *best, int32_t id)
{
    int32_t *s = l->symbol + l->start[w], n = l->length[w], out = 0;
    int64_t count = l->word[w].count;
    for (int32_t i = 0; i < n; i++) {
        if (i + 1 >= n || s[i] != best->left || s[i + 1] != best->right) {
            s[out++] = s[i];
            continue;
        }
        pair_count(l, best->left, best->right, w, -count);
        if (out > 0) pair_count(l, s[out - 1], best->left, w, -count), pair_count(l, s[out - 1], id, w, count);
        if (i + 2 < n) pair_count(l, best->right, s[i + 2], w, -count), pair_count(l, id, s[i + 2], w, count);
        s[out++] = id;
        i++;
    }
    l->length[w] = out;
}

/* Merges a pair in all words. Only the counts of new pairs, which contain the new token, can increase; these are added
 * to the heap. */
static void merge_everywhere(learner *l, const candidate *best, int32_t id)
{
    int32_t first = l->pairs, n = l->pair[best->pair].words, *list = l->pair[best->pair].word;
    l->pair[best->pair].word = NULL; /* take the list, because counting may reallocate the pairs */
    l->pair[best->pair].words = l->pair[best->pair].word_cap = 0;
    for (int32_t i = 0; i < n && !l->failed; i++) merge_in_word(l, list[i], best, id);
    free(list);
    for (int32_t p = first; p < l->pairs; p++)
        if (l->pair[p].count > 0) heap_push(l, p);
}

/* Finds the most frequent pair, skipping outdated heap entries. False if no pair occurs twice. */
static bool best_pair(learner *l, candidate *best)
{
    while (l->heap_n) {
        *best = heap_pop(l);
        int64_t now = l->pair[best->pair].count;
        if (now == best->count) return now >= 2;
        if (now >= 2) heap_push(l, best->pair);
    }
    return false;
}

static cloob_status learn_merges(learner *l, int32_t merges)
{
    candidate best;
    while (l->merges < merges && best_pair(l, &best)) {
        int32_t id;
        CLOOB_TRY(merges_add(l->ctx, l->t, best.left, best.right, &id));
        merge_everywhere(l, &best, id);
        if (l->failed) break;
        if (++l->merges % 64 == 0) ctx_progress(l->ctx, "vocabulary", l->merges, merges, "merges");
    }
    ctx_progress(l->ctx, "vocabulary", merges, merges, "merges"); /* complete, even if fewer merges were possible */
    return l->failed ? ctx_no_memory(l->ctx, (size_t)l->pairs * sizeof(pair), "learning merges") : CLOOB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------------- */

static cloob_status spread_symbols(learner *l)
{
    int64_t total = 0;
    for (int64_t w = 0; w < l->words; w++) total += l->word[w].bytes;
    int32_t byte_id[BYTES];
    for (int b = 0; b < BYTES; b++) {
        char text[2];
        byte_id[b] = pieces_find(&l->t->p, text, (size_t)byte_spell((unsigned char)b, text));
    }
    l->symbol = malloc(((size_t)total + 1) * sizeof *l->symbol);
    l->start = malloc(((size_t)l->words + 1) * sizeof *l->start);
    l->length = malloc(((size_t)l->words + 1) * sizeof *l->length);
    if (!l->symbol || !l->start || !l->length) return ctx_no_memory(l->ctx, (size_t)total * 4, "the words");
    total = 0;
    for (int64_t w = 0; w < l->words; w++) {
        l->start[w] = total;
        l->length[w] = (int32_t)l->word[w].bytes;
        for (uint32_t i = 0; i < l->word[w].bytes; i++)
            l->symbol[total++] = byte_id[(unsigned char)l->text[l->word[w].at + i]];
        l->symbol[total - 1] += BYTES;
    }
    return CLOOB_OK;
}

static void count_pairs(learner *l)
{
    for (int64_t w = 0; w < l->words && !l->failed; w++) {
        const int32_t *s = l->symbol + l->start[w];
        for (int32_t i = 0; i + 1 < l->length[w]; i++) pair_count(l, s[i], s[i + 1], (int32_t)w, l->word[w].count);
    }
    for (int32_t p = 0; p < l->pairs && !l->failed; p++) heap_push(l, p);
}

static void learner_release(learner *l)
{
    for (int32_t p = 0; p < l->pairs; p++) free(l->pair[p].word);
    free(l->pair);
    free(l->symbol);
    free(l->start);
    free(l->length);
    hash_map_release(&l->index);
    free(l->heap);
}

static cloob_status learn(cloob_ctx *ctx, const word_counts *words, int32_t size, tokenizer *t)
{
    learner l = { .ctx = ctx, .t = t, .word = words->item, .text = words->text.data, .words = words->n };
    cloob_status status = spread_symbols(&l);
    if (status == CLOOB_OK) {
        count_pairs(&l);
        status = learn_merges(&l, size - FIRST_MERGE - 2);
    }
    learner_release(&l);
    CLOOB_TRY(status);
    CLOOB_TRY(merges_end(ctx, t));
    if (cloob_tokenizer_vocab_size(t) < size - size / 4)
        ctx_log(ctx, CLOOB_LOG_WARN,
                "the captions support a vocabulary of %d ids, not %d: no other pair of symbols occurs twice; use more "
                "captions for a larger vocabulary",
                cloob_tokenizer_vocab_size(t), size);
    return CLOOB_OK;
}

static cloob_status learn_captions(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
                                   tokenizer **out)
{
    word_counts words;
    *out = NULL;
    if (size < FIRST_MERGE + 2 || size > VOCAB_LIMIT)
        return ctx_fail(
            ctx, CLOOB_ERR_ARGUMENT,
            "a vocabulary of %d ids is not possible; it needs 512 ids for bytes and 2 special ids, so use %d to %d",
            size, FIRST_MERGE + 2, VOCAB_LIMIT);
    CLOOB_TRY(words_count(ctx, captions, n, &words));
    cloob_status status =
        words.n ? CLOOB_OK : ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no words to learn a vocabulary from", name);
    if (words.n > INT32_MAX) status = ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED, "%s: more than 2^31 different words", name);
    if (status == CLOOB_OK) status = merges_begin(ctx, size - FIRST_MERGE - 2, out);
    if (status == CLOOB_OK) status = tokenizer_or_close(learn(ctx, &words, size, *out), out);
    word_counts_release(&words);
    return status;
}

/* ---- files of captions: one caption per line, or the column `title` of a tab-separated table -------- */

typedef struct captions {
    caption *item;
    int64_t n, cap;
} captions;

static cloob_status add(cloob_ctx *ctx, captions *c, const char *at, size_t bytes)
{
    if (!heap_grow(&c->item, c->n, &c->cap, sizeof *c->item))
        return ctx_no_memory(ctx, (size_t)c->n * sizeof *c->item, "the list of captions");
    c->item[c->n++] = (caption){ at, bytes };
    return CLOOB_OK;
}

/* Reads one field at *at, up to a tab or the end of the line; quotes protect both, as in CSV. Outer quotes are removed;
 * doubled quotes in the field stay doubled, which does not change its words. Moves *at behind the field; *last: it was
 * the last field of its row. */
static caption next_field(const char **at, const char *end, bool *last)
{
    const char *p = *at, *begin = p, *stop;
    if (p < end && *p == '"') {
        for (begin = ++p; p < end && (*p != '"' || (p + 1 < end && p[1] == '"')); p++) p += *p == '"';
        stop = p < end ? p : end;
        while (p < end && *p != '\t' && *p != '\n') p++;
    } else {
        while (p < end && *p != '\t' && *p != '\n') p++;
        stop = p;
    }
    *last = p >= end || *p == '\n';
    *at = p < end ? p + 1 : end;
    if (stop > begin && stop[-1] == '\r') stop--;
    return (caption){ begin, (size_t)(stop - begin) };
}

/* The index of the column `title` in the first row; -1: the file is not a table. */
static int title_column(const char *text, const char *end)
{
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    const char *at = text, *stop = newline ? newline : end;
    bool last = text == end;
    if (!memchr(text, '\t', (size_t)(stop - text))) return -1;
    for (int column = 0; !last; column++) {
        caption field = next_field(&at, stop, &last);
        if (field.bytes == 5 && memcmp(field.at, "title", 5) == 0) return column;
    }
    return -1;
}

static cloob_status read_table(cloob_ctx *ctx, const char *text, const char *end, int column, captions *out)
{
    bool last = false;
    while (!last) next_field(&text, end, &last); /* skip the header */
    while (text < end) {
        last = false;
        for (int i = 0; !last; i++) {
            caption field = next_field(&text, end, &last);
            if (i == column) CLOOB_TRY(add(ctx, out, field.at, field.bytes));
        }
    }
    return CLOOB_OK;
}

static cloob_status read_lines(cloob_ctx *ctx, const char *text, const char *end, captions *out)
{
    const char *line;
    size_t n;
    while (text_line(&text, end, &line, &n)) CLOOB_TRY(add(ctx, out, line, n));
    return CLOOB_OK;
}

static cloob_status learn_text(cloob_ctx *ctx, const char *text, size_t bytes, int32_t size, const char *name,
                               tokenizer **out)
{
    captions c = { 0 };
    const char *end = text + bytes;
    int column = bytes ? title_column(text, end) : -1;
    cloob_status status = column >= 0 ? read_table(ctx, text, end, column, &c) : read_lines(ctx, text, end, &c);
    if (status == CLOOB_OK) status = learn_captions(ctx, c.item, c.n, size, name, out);
    free(c.item);
    return status;
}

cloob_status cloob_tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, tokenizer **out)
{
    API_NEEDS(ctx, path && out);
    file_map map;
    sbuf plain = { 0 };
    *out = NULL;
    CLOOB_TRY(file_map_open(ctx, path, &map));
    const char *text = (const char *)map.data;
    size_t bytes = map.size;
    cloob_status status = CLOOB_OK;
    if (gzip_is(map.data, map.size)) {
        status = gzip_expand(ctx, map.data, map.size, (size_t)1 << 36, path, &plain);
        text = plain.data ? plain.data : "", bytes = plain.len;
    }
    if (status == CLOOB_OK) status = learn_text(ctx, text, bytes, size, path, out);
    sbuf_release(&plain);
    file_map_close(&map);
    return status;
}

cloob_status tokenizer_train_texts(cloob_ctx *ctx, const char *const *text, int64_t n, int32_t size, tokenizer **out)
{
    captions c = { 0 };
    cloob_status status = CLOOB_OK;
    *out = NULL;
    for (int64_t i = 0; i < n && status == CLOOB_OK; i++) status = add(ctx, &c, text[i], strlen(text[i]));
    if (status == CLOOB_OK) status = learn_captions(ctx, c.item, c.n, size, "the captions", out);
    free(c.item);
    return status;
}
