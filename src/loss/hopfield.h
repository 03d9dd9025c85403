/* One Hopfield update of many states, its energy, and separations; see include/cloob/hopfield.h. Host, f32.
 */
#ifndef LOSS_HOPFIELD_H
#define LOSS_HOPFIELD_H

#include "core/ctx.h"

typedef struct hopfield {
    const float *stored; /* (M, d) */
    int64_t M, d;
    double beta;
} hopfield;

/* out (n, d) = softmax(beta states stored^T) stored; lse (n), when not NULL, = ln sum_j exp(beta s_ij). out
 * must not be states. Allocates a tile. */
cloob_status hopfield_update(cloob_ctx *ctx, const hopfield *h, const float *states, int64_t n, float *out,
                             double *lse);

/* top (n) = max over j of a_i.b_j, leaving out j = i when `same`. */
cloob_status hopfield_nearest(cloob_ctx *ctx, const float *a, int64_t n, const float *b, int64_t m, int64_t d,
                              bool same, float *top);

#endif
