/* The modern Hopfield network: patterns are stored as the rows of a matrix, and a state is updated to the
 * mean of the patterns weighted by how much they resemble it,
 *
 *     xi' = sum_i softmax_i(beta xi.u_i) u_i
 *
 * which lowers the energy  -1/beta ln sum_i exp(beta xi.u_i) + xi.xi/2 + ln(M)/beta + max|u|^2/2  at every
 * step. Everything here is streamed over the patterns; host memory, f32 rows, sums that matter in double. */
#ifndef CLOOB_HOPFIELD_H
#define CLOOB_HOPFIELD_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_hopfield {
    const float *stored; /* (count, dim), the caller's */
    int64_t count, dim;
    double beta; /* 0 or above; 0 retrieves the mean of all patterns */
} cloob_hopfield;

typedef struct cloob_hopfield_options {
    size_t size;      /* of this struct; set by cloob_hopfield_options_init */
    int updates;      /* at most this many; 1 as in the paper */
    double tolerance; /* stop a state that moves less than this; 0: never early */
    bool unit;        /* scale what comes out to unit length */
} cloob_hopfield_options;

/* One update, no scaling. */
CLOOB_API void cloob_hopfield_options_init(cloob_hopfield_options *o);

/* out (n, dim) = the states (n, dim) after their updates; out may be states. updates (n) gets how many each
 * took, or is NULL. A state that is not finite, or with `unit` a result of length 0, is refused by row. */
CLOOB_API cloob_status cloob_hopfield_retrieve(cloob_ctx *ctx, const cloob_hopfield *h, const cloob_hopfield_options *o,
                                               const float *states, int64_t n, float *out, int *updates);

/* energy (n) of the states. Needs beta above 0. */
CLOOB_API cloob_status cloob_hopfield_energy(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n,
                                             double *energy);

/* separation (count): of each pattern from the others, u_i.u_i - max_{j != i} u_i.u_j. Needs two patterns. */
CLOOB_API cloob_status cloob_hopfield_separation(cloob_ctx *ctx, const cloob_hopfield *h, double *separation);

#ifdef __cplusplus
}
#endif
#endif
