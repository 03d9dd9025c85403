/* splitmix64 as a counter-based generator, and a Feistel permutation on top of it. */
#include "core/rng.h"

#include <math.h>
#include <string.h>

#include "core/hash.h"

uint64_t rng_splitmix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t rng_hash(const char *name) { return fnv_add(FNV_START, name, strlen(name)); }

uint64_t rng_key(uint64_t seed, const char *name) { return rng_splitmix64(rng_hash(name) ^ rng_splitmix64(seed)); }

uint64_t rng_subkey(uint64_t key, uint64_t index) { return rng_splitmix64(key ^ rng_splitmix64(~index)); }

uint64_t rng_u64(uint64_t key, uint64_t i) { return rng_splitmix64(key + i * 0xD1342543DE82EF95u); }

double rng_uniform(uint64_t key, uint64_t i) { return (double)(rng_u64(key, i) >> 11) * 0x1p-53; }

double rng_normal(uint64_t key, uint64_t i)
{
    /* Box-Muller; 1 - u lies in (0, 1], so the logarithm is finite. */
    double u = 1.0 - rng_uniform(key, 2 * i), v = rng_uniform(key, 2 * i + 1);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t rng_below(uint64_t key, uint64_t i, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_u64(key, i) * bound) >> 64);
}

uint64_t rng_permute(uint64_t key, uint64_t position, uint64_t n)
{
    /* Four Feistel rounds on the smallest even number of bits that holds n; values outside [0, n) are permuted again
     * (cycle walking), so the result is a bijection of [0, n). */
    int half = 1;
    while (half < 32 && ((uint64_t)1 << (2 * half)) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = position;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (rng_u64(key ^ (round << 60), right) & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= n);
    return x;
}
