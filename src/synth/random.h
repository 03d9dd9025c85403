/* Random choices in a row: number n of a key, then n + 1, ... A pure function of the key, like rng.h, for
 * code that makes many small choices in a fixed order. */
#ifndef SYNTH_RANDOM_H
#define SYNTH_RANDOM_H

#include "core/rng.h"

typedef struct rnd {
    uint64_t key, next;
} rnd;

rnd rnd_from(uint64_t key, const char *what); /* independent of other `what` of the same key */
double rnd_range(rnd *d, double low, double high);
int rnd_below(rnd *d, int bound);
int rnd_chance(rnd *d, double p); /* 1 with probability p */

#endif
