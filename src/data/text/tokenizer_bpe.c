/* Byte-pair merging: the pair learned earliest is merged first, everywhere, from the left.
 *
 * Parts of a merge are always older than the merge, so taking one pair at a time by (rank, position) gives
 * the same as sweeping once per rank. Short words search for the best pair anew each time; long ones keep a
 * heap. */
#include <stdlib.h>
#include <string.h>

#include "data/text/tokenizer_impl.h"

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
