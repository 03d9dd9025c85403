/* The modern Hopfield network. Patterns are stored as the rows of a matrix. An update replaces a state by the mean of
 * the patterns, weighted by the softmax of their similarity to the state:
 *
 *     xi' = sum_i softmax_i(beta xi.u_i) u_i
 *
 * Every update lowers the energy  -1/beta ln sum_i exp(beta xi.u_i) + xi.xi/2 + ln(M)/beta + max|u|^2/2.  All calls
 * stream over the patterns. Rows are f32 in host memory; sums are accumulated in double where precision requires it. */
#ifndef CLOOB_HOPFIELD_H
#define CLOOB_HOPFIELD_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cloob_hopfield {
    const float *stored; /* (count, dim); owned by the caller */
    int64_t count, dim;
    double beta; /* 0 or above; 0 retrieves the mean of all patterns */
} cloob_hopfield;

typedef struct cloob_hopfield_options {
    size_t size;      /* of this struct; set by cloob_hopfield_options_init */
    int updates;      /* largest number of updates; default: 1, as in the paper */
    double tolerance; /* stop when a state moves by less than this; 0: run all updates */
    bool unit;        /* normalise the result to unit length */
} cloob_hopfield_options;

/* Sets the defaults: one update, not normalised. */
CLOOB_OPTIONS_INIT(cloob_hopfield_options)

/* Updates states (n, dim) and writes them to out (n, dim), which may be `states`. updates (n) receives the number of
 * updates of each state; it may be NULL. Fails if a state is not finite or, with `unit`, if a result has length 0; the
 * error names the row. */
CLOOB_API cloob_status cloob_hopfield_retrieve(cloob_ctx *ctx, const cloob_hopfield *h, const cloob_hopfield_options *o,
                                               const float *states, int64_t n, float *out, int *updates);

/* Computes the energy (n) of states (n, dim). beta must be above 0. */
CLOOB_API cloob_status cloob_hopfield_energy(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n,
                                             double *energy);

#ifdef __cplusplus
}
#endif
#endif
