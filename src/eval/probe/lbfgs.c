#include "eval/probe/lbfgs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"

/* ---- the search along a direction: safeguarded interpolation between two points -------------- */

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

/* b is higher: a minimum is between. */
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

/* In the first stage, points are compared by their decrease beyond the required minimum. */
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

enum { GRAIN = 1 << 14, LINE_STEPS = 30, MAX_PARTS = 256, MAX_PAIRS = 64 };

/* ---- vectors ------------------------------------------------------------------------------------- */

typedef struct vectors {
    const double *a;
    double *b, factor, part[MAX_PARTS];
} vectors;

static void dot_range(void *arg, int64_t begin, int64_t end, int thread)
{
    vectors *v = arg;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; i++) sum += v->a[i] * v->b[i];
    v->part[thread] = sum;
}

static double dot(cloob_ctx *ctx, const double *a, const double *b, int64_t n)
{
    vectors v = { .a = a, .b = (double *)(uintptr_t)b };
    double sum = 0;
    pool_for(ctx, n, GRAIN, dot_range, &v);
    for (int k = 0; k < pool_ranges(ctx, n, GRAIN); k++) sum += v.part[k];
    return sum;
}

static void add_range(void *arg, int64_t begin, int64_t end, int thread)
{
    vectors *v = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) v->b[i] += v->factor * v->a[i];
}

/* y += factor x */
static void add(cloob_ctx *ctx, double *y, double factor, const double *x, int64_t n)
{
    vectors v = { .a = x, .b = y, .factor = factor };
    pool_for(ctx, n, GRAIN, add_range, &v);
}

/* ---- state --------------------------------------------------------------------------------------- */

typedef struct state {
    cloob_ctx *ctx;
    const lbfgs_problem *p;
    int64_t n;
    int m, held, newest; /* pairs in use, and where the last one is */
    double *block;
    double *g, *d, *w2, *g2, *q;  /* gradient, direction, trial point and its gradient, scratch */
    double *s, *y, sy[MAX_PAIRS]; /* (m, n) steps, what the gradient changed by, and their products */
    double f, f2, slope;
    int evaluations;
} state;

static cloob_status state_init(state *t, cloob_ctx *ctx, const lbfgs_problem *p, int m)
{
    size_t count = (size_t)(5 + 2 * m) * (size_t)p->n;
    *t = (state){ .ctx = ctx, .p = p, .n = p->n, .m = m, .newest = -1 };
    t->block = malloc(count * sizeof *t->block);
    if (!t->block) return ctx_no_memory(ctx, count * sizeof *t->block, "the minimiser");
    t->g = t->block, t->d = t->g + t->n, t->w2 = t->d + t->n, t->g2 = t->w2 + t->n, t->q = t->g2 + t->n;
    t->s = t->q + t->n, t->y = t->s + m * t->n;
    return CLOOB_OK;
}

static cloob_status evaluate(state *t, const double *w, double *f, double *g)
{
    t->evaluations++;
    CLOOB_TRY(t->p->evaluate(t->p->arg, f, g, w));
    if (isfinite(*f)) return CLOOB_OK;
    *f = INFINITY; /* too far: the line search shortens the step */
    return CLOOB_OK;
}

static cloob_status precondition(state *t, double *out, const double *v)
{
    if (t->p->precondition) return t->p->precondition(t->p->arg, out, v);
    memcpy(out, v, (size_t)t->n * sizeof *out);
    return CLOOB_OK;
}

/* ---- direction ----------------------------------------------------------------------------------- */

/* The scale gamma of H0 = gamma M^-1 that matches the newest pair: s.y / y.M^-1 y. Overwrites d. */
static cloob_status gamma_of(state *t, double *gamma)
{
    const double *y = t->y + t->newest * t->n;
    *gamma = 1;
    if (!t->held) return CLOOB_OK;
    CLOOB_TRY(precondition(t, t->d, y));
    double curve = dot(t->ctx, y, t->d, t->n);
    if (curve > 0) *gamma = t->sy[t->newest] / curve;
    return CLOOB_OK;
}

/* d = -H g by the two-loop recursion (Nocedal and Wright, algorithm 7.4). */
static cloob_status direction(state *t)
{
    double alpha[MAX_PAIRS], gamma;
    CLOOB_TRY(gamma_of(t, &gamma));
    memcpy(t->q, t->g, (size_t)t->n * sizeof *t->q);
    for (int k = 0; k < t->held; k++) { /* the newest first */
        int i = (t->newest - k + t->m) % t->m;
        alpha[i] = dot(t->ctx, t->s + i * t->n, t->q, t->n) / t->sy[i];
        add(t->ctx, t->q, -alpha[i], t->y + i * t->n, t->n);
    }
    CLOOB_TRY(precondition(t, t->d, t->q));
    for (int64_t i = 0; i < t->n; i++) t->d[i] *= -gamma; /* d is -H g from here on */
    for (int k = t->held - 1; k >= 0; k--) {
        int i = (t->newest - k + t->m) % t->m;
        double beta = dot(t->ctx, t->y + i * t->n, t->d, t->n) / t->sy[i];
        add(t->ctx, t->d, -alpha[i] - beta, t->s + i * t->n, t->n);
    }
    t->slope = dot(t->ctx, t->g, t->d, t->n);
    return CLOOB_OK;
}

