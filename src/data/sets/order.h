/* Shuffles that are pure functions of (key, position): nothing is stored, any place can be asked for. */
#ifndef DATA_SETS_ORDER_H
#define DATA_SETS_ORDER_H

#include <stdint.h>

/* The sample at a position of a shuffled epoch of n samples: a bijection of [0, n).
 *
 * window 0: any sample anywhere. Otherwise about `window` samples are mixed at a time, taken from 16
 * stretches of neighbours at places that are themselves shuffled: reads stay near each other, which slow
 * disks and network file systems reward. */
int64_t order_shuffle(uint64_t key, int64_t position, int64_t n, int64_t window);

#endif
