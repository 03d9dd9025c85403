/* A matrix at rest: one that waits through several passes and is kept in 24 bits per element meanwhile. Each
 * row is fixed point with a step of its own, its largest element / (2^23 - 1), so that no element is off by
 * more than half a step: 6e-8 of the row's largest, which is f32's own rounding there. Private to src/loss.
 */
#ifndef LOSS_CPU_FIXED24_H
#define LOSS_CPU_FIXED24_H

#include <stdint.h>

typedef struct fixed24 {
    int64_t n, d;
    int16_t *high; /* (n, d): bits 8 to 23, signed */
    uint8_t *low;  /* (n, d): bits 0 to 7 */
    double *step;  /* (n) */
} fixed24;

/* m (n, d) may begin where high does: rows are read before they are written over. A row that is not finite
 * wakes as NaN. */
void fixed24_pack(const fixed24 *r, const float *m);
/* m may begin where high does. */
void fixed24_unpack(const fixed24 *r, float *m);

#endif
