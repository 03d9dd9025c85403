/* The two-loop recursion (Nocedal and Wright, algorithm 7.4) with H0 = gamma M^-1, and a line search by bisection. */
#include "eval/probe/lbfgs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"

enum { HISTORY = LBFGS_HISTORY, GRAIN = 1 << 14, MAX_PARTS = 256, LINE_STEPS = 50 };

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
    int held, newest; /* pairs in use, and where the last one is */
    double *block;
    double *g, *d, *w2, *g2, *q; /* gradient; direction H g, along which w falls; trial point, its gradient; scratch */
    double *s, *y, sy[HISTORY];  /* (HISTORY, n) steps, what the gradient changed by, and their products */
    double f, f2, slope;         /* slope: of f along -d */
    int evaluations;
} state;

static cloob_status state_init(state *t, cloob_ctx *ctx, const lbfgs_problem *p)
{
    size_t bytes = (size_t)LBFGS_VECTORS * (size_t)p->n * sizeof(double);
    *t = (state){ .ctx = ctx, .p = p, .n = p->n, .newest = -1, .block = malloc(bytes) };
    if (!t->block) return ctx_no_memory(ctx, bytes, "the minimiser");
    t->g = t->block, t->d = t->g + t->n, t->w2 = t->d + t->n, t->g2 = t->w2 + t->n, t->q = t->g2 + t->n;
    t->s = t->q + t->n, t->y = t->s + HISTORY * t->n;
    return CLOOB_OK;
}

static cloob_status evaluate(state *t, const double *w, double *f, double *g)
{
    t->evaluations++;
    return t->p->evaluate(t->p->arg, f, g, w);
}

/* ---- direction ----------------------------------------------------------------------------------- */

static cloob_status precondition(state *t, double *out, const double *v)
{
    if (t->p->precondition) return t->p->precondition(t->p->arg, out, v);
    memcpy(out, v, (size_t)t->n * sizeof *out);
    return CLOOB_OK;
}

/* d *= gamma, which stretches H0 = gamma M^-1 to agree with the newest pair: s.y / y.M^-1 y. Uses w2. */
static cloob_status stretch(state *t)
{
    const double *y = t->y + t->newest * t->n;
    if (!t->held) return CLOOB_OK;
    CLOOB_TRY(precondition(t, t->w2, y));
    double curve = dot(t->ctx, y, t->w2, t->n);
    for (int64_t i = 0; i < t->n && curve > 0; i++) t->d[i] *= t->sy[t->newest] / curve;
    return CLOOB_OK;
}

static cloob_status direction(state *t)
{
    double alpha[HISTORY];
    memcpy(t->q, t->g, (size_t)t->n * sizeof *t->q);
    for (int k = 0; k < t->held; k++) { /* the newest first */
        int i = (t->newest - k + HISTORY) % HISTORY;
        alpha[i] = dot(t->ctx, t->s + i * t->n, t->q, t->n) / t->sy[i];
        add(t->ctx, t->q, -alpha[i], t->y + i * t->n, t->n);
    }
    CLOOB_TRY(precondition(t, t->d, t->q));
    CLOOB_TRY(stretch(t));
    for (int k = t->held - 1; k >= 0; k--) {
        int i = (t->newest - k + HISTORY) % HISTORY;
        double beta = dot(t->ctx, t->y + i * t->n, t->d, t->n) / t->sy[i];
        add(t->ctx, t->d, alpha[i] - beta, t->s + i * t->n, t->n);
    }
    t->slope = -dot(t->ctx, t->g, t->d, t->n);
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

/* Halves the interval between a step that is too short and one that is too long, until both Wolfe conditions hold:
 *
 *     f(t) <= f(0) + 1e-4 t f'(0) + rounding      and      f'(t) >= 0.9 f'(0)
 *
 * While no step is too long it doubles. Leaves the last point in w2, g2, f2; *found is false when f does not fall. */
static cloob_status line_search(state *t, const double *w, bool *found)
{
    double low = 0, high = INFINITY, rounding = t->p->noise * fabs(t->f);
    double step = t->p->precondition || t->held ? 1 : fmin(1, 1 / sqrt(-t->slope));
    *found = false;
    for (int k = 0; k < LINE_STEPS && !*found; k++) {
        memcpy(t->w2, w, (size_t)t->n * sizeof *w);
        add(t->ctx, t->w2, -step, t->d, t->n);
        CLOOB_TRY(evaluate(t, t->w2, &t->f2, t->g2));
        double slope = isfinite(t->f2) ? -dot(t->ctx, t->g2, t->d, t->n) : NAN;
        if (!isfinite(slope) || t->f2 > t->f + 1e-4 * step * t->slope + rounding) high = step;
        else if (slope < 0.9 * t->slope) low = step;
        else *found = true;
        step = isinf(high) ? 2 * step : 0.5 * (low + high);
    }
    *found = *found || t->f2 < t->f;
    return CLOOB_OK;
}

/* The new pair takes the place of the oldest, unless its curvature is lost in rounding. */
static void remember(state *t, const double *w)
{
    int i = (t->newest + 1) % HISTORY;
    double *s = t->s + i * t->n, *y = t->y + i * t->n;
    for (int64_t k = 0; k < t->n; k++) s[k] = t->w2[k] - w[k], y[k] = t->g2[k] - t->g[k];
    t->sy[i] = dot(t->ctx, s, y, t->n);
    if (!(t->sy[i] > 1e-16 * dot(t->ctx, y, y, t->n))) return;
    t->newest = i;
    if (t->held < HISTORY) t->held++;
}

static void accept(state *t, double *w)
{
    double *g = t->g;
    remember(t, w);
    memcpy(w, t->w2, (size_t)t->n * sizeof *w);
    t->g = t->g2, t->g2 = g;
    t->f = t->f2;
}

static cloob_status iterate(state *t, const lbfgs_options *o, double *w, lbfgs_result *out)
{
    for (out->iterations = 0; out->iterations < o->max_iterations; out->iterations++) {
        bool found, forget = false;
        if (t->p->prepare) CLOOB_TRY(t->p->prepare(t->p->arg, out->iterations, t->f, w, &forget));
        if (forget) t->held = 0;
        CLOOB_TRY(safe_direction(t)); /* slope not below 0: the gradient is at the level of rounding */
        out->converged = !(t->slope < 0) || -0.5 * t->slope <= o->tolerance * fabs(t->f);
        if (out->converged) return CLOOB_OK;
        CLOOB_TRY(line_search(t, w, &found));
        if (!found && !t->held) return CLOOB_OK;
        if (found) accept(t, w);
        else t->held = 0; /* once more, without memory */
    }
    return CLOOB_OK;
}

cloob_status lbfgs_minimize(cloob_ctx *ctx, const lbfgs_problem *p, const lbfgs_options *o, double *w,
                            lbfgs_result *out)
{
    state t;
    *out = (lbfgs_result){ 0 };
    CLOOB_TRY(state_init(&t, ctx, p));
    cloob_status status = evaluate(&t, w, &t.f, t.g);
    if (status == CLOOB_OK && !isfinite(t.f))
        status = ctx_fail(ctx, CLOOB_ERR_NUMERIC, "the function to minimise is not finite where it starts");
    if (status == CLOOB_OK) status = iterate(&t, o, w, out);
    out->f = t.f;
    out->evaluations = t.evaluations;
    free(t.block);
    return status;
}
