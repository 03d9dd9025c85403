/* L-BFGS for smooth functions, with room for a preconditioner.
 *
 * Ours rather than liblbfgs because the inverse Hessian it starts each direction from may be a matrix of the
 * problem's own: H0 = gamma M^-1. For logistic regression that saves most of the iterations
 * (docs/reference/evaluation.md has the measurement), and liblbfgs has no place for it.
 *
 * Vectors are double; the function may be computed in less, and then says how exact it is (`noise`). */
#ifndef EVAL_PROBE_LBFGS_H
#define EVAL_PROBE_LBFGS_H

#include "core/ctx.h"

typedef struct lbfgs_problem {
    int64_t n;
    double noise; /* relative rounding error of f: differences below it are not believed */
    /* Writes f(w) and its gradient g (n). */
    cloob_status (*evaluate)(void *arg, double *f, double *g, const double *w);
    /* out = M^-1 v, M symmetric positive definite; NULL: the identity. */
    cloob_status (*precondition)(void *arg, double *out, const double *v);
    /* Called before every iteration with the current point; may replace M, and sets *forget when M is now so
     * good that remembered pairs would only spoil it. NULL: nothing to do. */
    cloob_status (*prepare)(void *arg, int iteration, double f, const double *w, bool *forget);
    void *arg;
} lbfgs_problem;

/* Two ways to have come far enough; 0 leaves one out. */
typedef struct lbfgs_options {
    int history;        /* pairs kept; 10 */
    int max_iterations; /* 1000 */
    double tolerance;   /* half of |g.d|, the decrease the model still expects, is below it times |f| */
    double gain;        /* a step gained no more than it times the largest of |f| before, |f| after, and 1 */
} lbfgs_options;

typedef struct lbfgs_result {
    double f;
    int iterations, evaluations;
    bool converged; /* false: out of iterations, or no step decreases f although the tolerance is not reached
                     */
} lbfgs_result;

void lbfgs_options_init(lbfgs_options *o);

/* Minimises from w (n), which is overwritten by the best point. Memory: (2 history + 6) n doubles. */
cloob_status lbfgs_minimize(cloob_ctx *ctx, const lbfgs_problem *p, const lbfgs_options *o, double *w,
                            lbfgs_result *out);

#endif
