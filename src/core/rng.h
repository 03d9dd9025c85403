/* Random numbers by counter: number i of a stream is a pure function of (key, i).
 *
 * There is no state to save, share or advance: any thread, rank or device that knows the key and the
 * index draws the same number. A key is made from a seed and a name, so that streams do not overlap:
 *
 *     uint64_t key = rng_key(seed, "init/visual.conv1.weight");
 *     w[i] = 0.02f * rng_normal(key, i);
 */
#ifndef CORE_RNG_H
#define CORE_RNG_H

#include <stdint.h>

/* FNV-1a of a zero-terminated name. */
uint64_t rng_hash(const char *name);

uint64_t rng_key(uint64_t seed, const char *name);

/* A key below a key: epoch within run, sample within epoch. */
uint64_t rng_subkey(uint64_t key, uint64_t index);

uint64_t rng_u64(uint64_t key, uint64_t i);
double rng_uniform(uint64_t key, uint64_t i);                 /* [0, 1), 53 bits */
double rng_normal(uint64_t key, uint64_t i);                  /* mean 0, variance 1 */
uint64_t rng_below(uint64_t key, uint64_t i, uint64_t bound); /* [0, bound), bound > 0 */

/* Element `position` of a pseudo-random permutation of [0, n), without storing it: a bijection, so every
 * index appears exactly once as position runs over [0, n). */
uint64_t rng_permute(uint64_t key, uint64_t position, uint64_t n);

/* The mixing step (splitmix64); public because test values are defined by it. */
uint64_t rng_splitmix64(uint64_t x);

#endif
