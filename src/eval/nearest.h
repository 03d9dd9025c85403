/* The k best of a stream of scores, in a heap whose first element is the worst.
 *
 *     near_row heap[10];
 *     int64_t n = 0;
 *     for each candidate i: best_offer(heap, &n, 10, i, score);
 *     qsort(heap, n, sizeof *heap, best_first);
 *
 * The caller owns the heap of k elements; nothing is allocated and nothing fails. */
#ifndef EVAL_NEAREST_H
#define EVAL_NEAREST_H

#include <stdint.h>

typedef struct near_row {
    int64_t entry;
    float score;
} near_row;

/* Replaces the worst if x is better; of equal scores the lower entry is better. */
void best_take(near_row *heap, int64_t *n, int64_t k, near_row x);

/* k >= 1; *n: elements so far. */
static inline void best_offer(near_row *heap, int64_t *n, int64_t k, int64_t entry, float score)
{
    if (*n < k || score >= heap[0].score) best_take(heap, n, k, (near_row){ entry, score });
}

int best_first(const void *a, const void *b); /* for qsort */

#endif
