/* L-BFGS for smooth functions, with an optional preconditioner.
 *
 * Not liblbfgs, because the initial inverse Hessian of each direction may be a matrix of the problem: H0 = gamma M^-1.
 * For logistic regression that saves most of the iterations; liblbfgs has no preconditioner.
 *
 * Vectors are double; a function computed in lower precision sets its rounding error (`noise`). */
#ifndef EVAL_PROBE_LBFGS_H
#define EVAL_PROBE_LBFGS_H

#include "core/ctx.h"

typedef struct lbfgs_problem {
    int64_t n;
    double noise; /* relative rounding error of f: differences below it are ignored */
    /* Writes f(w) and its gradient g (n). */
    cloob_status (*evaluate)(void *arg, double *f, double *g, const double *w);
    /* out = M^-1 v, M symmetric positive definite; NULL: the identity. */
    cloob_status (*precondition)(void *arg, double *out, const double *v);
    /* Called before every iteration with the current point; may replace M, and sets *forget when M is now the Hessian,
     * which pairs of earlier steps would only make worse. NULL: nothing to do. */
    cloob_status (*prepare)(void *arg, int iteration, double f, const double *w, bool *forget);
    void *arg;
} lbfgs_problem;

typedef struct lbfgs_options {
    int max_iterations;
    double tolerance; /* ends when |g.d| / 2, the decrease that the model still expects, is below it times |f| */
} lbfgs_options;

typedef struct lbfgs_result {
    double f;
    int iterations, evaluations;
    bool converged; /* false: out of iterations, or no step decreases f although the tolerance is not reached */
} lbfgs_result;

/* Minimises from w (n), which is overwritten by the best point. Memory: LBFGS_VECTORS n doubles. */
enum { LBFGS_HISTORY = 10, LBFGS_VECTORS = 5 + 2 * LBFGS_HISTORY };
cloob_status lbfgs_minimize(cloob_ctx *ctx, const lbfgs_problem *p, const lbfgs_options *o, double *w,
                            lbfgs_result *out);

#endif
