/* Safeguarded interpolation between two points. */
#include "eval/probe/line_step.h"

#include <math.h>

static const double DECREASE = 1e-3, CURVATURE = 0.9,
                    NARROW = 0.1; /* NARROW: width of an interval not worth splitting */
static const double FARTHEST = 1e10;

line_step line_step_begin(double f, double slope, double step, double slack)
{
    line_point start = { 0, f, slope };
    return (line_step){ .step = step,
                        .f0 = f,
                        .slope0 = slope,
                        .slack = slack,
                        .best = start,
                        .other = start,
                        .low = 0,
                        .high = 5 * step,
                        .width = FARTHEST,
                        .width_before = 2 * FARTHEST };
}

/* ---- interpolation ------------------------------------------------------------------------------- */

/* Minimiser of the cubic through a and b; root is the discriminant's, with the sign of b - a. */
static double cubic(const line_point *a, const line_point *b, double theta, double root)
{
    double p = (root - a->slope) + theta, q = ((root - a->slope) + root) + b->slope;
    return a->at + p / q * (b->at - a->at);
}

static double theta_of(const line_point *a, const line_point *b)
{
    return 3 * (a->f - b->f) / (b->at - a->at) + a->slope + b->slope;
}

static double largest(double a, double b, double c) { return fmax(fabs(a), fmax(fabs(b), fabs(c))); }

static double root_of(double theta, double slope_a, double slope_b)
{
    double scale = largest(theta, slope_a, slope_b), t = theta / scale;
    return scale * sqrt(fmax(0, t * t - slope_a / scale * (slope_b / scale)));
}

static double secant(const line_point *a, const line_point *b)
{
    return b->at + b->slope / (b->slope - a->slope) * (a->at - b->at);
}

static bool nearer(double a, double b, double to) { return fabs(a - to) < fabs(b - to); }

/* b is higher: a minimum lies between. */
static double step_when_higher(const line_point *a, const line_point *b)
{
    double theta = theta_of(a, b), root = root_of(theta, a->slope, b->slope);
    double c = cubic(a, b, theta, b->at < a->at ? -root : root);
    double q = a->at + a->slope / ((a->f - b->f) / (b->at - a->at) + a->slope) / 2 * (b->at - a->at);
    return nearer(c, q, a->at) ? c : c + (q - c) / 2;
}

/* b is lower and its slope points back. */
static double step_when_turned(const line_point *a, const line_point *b)
{
    double theta = theta_of(a, b), root = root_of(theta, a->slope, b->slope);
    double c = cubic(b, a, theta, b->at > a->at ? -root : root), q = secant(a, b);
    return nearer(c, q, b->at) ? q : c;
}

/* b is lower, its slope points on but is flatter. The cubic may have no minimum beyond b. */
static double step_when_flatter(const line_step *s, const line_point *a, const line_point *b)
{
    double theta = theta_of(a, b), root = root_of(theta, a->slope, b->slope), q = secant(a, b);
    if (b->at > a->at) root = -root;
    double up = (root - b->slope) + theta, down = (root + (a->slope - b->slope)) + root, r = up / down, c;
    if (r < 0 && root != 0) c = b->at + r * (a->at - b->at);
    else c = b->at > a->at ? s->high : s->low;
    if (!s->bracketed) return fmax(s->low, fmin(s->high, nearer(c, q, b->at) ? q : c));
    double step = nearer(c, q, b->at) ? c : q, bound = b->at + 0.66 * (s->other.at - b->at);
    return b->at > a->at ? fmin(bound, step) : fmax(bound, step);
}

/* b is lower and falls as steeply: on to the far end, or between it and b. */
static double step_when_steep(const line_step *s, const line_point *a, const line_point *b)
{
    const line_point *o = &s->other;
    if (!s->bracketed) return b->at > a->at ? s->high : s->low;
    double theta = theta_of(b, o), root = root_of(theta, o->slope, b->slope);
    return cubic(b, o, theta, b->at > o->at ? -root : root);
}

/* Chooses the next step and moves the interval's ends; b is the point just seen. */
static double next_step(line_step *s, line_point b)
{
    line_point a = s->best;
    bool turned = b.slope * (a.slope / fabs(a.slope)) < 0;
    double step;
    if (b.f > a.f) {
        step = step_when_higher(&a, &b);
        s->bracketed = true, s->other = b;
        return step;
    }
    if (turned) {
        step = step_when_turned(&a, &b);
        s->bracketed = true, s->other = a;
    } else if (fabs(b.slope) < fabs(a.slope)) step = step_when_flatter(s, &a, &b);
    else step = step_when_steep(s, &a, &b);
    s->best = b;
    return step;
}

/* ---- the search ---------------------------------------------------------------------------------- */

/* In the first stage the ends are compared by what they gain beyond the least decrease asked for. */
static double auxiliary_step(line_step *s, line_point b)
{
    double min = DECREASE * s->slope0;
    line_point *end[2] = { &s->best, &s->other };
    for (int k = 0; k < 2; k++) end[k]->f -= end[k]->at * min, end[k]->slope -= min;
    b.f -= b.at * min, b.slope -= min;
    double step = next_step(s, b);
    for (int k = 0; k < 2; k++) end[k]->f += end[k]->at * min, end[k]->slope += min;
    return step;
}

static void set_bounds(line_step *s)
{
    double a = s->best.at, b = s->other.at;
    if (s->bracketed) {
        if (fabs(b - a) >= 0.66 * s->width_before) s->step = a + 0.5 * (b - a);
        s->width_before = s->width, s->width = fabs(b - a);
        s->low = fmin(a, b), s->high = fmax(a, b);
    } else s->low = s->step + 1.1 * (s->step - a), s->high = s->step + 4 * (s->step - a);
    s->step = fmax(0, fmin(FARTHEST, s->step));
    if (s->bracketed && (s->step <= s->low || s->step >= s->high || s->high - s->low <= NARROW * s->high)) s->step = a;
}

line_verdict line_step_next(line_step *s, double f, double slope)
{
    line_point b = { s->step, f, slope };
    double wanted = s->f0 + s->step * DECREASE * s->slope0 + s->slack;
    bool low_enough = f <= wanted;
    if (low_enough && slope >= 0) s->past_auxiliary = true;
    if (low_enough && fabs(slope) <= -CURVATURE * s->slope0) return LINE_DONE;
    if (s->bracketed && (s->step <= s->low || s->step >= s->high || s->high - s->low <= NARROW * s->high))
        return LINE_STUCK;
    s->step = !s->past_auxiliary && f <= s->best.f && !low_enough ? auxiliary_step(s, b) : next_step(s, b);
    set_bounds(s);
    return LINE_GO_ON;
}
