/* Training and scoring of a linear probe. */
#include "eval/probe/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/probe/probe_objective.h"
#include "tensor/cpu/gemm.h"

enum { PLAIN = 100 };                                  /* iterations of plain L-BFGS for a small problem */
static const double SCIPY_GAIN = 2.220446049250313e-9; /* its ftol: 1e7 times the rounding of a double */
static const double EXACT = 1e-12;                     /* tolerance of Newton steps: they double their digits */
static const double ENOUGH = 1e-3;                     /* and of L-BFGS in float: the objective to 0.4 % */

enum { HISTORY = 10, SCORE_BYTES = 4 << 20 };

void probe_model_release(probe_model *m)
{
    free(m->w);
    label_set_release(&m->classes);
    m->w = NULL;
}

probe_plan probe_plan_make(const probe_data *train, int64_t classes, int threads)
{
    const rows *x = &train->x;
    objective o = objective_sizes(x->N, x->D, classes, threads);
    int64_t vectors = (5 + 2 * HISTORY + 1) * classes * (x->D + 1) * (int64_t)sizeof(double);
    return (probe_plan){ .N = x->N,
                         .D = x->D,
                         .C = classes,
                         .block_rows = o.block,
                         .blocks = (x->N + o.block - 1) / o.block,
                         .wide = o.wide,
                         .memory_bytes = (int64_t)o.bytes + vectors + x->N * (int64_t)sizeof(int32_t),
                         .feature_bytes = x->N * x->D * (int64_t)dtype_size(x->dtype),
                         .flops = 4.0 * (double)x->N * (double)x->D * (double)classes };
}

/* ---- training ------------------------------------------------------------------------------------ */

static cloob_status check_parts(cloob_ctx *ctx, const probe_data *part, int parts, double lambda)
{
    if (!(lambda >= 0) || isinf(lambda))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "lambda %g: needs a number of 0 or more", lambda);
    for (int k = 0; k < parts; k++) {
        if (part[k].x.D != part[0].x.D)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has %lld dimensions, %s has %lld", part[0].x.name,
                            (long long)part[0].x.D, part[k].x.name, (long long)part[k].x.D);
        CLOOB_TRY(rows_check(ctx, &part[k].x));
    }
    return CLOOB_OK;
}

/* All labels in a row, and the classes among them. *y becomes positions (N), owned by the caller. */
static cloob_status find_classes(cloob_ctx *ctx, label_set *set, int32_t **y, const probe_data *part, int parts)
{
    int64_t N = 0, at = 0;
    for (int k = 0; k < parts; k++) N += part[k].x.N;
    int64_t *all = malloc((size_t)N * sizeof *all);
    *y = malloc((size_t)N * sizeof **y);
    if (!all || !*y) {
        free(all);
        return ctx_no_memory(ctx, (size_t)N * 12, "labels");
    }
    for (int k = 0; k < parts; at += part[k++].x.N) memcpy(all + at, part[k].y, (size_t)part[k].x.N * sizeof *all);
    cloob_status status = label_set_init(ctx, set, all, N);
    if (status == CLOOB_OK && set->C < 2)
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: all %lld rows have class %lld; a classifier needs two classes",
                          part[0].x.name, (long long)N, (long long)set->value[0]);
    for (int64_t i = 0; status == CLOOB_OK && i < N; i++) (*y)[i] = (int32_t)label_set_find(set, all[i]);
    free(all);
    return status;
}

static void describe(probe_fit *fit, const probe_model *m, double lambda, const lbfgs_result *r)
{
    double square = 0;
    for (int64_t i = 0; i < m->C * (m->D + 1); i++)
        if (i % (m->D + 1) != m->D) square += m->w[i] * m->w[i];
    *fit = (probe_fit){ lambda, r->f, sqrt(square), r->iterations, r->evaluations, r->converged };
}

/* A small problem: plain L-BFGS with SciPy's stopping rule solves well-conditioned problems. The others continue with
 * Newton steps (the preconditioner is the whole Hessian) to the minimum. */
static cloob_status minimize_small(cloob_ctx *ctx, const lbfgs_problem *whole, int max_iterations, double *w,
                                   lbfgs_result *result)
{
    lbfgs_problem plain = *whole;
    lbfgs_options first = { HISTORY, max_iterations < PLAIN ? max_iterations : PLAIN, 0, SCIPY_GAIN };
    lbfgs_options second = { HISTORY, max_iterations - first.max_iterations, EXACT, 0 };
    plain.precondition = NULL, plain.prepare = NULL;
    CLOOB_TRY(lbfgs_minimize(ctx, &plain, &first, w, result));
    lbfgs_result before = *result;
    if (before.converged || second.max_iterations < 1) return CLOOB_OK;
    CLOOB_TRY(lbfgs_minimize(ctx, whole, &second, w, result));
    result->iterations += before.iterations, result->evaluations += before.evaluations;
    return CLOOB_OK;
}