/* Rounding can spoil a direction; the steepest one in the preconditioner's metric always descends. */
static cloob_status safe_direction(state *t)
{
    CLOOB_TRY(direction(t));
    if (t->slope < 0 || !t->held) return CLOOB_OK;
    t->held = 0;
    return direction(t);
}

/* ---- step ---------------------------------------------------------------------------------------- */

static cloob_status evaluate_at(state *t, const double *w, double step, double *slope)
{
    memcpy(t->w2, w, (size_t)t->n * sizeof *w);
    add(t->ctx, t->w2, step, t->d, t->n);
    CLOOB_TRY(evaluate(t, t->w2, &t->f2, t->g2));
    *slope = isfinite(t->f2) ? dot(t->ctx, t->g2, t->d, t->n) : 0;
    return CLOOB_OK;
}

/* Leaves the accepted point in w2, g2, f2. *found is false when none decreases f. */
static cloob_status line_search(state *t, const double *w, bool *found)
{
    double first = !t->p->precondition && !t->held ? fmin(1, 1 / sqrt(-t->slope)) : 1, slope;
    line_step s = line_step_begin(t->f, t->slope, first, t->p->noise * fabs(t->f));
    line_verdict verdict = LINE_GO_ON;
    for (int k = 0; k < LINE_STEPS && verdict == LINE_GO_ON; k++) {
        CLOOB_TRY(evaluate_at(t, w, s.step, &slope));
        if (isfinite(t->f2) && isfinite(slope)) verdict = line_step_next(&s, t->f2, slope);
        else s.step = 0.1 * s.step + 0.9 * s.best.at; /* too far: shorten the step */
    }
    *found = verdict == LINE_DONE || t->f2 < t->f;
    return CLOOB_OK;
}

/* The new pair replaces the oldest; if its curvature is lost in rounding, both are dropped. */
static void remember(state *t, const double *w)
{
    int i = (t->newest + 1) % t->m;
    double *s = t->s + i * t->n, *y = t->y + i * t->n;
    for (int64_t k = 0; k < t->n; k++) s[k] = t->w2[k] - w[k], y[k] = t->g2[k] - t->g[k];
    double curve = dot(t->ctx, s, y, t->n);
    if (!(curve > 1e-16 * dot(t->ctx, y, y, t->n))) {
        if (t->held == t->m) t->held--;
        return;
    }
    t->sy[i] = curve, t->newest = i;
    if (t->held < t->m) t->held++;
}

static void accept(state *t, double *w)
{
    double *g = t->g;
    remember(t, w);
    memcpy(w, t->w2, (size_t)t->n * sizeof *w);
    t->g = t->g2, t->g2 = g;
    t->f = t->f2;
}

static bool little_gained(const state *t, double gain)
{
    return t->f - t->f2 <= gain * fmax(fmax(fabs(t->f), fabs(t->f2)), 1);
}

static cloob_status iterate(state *t, const lbfgs_options *o, double *w, lbfgs_result *out)
{
    for (out->iterations = 0; out->iterations < o->max_iterations && !out->converged; out->iterations++) {
        bool found, forget = false;
        if (t->p->prepare) CLOOB_TRY(t->p->prepare(t->p->arg, out->iterations, t->f, w, &forget));
        if (forget) t->held = 0;
        CLOOB_TRY(safe_direction(t)); /* slope not below 0: the gradient is at the level of rounding */
        out->converged = !(t->slope < 0) || -0.5 * t->slope <= o->tolerance * fabs(t->f);
        if (out->converged) return CLOOB_OK;
        CLOOB_TRY(line_search(t, w, &found));
        if (!found && !t->held) return CLOOB_OK;
        out->converged = found && o->gain > 0 && little_gained(t, o->gain);
        if (found) accept(t, w);
        else t->held = 0; /* retry without stored pairs */
    }
    return CLOOB_OK;
}

cloob_status lbfgs_minimize(cloob_ctx *ctx, const lbfgs_problem *p, const lbfgs_options *o, double *w,
                            lbfgs_result *out)
{
    state t;
    int m = o->history < 1 ? 1 : o->history > MAX_PAIRS ? MAX_PAIRS : o->history;
    *out = (lbfgs_result){ 0 };
    CLOOB_TRY(state_init(&t, ctx, p, m));
    cloob_status status = evaluate(&t, w, &t.f, t.g);
    if (status == CLOOB_OK && !isfinite(t.f))
        status = ctx_fail(ctx, CLOOB_ERR_NUMERIC, "the function to minimise is not finite at the starting point");
    if (status == CLOOB_OK) status = iterate(&t, o, w, out);
    out->f = t.f;
    out->evaluations = t.evaluations;
    free(t.block);
    return status;
}
