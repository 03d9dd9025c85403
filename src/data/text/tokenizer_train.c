/* Learns merges: repeatedly, the most frequent pair of neighbours becomes a token.
 *
 * Words are counted first, so a caption is read once and each distinct word stored once. Every pair has its count and
 * the words it may be in; a merge changes only those words and the counts of the neighbours. A heap, which may contain
 * stale entries, gives the best pair. Ties go to the smaller ids, so the result is the same everywhere. */
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/pool.h"
#include "core/text.h"
#include "data/text/tokenizer_impl.h"
#include "io/gzip.h"

/* ---- counting words: one table per thread, merged and sorted at the end ---------------------------- */

enum { COUNT_WORD_LIMIT = 256 }; /* longer words are skipped: they are rare and costly */

typedef struct caption {
    const char *at;
    size_t bytes;
} caption;

typedef struct word_count {
    const char *at;
    uint32_t bytes;
    int64_t count;
} word_count;

typedef struct word_counts {
    word_count *item; /* sorted by their bytes */
    int64_t n;
    char *text; /* what item points into */
} word_counts;

static void word_counts_release(word_counts *w)
{
    free(w->item);
    free(w->text);
    *w = (word_counts){ 0 };
}

typedef struct slot {
    uint64_t hash;
    size_t at;      /* in text */
    uint32_t bytes; /* 0: empty */
    int64_t count;
} slot;

typedef struct table {
    slot *slot;
    size_t mask, used;
    sbuf text;
} table;

static uint64_t hash_bytes(const char *text, size_t bytes)
{
    uint64_t h = fnv_add(FNV_START, text, bytes);
    return h ^ h >> 32;
}

static bool table_grow(table *h)
{
    size_t size = h->slot ? 2 * (h->mask + 1) : 4096;
    slot *bigger = calloc(size, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; h->slot && i <= h->mask; i++) {
        if (!h->slot[i].bytes) continue;
        size_t s = h->slot[i].hash & (size - 1);
        while (bigger[s].bytes) s = (s + 1) & (size - 1);
        bigger[s] = h->slot[i];
    }
    free(h->slot);
    h->slot = bigger;
    h->mask = size - 1;
    return true;
}

static bool table_add(table *h, const char *text, size_t bytes, int64_t count)
{
    if ((!h->slot || 2 * h->used > h->mask) && !table_grow(h)) return false;
    uint64_t hash = hash_bytes(text, bytes);
    size_t s = hash & h->mask;
    for (; h->slot[s].bytes; s = (s + 1) & h->mask) {
        slot *x = &h->slot[s];
        if (x->hash != hash || x->bytes != bytes || memcmp(h->text.data + x->at, text, bytes) != 0) continue;
        x->count += count;
        return true;
    }
    h->slot[s] = (slot){ hash, h->text.len, (uint32_t)bytes, count };
    h->used++;
    sbuf_add(&h->text, text, bytes);
    return !h->text.failed;
}

static bool table_join(table *into, const table *from)
{
    for (size_t i = 0; from->slot && i <= from->mask; i++) {
        const slot *x = &from->slot[i];
        if (x->bytes && !table_add(into, from->text.data + x->at, x->bytes, x->count)) return false;
    }
    return true;
}

static void table_release(table *h)
{
    free(h->slot);
    sbuf_release(&h->text);
}

typedef struct count_job {
    const cloob_ctx *ctx;
    const caption *captions;
    table *tables;
    bool *failed;
} count_job;

static bool count_caption(cloob_ctx *ctx, table *h, const caption *c, sbuf *clean)
{
    clip_word w;
    clean->len = 0;
    if (text_clean_words(ctx, CLEAN_FULL, c->at, c->bytes, clean) != CLOOB_OK) return false;
    for (size_t pos = 0; clean->len && words_next(false, clean->data, clean->len, &pos, &w);)
        if (w.kind == WORD_PLAIN && w.bytes <= COUNT_WORD_LIMIT && !table_add(h, w.at, w.bytes, 1)) return false;
    return true;
}

static void count_range(void *arg, int64_t begin, int64_t end, int thread)
{
    count_job *j = arg;
    sbuf clean = { 0 };
    cloob_ctx *ctx = ctx_worker(j->ctx);
    bool ok = ctx != NULL;
    for (int64_t i = begin; i < end && ok; i++) ok = count_caption(ctx, &j->tables[thread], &j->captions[i], &clean);
    j->failed[thread] = !ok;
    sbuf_release(&clean);
    cloob_ctx_destroy(ctx);
}

static int by_bytes(const void *a, const void *b)
{
    const word_count *x = a, *y = b;
    int c = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);
    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Takes the table's text over. */
static bool list_words(table *h, word_counts *out)
{
    *out = (word_counts){ .item = malloc((h->used + 1) * sizeof *out->item), .text = h->text.data };
    h->text = (sbuf){ 0 };
    if (!out->item) return false;
    for (size_t i = 0; h->slot && i <= h->mask; i++)
        if (h->slot[i].bytes)
            out->item[out->n++] = (word_count){ out->text + h->slot[i].at, h->slot[i].bytes, h->slot[i].count };
    qsort(out->item, (size_t)out->n, sizeof *out->item, by_bytes);
    return true;
}

