/* L-BFGS for smooth functions, with an optional preconditioner.
 *
 * Not liblbfgs, because the initial inverse Hessian of each direction may be a matrix of the problem: H0 = gamma M^-1.
 * For logistic regression that saves many of the iterations (28 instead of scikit-learn's 48 in the probe of
 * docs/measurements/cpu.md); liblbfgs has no preconditioner.
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
    /* Called before every iteration with the current point; may replace M, and sets *forget when M has become so
     * accurate that the stored pairs should be dropped. May be NULL. */
    cloob_status (*prepare)(void *arg, int iteration, double f, const double *w, bool *forget);
    void *arg;
} lbfgs_problem;

/* Two stopping rules; 0 disables one. */
typedef struct lbfgs_options {
    int history;        /* pairs kept; 10 */
    int max_iterations; /* 1000 */
    double tolerance;   /* half of |g.d|, the decrease the model still expects, is below it times |f| */
    double gain;        /* a step gained no more than it times the largest of |f| before, |f| after, and 1 */
} lbfgs_options;

typedef struct lbfgs_result {
    double f;
    int iterations, evaluations;
    bool converged; /* false: out of iterations, or no step decreases f before the tolerance is reached */
} lbfgs_result;

/* Minimises from w (n), which is overwritten by the best point. Memory: (2 history + 6) n doubles. */
cloob_status lbfgs_minimize(cloob_ctx *ctx, const lbfgs_problem *p, const lbfgs_options *o, double *w,
                            lbfgs_result *out);

/* ---- line search --------------------------------------------------------------------------------- */

/* Line search of Moré and Thuente (ACM TOMS 20, 1994), which ends at a step that satisfies
 *
 *     f(t) <= f(0) + 1e-3 t f'(0) + slack      and      |f'(t)| <= 0.9 |f'(0)|
 *
 * The caller evaluates, the search chooses the next step:
 *
 *     line_step s = line_step_begin(f, slope, step, slack);
 *     do evaluate at s.step; while (line_step_next(&s, f, slope) == LINE_GO_ON);
 *
 * Constants and order of decisions are those of SciPy's L-BFGS-B, so that both take the same path. */

typedef enum line_verdict { LINE_GO_ON, LINE_DONE, LINE_STUCK } line_verdict;

typedef struct line_point {
    double at, f, slope;
} line_point;

typedef struct line_step {
    double step;                    /* where to evaluate next */
    double f0, slope0, slack;       /* at 0; rounding error of f, tolerated in the decrease test */
    line_point best, other;         /* the interval's ends: the lowest point, and the far side */
    double low, high;               /* bounds of the next step */
    double width, width_before;     /* of the interval */
    bool bracketed, past_auxiliary; /* a minimum is between the ends; the first stage is over */
} line_step;

/* f, slope: at 0, slope below 0. step: the first to try. */
line_step line_step_begin(double f, double slope, double step, double slack);

/* f and slope at s->step, both finite. STUCK: rounding leaves no better step; s->best.at is the lowest seen.
 */
line_verdict line_step_next(line_step *s, double f, double slope);

#endif
