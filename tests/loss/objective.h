/* Random embeddings, one evaluation with its gradients, and comparisons, shared by the tests of src/loss. */
#ifndef TESTS_LOSS_OBJECTIVE_H
#define TESTS_LOSS_OBJECTIVE_H

#include "check.h"
#include "core/rng.h"
#include "loss/loss.h"
#include "tensor/tensor.h"

typedef struct problem {
    int64_t n, d, mu, mv; /* mu, mv: 0 for the batch */
    float *x, *y, *u, *v;
} problem;

typedef struct answer {
    loss_result r;
    float *dx, *dy, *du, *dv;
    cloob_status status;
} answer;

static inline float *floats(int64_t n) { return calloc((size_t)(n > 0 ? n : 1), sizeof(float)); }

static inline void unit_rows(float *x, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int64_t k = 0; k < d; k++) s += (double)x[i * d + k] * (double)x[i * d + k];
        for (int64_t k = 0; k < d; k++) x[i * d + k] = (float)((double)x[i * d + k] / sqrt(s));
    }
}

/* y = x blurred by noise, so that pairs mean something. */
static inline problem random_problem(uint64_t seed, int64_t n, int64_t d, int64_t mu, int64_t mv)
{
    uint64_t key = rng_key(seed, "objective");
    problem p = { n, d, mu, mv, floats(n * d), floats(n * d), floats(mu * d), floats(mv * d) };
    for (int64_t i = 0; i < n * d; i++) p.x[i] = (float)rng_normal(key, (uint64_t)i);
    for (int64_t i = 0; i < n * d; i++) p.y[i] = p.x[i] + (float)rng_normal(key + 1, (uint64_t)i);
    for (int64_t i = 0; i < mu * d; i++) p.u[i] = (float)rng_normal(key + 2, (uint64_t)i);
    for (int64_t i = 0; i < mv * d; i++) p.v[i] = (float)rng_normal(key + 3, (uint64_t)i);
    unit_rows(p.x, n, d);
    unit_rows(p.y, n, d);
    unit_rows(p.u, mu, d);
    unit_rows(p.v, mv, d);
    return p;
}

static inline void problem_free(problem *p) { free(p->x), free(p->y), free(p->u), free(p->v); }

static inline void answer_free(answer *a) { free(a->dx), free(a->dy), free(a->du), free(a->dv); }

/* Rows of p rounded to bf16, as f32. */
static inline void round_to_bf16(problem *p)
{
    float *m[4] = { p->x, p->y, p->u, p->v };
    int64_t n[4] = { p->n * p->d, p->n * p->d, p->mu * p->d, p->mv * p->d };
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < n[k]; i++) m[k][i] = bf16_to_float(bf16_from_float(m[k][i]));
}

static inline void *as_dtype(const float *x, int64_t n, cloob_dtype dtype)
{
    void *to = calloc((size_t)n + 1, dtype_size(dtype));
    dtype_convert(dtype, to, CLOOB_F32, x, n);
    return to;
}

/* Outputs start out as NaN, so that an element nobody wrote is seen. */
static inline float *poisoned(int64_t n)
{
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++) p[i] = NAN;
    return p;
}

static inline answer evaluate_on(cloob_ctx *ctx, const problem *p, loss_options o, cloob_dtype dtype, comm *c)
{
    answer a = { .dx = poisoned(p->n * p->d),
                 .dy = poisoned(p->n * p->d),
                 .du = poisoned(p->mu * p->d),
                 .dv = poisoned(p->mv * p->d) };
    loss_shape s = { p->n, p->d, p->mu, p->mv, dtype };
    void *m[4] = { as_dtype(p->x, p->n * p->d, dtype), as_dtype(p->y, p->n * p->d, dtype),
                   as_dtype(p->u, p->mu * p->d, dtype), as_dtype(p->v, p->mv * p->d, dtype) };
    loss_inputs in = { m[0], m[1], p->mu ? m[2] : NULL, p->mv ? m[3] : NULL };
    loss_outputs out = { a.dx, a.dy, p->mu ? a.du : NULL, p->mv ? a.dv : NULL };
    loss_plan *plan;
    a.status = loss_plan_create(ctx, &o, &s, c, &plan);
    if (a.status == CLOOB_OK) a.status = loss_run(ctx, plan, &in, &out, NULL, &a.r);
    loss_plan_destroy(plan);
    for (int i = 0; i < 4; i++) free(m[i]);
    return a;
}

static inline answer evaluate(cloob_ctx *ctx, const problem *p, loss_options o, cloob_dtype dtype)
{
    answer a = evaluate_on(ctx, p, o, dtype, NULL);
    CHECK_OK(ctx, a.status);
    return a;
}

/* |a - b| / max(|b|, 0.01): a saturated InfoNCE has losses and gradients below what f32 can see. */
static inline double value_error(double a, double b) { return fabs(a - b) / fmax(fabs(b), 0.01); }

#define CHECK_BELOW(value, limit, what)                                                                                \
    do {                                                                                                               \
        double v_ = (value);                                                                                           \
        if (!(v_ <= (limit))) {                                                                                        \
            printf("  %s:%d: %s: error %.3g, limit %g\n", __FILE__, __LINE__, what, v_, (double)(limit));              \
            check_bad_here_++;                                                                                         \
        }                                                                                                              \
    } while (0)

/* Losses within `loss`, gradients norm-wise within `gradient`; derivatives of the scales within the latter.
 */
static inline void check_answer(const char *what, const problem *p, const answer *a, const answer *want, double loss,
                                double gradient)
{
    CHECK_BELOW(value_error(a->r.loss, want->r.loss), loss, what);
    double tau = want->r.loss != 0 ? want->r.loss / (want->r.image_term + want->r.text_term) : 1; /* the loss's scale */
    CHECK_BELOW(value_error(tau * a->r.image_term, tau * want->r.image_term), loss, what);
    CHECK_BELOW(value_error(tau * a->r.text_term, tau * want->r.text_term), loss, what);
    CHECK_BELOW(relative_error(a->dx, want->dx, p->n * p->d, 0.01), gradient, what);
    CHECK_BELOW(relative_error(a->dy, want->dy, p->n * p->d, 0.01), gradient, what);
    CHECK_BELOW(relative_error(a->du, want->du, p->mu * p->d, 0.01), gradient, what);
    CHECK_BELOW(relative_error(a->dv, want->dv, p->mv * p->d, 0.01), gradient, what);
    CHECK_BELOW(fabs(a->r.dsum_dinv_tau - want->r.dsum_dinv_tau) / fmax(fabs(want->r.dsum_dinv_tau), 1), gradient,
                what);
    CHECK_BELOW(fabs(a->r.dsum_dbeta - want->r.dsum_dbeta) / fmax(fabs(want->r.dsum_dbeta), 1), gradient, what);
}

#endif
