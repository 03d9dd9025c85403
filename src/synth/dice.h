/* Random choices in a row: number n of a key, then n + 1, ... A pure function of the key, like rng.h, for
 * code that makes many small choices in a fixed order. */
#ifndef SYNTH_DICE_H
#define SYNTH_DICE_H

#include "core/rng.h"

typedef struct dice {
    uint64_t key, next;
} dice;

dice dice_from(uint64_t key, const char *what); /* independent of other `what` of the same key */
double dice_range(dice *d, double low, double high);
int dice_below(dice *d, int bound);
int dice_chance(dice *d, double p); /* 1 with probability p */

#endif
