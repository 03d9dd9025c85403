/* A counter over rng.h. */
#include "synth/synth.h"

rnd rnd_from(uint64_t key, const char *what) { return (rnd){ rng_subkey(key, rng_hash(what)), 0 }; }

double rnd_range(rnd *d, double low, double high) { return low + (high - low) * rng_uniform(d->key, d->next++); }

int rnd_below(rnd *d, int bound) { return (int)rng_below(d->key, d->next++, (uint64_t)bound); }

int rnd_chance(rnd *d, double p) { return rng_uniform(d->key, d->next++) < p; }
