/* Two-loop recursion, weak Wolfe conditions. */
#include "eval/lbfgs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"

enum { GRAIN = 1 << 14, LANES = 8, LINE_STEPS = 30, MAX_PARTS = 256 };
static const double ARMIJO = 1e-4, WOLFE = 0.9;

/* ---- vectors ------------------------------------------------------------------------------------- */

typedef struct vectors {
    const double *a;
    double *y;
    double factor, part[MAX_PARTS];
} vectors;

static void dot_range(void *arg, int64_t begin, int64_t end, int thread)
{
    vectors *v = arg;
    double lane[LANES] = { 0 }, sum = 0; /* independent sums, so that the compiler may use vectors */
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += v->a[i + k] * v->y[i + k];
    for (; i < end; i++) sum += v->a[i] * v->y[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    v->part[thread] = sum;
}

static double dot(cloob_ctx *ctx, const double *a, const double *b, int64_t n)
{
    vectors v = { .a = a, .y = (double *)(uintptr_t)b };
    double sum = 0;
    pool_for(ctx, n, GRAIN, dot_range, &v);
    for (int k = 0; k < pool_ranges(ctx, n, GRAIN); k++) sum += v.part[k];
    return sum;
}

static void axpy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    vectors *v = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) v->y[i] += v->factor * v->a[i];
}

/* y += factor a */
static void axpy(cloob_ctx *ctx, double *y, double factor, const double *a, int64_t n)
{
    vectors v = { .a = a, .y = y, .factor = factor };
    pool_for(ctx, n, GRAIN, axpy_range, &v);
}

