/* A matrix at rest: one that waits through several passes and is kept in 24 bits per element meanwhile. Each
 * row is fixed point with a step of its own, its largest element / (2^23 - 1), so that no element is off by
 * more than half a step: 6e-8 of the row's largest, which is f32's own rounding there. Private to src/loss.
 */
#ifndef LOSS_CPU_REST_H
#define LOSS_CPU_REST_H

#include <stdint.h>

typedef struct rest {
    int64_t n, d;
    int16_t *high; /* (n, d): bits 8 to 23, signed */
    uint8_t *low;  /* (n, d): bits 0 to 7 */
    double *step;  /* (n) */
} rest;

/* m (n, d) may begin where high does: rows are read before they are written over. A row that is not finite
 * wakes as NaN. */
void rest_lay(const rest *r, const float *m);
/* m may begin where high does. */
void rest_wake(const rest *r, float *m);

#endif