static cloob_status minimize(cloob_ctx *ctx, probe_model *m, probe_fit *fit, const probe_data *part, int parts,
                             const int32_t *y, double lambda, const cloob_probe_options *o)
{
    objective *f;
    lbfgs_result result;
    CLOOB_TRY(objective_create(ctx, &f, part, parts, y, m->C, lambda));
    lbfgs_problem problem = objective_problem(f);
    double tolerance = o->tolerance > 0 ? o->tolerance : f->wide ? EXACT : ENOUGH;
    lbfgs_options lo = { HISTORY, o->max_iterations, tolerance, 0 };
    cloob_status status = f->exact && !(o->tolerance > 0)
                              ? minimize_small(ctx, &problem, o->max_iterations, m->w, &result)
                              : lbfgs_minimize(ctx, &problem, &lo, m->w, &result);
    objective_destroy(f);
    if (status == CLOOB_OK) describe(fit, m, lambda, &result);
    return status;
}

cloob_status probe_train(cloob_ctx *ctx, probe_model *m, probe_fit *fit, const probe_data *part, int parts,
                         double lambda, const double *start, const cloob_probe_options *o)
{
    int32_t *y = NULL;
    *m = (probe_model){ .D = part[0].x.D };
    CLOOB_TRY(check_parts(ctx, part, parts, lambda));
    cloob_status status = find_classes(ctx, &m->classes, &y, part, parts);
    size_t count = (size_t)m->classes.C * (size_t)(m->D + 1);
    if (status == CLOOB_OK) {
        m->C = m->classes.C;
        m->w = calloc(count, sizeof *m->w);
        if (!m->w) status = ctx_no_memory(ctx, count * sizeof *m->w, "weights");
        else if (start) memcpy(m->w, start, count * sizeof *m->w);
    }
    if (status == CLOOB_OK) status = minimize(ctx, m, fit, part, parts, y, lambda, o);
    free(y);
    if (status != CLOOB_OK) probe_model_release(m);
    return status;
}

/* ---- scoring ------------------------------------------------------------------------------------- */

typedef struct scoring {
    float *x, *w, *z;
    int64_t *label;
    int64_t block;
} scoring;

static void score_block(cloob_ctx *ctx, scoring *s, accuracy_counts *t, const probe_model *m, const probe_data *data,
                        int64_t at, int64_t n)
{
    int64_t C = m->C, D = m->D, K = D + 1;
    const float *x = rows_read(&data->x, at, n, s->x);
    for (int64_t i = 0; i < n; i++) s->label[i] = label_set_find(&m->classes, data->y[at + i]);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) s->z[i * C + c] = s->w[c * K + D];
    cpu_sgemm(ctx, false, true, n, C, D, 1, x, D, s->w, K, 1, s->z, C);
    accuracy_add(t, s->z, s->label, n);
}

static cloob_status scoring_init(cloob_ctx *ctx, scoring *s, const probe_model *m, const rows *x)
{
    int64_t C = m->C, K = m->D + 1;
    *s = (scoring){ .block = rows_block(x, SCORE_BYTES) };
    s->x = malloc((size_t)(s->block * m->D) * sizeof *s->x);
    s->w = malloc((size_t)(C * K) * sizeof *s->w);
    s->z = malloc((size_t)(s->block * C) * sizeof *s->z);
    s->label = malloc((size_t)s->block * sizeof *s->label);
    if (!s->x || !s->w || !s->z || !s->label) return ctx_no_memory(ctx, (size_t)(s->block * (m->D + C)) * 4, "scores");
    for (int64_t i = 0; i < C * K; i++) s->w[i] = (float)m->w[i];
    return CLOOB_OK;
}

cloob_status probe_score(cloob_ctx *ctx, accuracy_counts *t, const probe_model *m, const probe_data *data)
{
    scoring s;
    if (data->x.D != m->D)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has %lld dimensions, the probe was trained on %lld", data->x.name,
                        (long long)data->x.D, (long long)m->D);
    CLOOB_TRY(rows_check(ctx, &data->x));
    cloob_status status = scoring_init(ctx, &s, m, &data->x);
    for (int64_t at = 0, n; status == CLOOB_OK && at < data->x.N; at += n) {
        n = at + s.block < data->x.N ? s.block : data->x.N - at;
        score_block(ctx, &s, t, m, data, at, n);
    }
    free(s.x), free(s.w), free(s.z), free(s.label);
    return status;
}