static void scale(double *y, double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

/* ---- state --------------------------------------------------------------------------------------- */

typedef struct state {
    cloob_ctx *ctx;
    const lbfgs_problem *p;
    int64_t n;
    int m, held, newest; /* pairs in use, and where the last one is */
    double *block;
    double *g, *d, *w2, *g2, *q; /* gradient, direction, trial point and its gradient, scratch */
    double *s, *y, *rho;         /* (m, n), (m, n), (m) */
    double f, f2, slope;
    int evaluations;
} state;

void lbfgs_options_init(lbfgs_options *o) { *o = (lbfgs_options){ 10, 1000, 1e-8 }; }

static cloob_status state_init(state *t, cloob_ctx *ctx, const lbfgs_problem *p, int m)
{
    size_t count = (size_t)(5 + 2 * m) * (size_t)p->n + (size_t)m;
    *t = (state){ .ctx = ctx, .p = p, .n = p->n, .m = m, .newest = -1 };
    t->block = malloc(count * sizeof *t->block);
    if (!t->block) return ctx_no_memory(ctx, count * sizeof *t->block, "the minimiser");
    t->g = t->block, t->d = t->g + t->n, t->w2 = t->d + t->n, t->g2 = t->w2 + t->n, t->q = t->g2 + t->n;
    t->s = t->q + t->n, t->y = t->s + m * t->n, t->rho = t->y + m * t->n;
    return CLOOB_OK;
}

static cloob_status evaluate(state *t, const double *w, double *f, double *g)
{
    t->evaluations++;
    CLOOB_TRY(t->p->evaluate(t->p->arg, f, g, w));
    if (isfinite(*f)) return CLOOB_OK;
    *f = INFINITY; /* too far: the line search comes back */
    return CLOOB_OK;
}

static void precondition(state *t, double *out, const double *v)
{
    if (t->p->precondition) t->p->precondition(t->p->arg, out, v);
    else memcpy(out, v, (size_t)t->n * sizeof *out);
}

/* ---- direction ----------------------------------------------------------------------------------- */

/* How much H0 = gamma M^-1 must be stretched to agree with the newest pair: s.y / y.M^-1 y. */
static double gamma_of(state *t)
{
    const double *y = t->y + t->newest * t->n;
    if (!t->held) return 1;
    precondition(t, t->q, y);
    double curve = dot(t->ctx, y, t->q, t->n);
    return curve > 0 ? 1 / (t->rho[t->newest] * curve) : 1;
}

/* d = -H g */
static void direction(state *t)
{
    double alpha[64], gamma = gamma_of(t);
    cloob_ctx *ctx = t->ctx;
    int64_t n = t->n;
    memcpy(t->q, t->g, (size_t)n * sizeof *t->q);
    for (int k = 0; k < t->held; k++) {
        int i = (t->newest - k + t->m) % t->m;
        alpha[i] = t->rho[i] * dot(ctx, t->s + i * n, t->q, n);
        axpy(ctx, t->q, -alpha[i], t->y + i * n, n);
    }
    precondition(t, t->d, t->q);
    scale(t->d, gamma, n);
    for (int k = t->held - 1; k >= 0; k--) {
        int i = (t->newest - k + t->m) % t->m;
        double beta = t->rho[i] * dot(ctx, t->y + i * n, t->d, n);
        axpy(ctx, t->d, alpha[i] - beta, t->s + i * n, n);
    }
    scale(t->d, -1, n);
    t->slope = dot(ctx, t->g, t->d, n);
}

/* Rounding can spoil a direction; the steepest one in the preconditioner's metric always descends. */
static bool safe_direction(state *t)
{
    direction(t);
    if (t->slope < 0) return true;
    t->held = 0;
    direction(t);
    return t->slope < 0;
}

/* ---- step ---------------------------------------------------------------------------------------- */

static double interpolate(const state *t, double step)
{
    double curve = t->f2 - t->f - t->slope * step, at = -t->slope * step * step / (2 * curve);
    if (!isfinite(at) || at < 0.1 * step) return 0.1 * step;
    return at > 0.5 * step ? 0.5 * step : at;
}

/* Leaves the accepted point in w2, g2, f2. *found is false when none decreases f. */
static cloob_status line_search(state *t, const double *w, bool *found)
{
    double low = 0, high = INFINITY, step = 1, slack = t->p->noise * fabs(t->f);
    if (!t->p->precondition && !t->held) step = fmin(1, 1 / sqrt(-t->slope));
    for (int k = 0; k < LINE_STEPS; k++) {
        memcpy(t->w2, w, (size_t)t->n * sizeof *w);
        axpy(t->ctx, t->w2, step, t->d, t->n);
        CLOOB_TRY(evaluate(t, t->w2, &t->f2, t->g2));
        double slope = isfinite(t->f2) ? dot(t->ctx, t->g2, t->d, t->n) : 0;
        *found = true;
        if (t->f2 > t->f + ARMIJO * step * t->slope + slack) high = step;
        else if (slope < WOLFE * t->slope) low = step;
        else return CLOOB_OK;
        if (low > 0) step = isinf(high) ? 2 * step : 0.5 * (low + high);
        else step = interpolate(t, step);
    }
    *found = t->f2 < t->f;
    return CLOOB_OK;
}

static void remember(state *t, const double *w)
{
    int i = (t->newest + 1) % t->m;
    double *s = t->s + i * t->n, *y = t->y + i * t->n;
    for (int64_t k = 0; k < t->n; k++) s[k] = t->w2[k] - w[k], y[k] = t->g2[k] - t->g[k];
    double curve = dot(t->ctx, s, y, t->n);
    if (!(curve > 1e-16 * dot(t->ctx, y, y, t->n))) return; /* no believable curvature along this step */
    t->rho[i] = 1 / curve;
    t->newest = i;
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

static cloob_status iterate(state *t, const lbfgs_options *o, double *w, lbfgs_result *out)
{
    for (out->iterations = 0; out->iterations < o->max_iterations; out->iterations++) {
        bool found, forget = false;
        if (t->p->prepare) CLOOB_TRY(t->p->prepare(t->p->arg, out->iterations, t->f, w, &forget));
        if (forget) t->held = 0;
        if (!safe_direction(t)) { /* the gradient is zero, or as small as rounding can tell */
            out->converged = true;
            return CLOOB_OK;
        }
        if (-0.5 * t->slope <= o->tolerance * fabs(t->f)) {
            out->converged = true;
            return CLOOB_OK;
        }
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
    int m = o->history < 1 ? 1 : o->history > 64 ? 64 : o->history;
    *out = (lbfgs_result){ 0 };
    CLOOB_TRY(state_init(&t, ctx, p, m));
    cloob_status status = evaluate(&t, w, &t.f, t.g);
    if (status == CLOOB_OK && !isfinite(t.f))
        status = ctx_fail(ctx, CLOOB_ERR_NUMERIC, "the function to minimise is not finite where it starts");
    if (status == CLOOB_OK) status = iterate(&t, o, w, out);
    out->f = t.f;
    out->evaluations = t.evaluations;
    free(t.block);
    return status;
}
