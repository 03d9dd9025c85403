/* Learns merges: repeatedly, the most frequent pair of neighbours becomes a token.
 *
 * Words are counted first, so a caption is read once and each distinct word stored once. Every pair has its count and
 * the words it may be in; a merge changes only those words and the counts of the neighbours. A heap, which may contain
 * stale entries, gives the best pair. Ties go to the smaller ids, so the result is the same everywhere. */
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "data/text/tokenizer_impl.h"

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
    bool failed; /* memory is out */
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

/* The pair's number, made if it is new; -1 when memory is out. */
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
    while (l->t->merges < merges && best_pair(l, &best)) {
        int32_t id;
        CLOOB_TRY(token_merge(l->ctx, l->t, best.left, best.right, &id));
        merge_everywhere(l, &best, id);
        if (l->failed) break;
        if (l->t->merges % 64 == 0) ctx_progress(l->ctx, "vocabulary", l->t->merges, merges, "merges");
    }
    ctx_progress(l->ctx, "vocabulary", merges, merges, "merges"); /* fewer where nothing repeats: it has ended */
    return l->failed ? ctx_no_memory(l->ctx, (size_t)l->pairs * sizeof(pair), "learning merges") : CLOOB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------------- */

static cloob_status spread_symbols(learner *l)
{
    int64_t total = 0;
    for (int64_t w = 0; w < l->words; w++) total += l->word[w].bytes;
    l->symbol = malloc(((size_t)total + 1) * sizeof *l->symbol);
    l->start = malloc(((size_t)l->words + 1) * sizeof *l->start);
    l->length = malloc(((size_t)l->words + 1) * sizeof *l->length);
    if (!l->symbol || !l->start || !l->length) return ctx_no_memory(l->ctx, (size_t)total * 4, "the words");
    total = 0;
    for (int64_t w = 0; w < l->words; w++) {
        l->start[w] = total;
        l->length[w] = (int32_t)l->word[w].bytes;
        for (uint32_t i = 0; i < l->word[w].bytes; i++)
            l->symbol[total++] = l->t->byte_id[(unsigned char)l->word[w].at[i]];
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
    if (tokenizer_vocab_size(t) < size - size / 4)
        ctx_log(
            ctx, CLOOB_LOG_WARN,
            "the captions support a vocabulary of %d ids, not %d: no other pair of symbols occurs twice in them; more "
            "captions allow a larger one",
            tokenizer_vocab_size(t), size);
    return token_finish(ctx, t);
}

cloob_status tokenizer_learn(cloob_ctx *ctx, const caption *captions, int64_t n, int32_t size, const char *name,
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
    if (status == CLOOB_OK) status = token_create(ctx, out);
    if (status == CLOOB_OK) status = learn(ctx, &words, size, *out);
    if (status != CLOOB_OK) {
        tokenizer_close(*out);
        *out = NULL;
    }
    word_counts_release(&words);
    return status;
}