/* Cleans the captions in full and counts their words, on all threads; the result does not depend on how many. */
static cloob_status words_count(cloob_ctx *ctx, const caption *captions, int64_t n, word_counts *out)
{
    enum { GRAIN = 1024 };
    int ranges = pool_ranges(ctx, n, GRAIN);
    count_job j = { ctx, captions, calloc((size_t)ranges, sizeof(table)), calloc((size_t)ranges, sizeof(bool)) };
    bool ok = j.tables && j.failed;
    *out = (word_counts){ 0 };
    if (ok) pool_for(ctx, n, GRAIN, count_range, &j);
    for (int i = 0; ok && i < ranges; i++) ok = !j.failed[i] && (i == 0 || table_join(&j.tables[0], &j.tables[i]));
    if (ok) ok = list_words(&j.tables[0], out);
    for (int i = 0; j.tables && i < ranges; i++) table_release(&j.tables[i]);
    free(j.tables);
    free(j.failed);
    if (ok) return CLOOB_OK;
    word_counts_release(out);
    return ctx_no_memory(ctx, (size_t)n * 32, "counting words");
}

/* ---- learning ------------------------------------------------------------------------------------ */

typedef struct pair {
    int32_t left, right;
    int64_t count;
    int32_t *word; /* where it was seen; may hold words it has left since */
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
    int64_t words;
    int32_t *symbol; /* all words' symbols */
    int64_t *start;  /* (words + 1) */
    int32_t *length; /* (words): symbols left */
    pair *pair;
    int32_t pairs;
    int64_t pair_cap;
    int32_t *index; /* hash of (left, right) to pair; -1: empty */
    uint32_t index_mask;
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

static uint32_t index_of(const learner *l, int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32) & l->index_mask;
}

static bool index_grow(learner *l)
{
    uint32_t size = l->index ? 2 * (l->index_mask + 1) : 1 << 16;
    int32_t *index = malloc(size * sizeof *index);
    if (!index) return false;
    memset(index, 0xFF, size * sizeof *index);
    free(l->index);
    l->index = index;
    l->index_mask = size - 1;
    for (int32_t p = 0; p < l->pairs; p++) {
        uint32_t s = index_of(l, l->pair[p].left, l->pair[p].right);
        while (index[s] >= 0) s = (s + 1) & l->index_mask;
        index[s] = p;
    }
    return true;
}

/* The pair's number, made if it is new; -1 when out of memory. */
static int32_t pair_number(learner *l, int32_t left, int32_t right)
{
    if ((!l->index || 2u * (uint32_t)l->pairs > l->index_mask) && !index_grow(l)) return -1;
    uint32_t s = index_of(l, left, right);
    for (; l->index[s] >= 0; s = (s + 1) & l->index_mask)
        if (l->pair[l->index[s]].left == left && l->pair[l->index[s]].right == right) return l->index[s];
    if (!heap_grow(&l->pair, l->pairs, &l->pair_cap, sizeof *l->pair)) return -1;
    l->pair[l->pairs] = (pair){ .left = left, .right = right };
    l->index[s] = l->pairs;
    return l->pairs++;
}

static bool pair_seen_in(pair *p, int32_t where)
{
    if (p->words && p->word[p->words - 1] == where) return true; /* twice in one word */
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

/* The pair occurs `by` more times, in one word. */
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

/* Merges the pair in one word and corrects the counts on both sides. */
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

/* Only pairs with the new token can grow, and they are new: numbers from `first` on, which go to the heap. */
static void merge_everywhere(learner *l, const candidate *best, int32_t id)
{
    int32_t first = l->pairs, n = l->pair[best->pair].words, *list = l->pair[best->pair].word;
    l->pair[best->pair].word = NULL; /* takes over the list: counting may move the pairs */
    l->pair[best->pair].words = l->pair[best->pair].word_cap = 0;
    for (int32_t i = 0; i < n && !l->failed; i++) merge_in_word(l, list[i], best, id);
    free(list);
    for (int32_t p = first; p < l->pairs; p++)
        if (l->pair[p].count > 0) heap_push(l, p);
}

/* The most frequent pair, past entries whose count has changed since. False when none occurs twice. */
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
    ctx_progress(l->ctx, "vocabulary", merges, merges, "merges"); /* fewer where nothing repeats: it has ended */
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
        for (uint32_t i = 0; i < l->word[w].bytes; i++) l->symbol[total++] = byte_id[(unsigned char)l->word[w].at[i]];
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
    free(l->index);
    free(l->heap);
}

static cloob_status learn(cloob_ctx *ctx, const word_counts *words, int32_t size, tokenizer *t)
{
    learner l = { .ctx = ctx, .t = t, .word = words->item, .words = words->n };
    cloob_status status = spread_symbols(&l);
    if (status == CLOOB_OK) {
        count_pairs(&l);
        status = learn_merges(&l, size - FIRST_MERGE - 2);
    }
    learner_release(&l);
    CLOOB_TRY(status);
    CLOOB_TRY(merges_end(ctx, t));
    if (tokenizer_vocab_size(t) < size - size / 4)
        ctx_log(
            ctx, CLOOB_LOG_WARN,
            "the captions support a vocabulary of %d ids, not %d: no other pair of symbols occurs twice in them; more "
            "captions allow a larger one",
            tokenizer_vocab_size(t), size);
    return CLOOB_OK;
}

static cloob_status learn_captions(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
                                   tokenizer **out)
{
    word_counts words;
    *out = NULL;
    if (size < FIRST_MERGE + 2 || size > VOCAB_LIMIT)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "a vocabulary of %d ids: 512 bytes and 2 special ids are always there, so %d to %d can be had",
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

/* ---- files of captions: a caption per line, or the `title` column of a table with tabs --------- */

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

/* One field from *at on, up to a tab or the line's end; quotes hide both, as spreadsheets write them. The field is
 * without its outer quotes (a doubled quote inside stays doubled, which does not change words). Moves *at after it;
 * *last: the row ends here. */
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

/* The column `title` of the first row; -1: the file is not a table. */
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
    while (!last) next_field(&text, end, &last); /* the header */
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

cloob_status tokenizer_train(cloob_ctx *ctx, const char *path, int32_t size, tokenizer **out)
{
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
