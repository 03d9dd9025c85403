/* Permutations by rng_permute, of everything or of stretches. */
#include "data/sets/order.h"

#include "core/rng.h"

enum { STRETCHES = 16 }; /* mixed at a time */

int64_t order_shuffle(uint64_t key, int64_t position, int64_t n, int64_t window)
{
    int64_t stretch = window / STRETCHES, count = stretch ? n / stretch : 0;
    if (count <= STRETCHES) return (int64_t)rng_permute(key, (uint64_t)position, (uint64_t)n);
    int64_t at = position; /* what is left over after the last whole stretch keeps its place */
    if (position < count * stretch) {
        int64_t w = position / (STRETCHES * stretch), left = count - w * STRETCHES;
        int64_t size = (left < STRETCHES ? left : STRETCHES) * stretch;
        uint64_t within = (uint64_t)(position - w * STRETCHES * stretch);
        int64_t mixed = (int64_t)rng_permute(rng_subkey(key, (uint64_t)w), within, (uint64_t)size);
        int64_t which = (int64_t)rng_permute(key, (uint64_t)(w * STRETCHES + mixed / stretch), (uint64_t)count);
        at = which * stretch + mixed % stretch;
    }
    /* Turned by a random amount, so that stretches begin and the rest lies elsewhere every epoch. */
    return (at + (int64_t)rng_below(key, UINT64_MAX, (uint64_t)n)) % n;
}
