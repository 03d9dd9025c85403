/* How far to go along a direction: the search of Moré and Thuente (ACM TOMS 20, 1994), which ends at a step
 * that satisfies
 *
 *     f(t) <= f(0) + 1e-3 t f'(0) + slack      and      |f'(t)| <= 0.9 |f'(0)|
 *
 * The caller evaluates, the search says where next:
 *
 *     line_step s = line_step_begin(f, slope, step, slack);
 *     do evaluate at s.step; while (line_step_next(&s, f, slope) == LINE_GO_ON);
 *
 * Constants and order of decisions are those of SciPy's L-BFGS-B, so that both take the same path. */
#ifndef EVAL_PROBE_LINE_STEP_H
#define EVAL_PROBE_LINE_STEP_H

#include <stdbool.h>

typedef enum line_verdict { LINE_GO_ON, LINE_DONE, LINE_STUCK } line_verdict;

typedef struct line_point {
    double at, f, slope;
} line_point;

typedef struct line_step {
    double step;                    /* where to evaluate next */
    double f0, slope0, slack;       /* at 0; rounding of f that is not held against a step */
    line_point best, other;         /* the interval's ends: the lowest point, and the far side */
    double low, high;               /* bounds of the next step */
    double width, width_before;     /* of the interval */
    bool bracketed, past_auxiliary; /* a minimum lies between the ends; the first stage is over */
} line_step;

/* f, slope: at 0, slope below 0. step: the first to try. */
line_step line_step_begin(double f, double slope, double step, double slack);

/* f and slope at s->step, both finite. STUCK: rounding leaves no better step; s->best.at is the lowest seen.
 */
line_verdict line_step_next(line_step *s, double f, double slope);

#endif
