/* A counter over rng.h. */
#include "synth/dice.h"

dice dice_from(uint64_t key, const char *what) { return (dice){ rng_subkey(key, rng_hash(what)), 0 }; }

double dice_range(dice *d, double low, double high) { return low + (high - low) * rng_uniform(d->key, d->next++); }

int dice_below(dice *d, int bound) { return (int)rng_below(d->key, d->next++, (uint64_t)bound); }

int dice_chance(dice *d, double p) { return rng_uniform(d->key, d->next++) < p; }
