/* A linear probe from search to scores, and probes on a few rows of each class. */
#include "eval/probe/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

typedef struct run {
    cloob_ctx *ctx;
    cloob_probe_result *out;
    const cloob_probe_options *o;
    const probe_data *train, *val, *test; /* val may be NULL */
    int best;                             /* trial of the search */
    probe_model model;                    /* its classifier, trained without the validation rows; owned */
    double *last;                         /* weights of the last trial; owned */
} run;

/* ---- scores -------------------------------------------------------------------------------------- */

static cloob_status score(run *r, const probe_model *m, const probe_data *d, accuracy_result *out)
{
    accuracy_counts t;
    CLOOB_TRY(accuracy_init(r->ctx, &t, m->C, false));
    cloob_status status = probe_score(r->ctx, &t, m, d);
    *out = accuracy_finish(&t);
    accuracy_release(&t);
    return status;
}

/* Classes of the rows that the probe was not trained on: they count as wrong in the mean over classes, as their rows do
 * in the accuracy. */
static cloob_status count_unknown_classes(run *r, const probe_model *m, const probe_data *d, accuracy_result *a)
{
    label_set set;
    int64_t unknown = 0, known = m->C - a->empty;
    CLOOB_TRY(label_set_init(r->ctx, &set, d->y, d->x.N));
    for (int64_t c = 0; c < set.C; c++) unknown += label_set_find(&m->classes, set.value[c]) < 0;
    a->mean_per_class *= (double)known / (double)(known + unknown);
    label_set_release(&set);
    return CLOOB_OK;
}

static cloob_status score_final(run *r, const probe_model *m)
{
    cloob_probe_result *out = r->out;
    accuracy_result train, test, val;
    CLOOB_TRY(score(r, m, r->train, &train));
    CLOOB_TRY(score(r, m, r->test, &test));
    if (test.unknown) CLOOB_TRY(count_unknown_classes(r, m, r->test, &test));
    if (test.unknown)
        ctx_log(r->ctx, CLOOB_LOG_WARN, "%lld of %lld test rows are of classes without training rows: counted as wrong",
                (long long)test.unknown, (long long)test.n);
    out->train_acc = train.top1, out->unknown_labels = test.unknown, out->test_rows = test.n;
    out->test_acc = test.top1, out->test_acc5 = test.top5, out->test_mean_per_class = test.mean_per_class;
    if (!r->val || r->o->search) return CLOOB_OK;
    CLOOB_TRY(score(r, m, r->val, &val));
    out->has_val = true, out->val_acc = val.top1;
    return CLOOB_OK;
}

/* ---- the search for lambda ------------------------------------------------------------------- */

/* CLIP's parametric binary search: lambda = 1e6, 1e4, ..., 1e-6 on the validation rows, then a step to both sides of
 * the best, halved from one decade to an eighth. Among equal accuracies the largest lambda wins. */

enum { COARSE_FIRST = 6, COARSE_LAST = -6, COARSE_STEP = 2 }; /* decades */
static const double FINEST = 0.125;

static bool better(const cloob_probe_trial *a, const cloob_probe_trial *b)
{
    return a->val_acc > b->val_acc || (a->val_acc == b->val_acc && a->lambda > b->lambda);
}

/* Trains from `start` (NULL: zeros) and keeps the model if it is the best so far. */
static cloob_status try_lambda(run *r, const probe_data *train, const probe_data *val, double exponent,
                               const double *start)
{
    probe_model m;
    probe_fit fit;
    accuracy_result result;
    cloob_probe_trial *t = &r->out->trial[r->out->trials];
    CLOOB_TRY(probe_train(r->ctx, &m, &fit, train, 1, pow(10, exponent), start, r->o));
    size_t bytes = (size_t)(m.C * (m.D + 1)) * sizeof *m.w;
    if (!r->last) r->last = malloc(bytes);
    cloob_status status = r->last ? score(r, &m, val, &result) : ctx_no_memory(r->ctx, bytes, "weights");
    if (status != CLOOB_OK) {
        probe_model_release(&m);
        return status;
    }
    *t = (cloob_probe_trial){ fit.lambda, fit.objective, result.top1, fit.iterations, fit.converged };
    ctx_log(r->ctx, CLOOB_LOG_INFO, "lambda %-10.4g validation %.4f  objective %.6g  %d iteration%s%s", t->lambda,
            t->val_acc, t->objective, t->iterations, t->iterations == 1 ? "" : "s",
            t->converged ? "" : " (not converged)");
    memcpy(r->last, m.w, bytes);
    if (r->out->trials == 0 || better(t, &r->out->trial[r->best])) {
        probe_model_release(&r->model);
        r->model = m, r->best = r->out->trials;
    } else probe_model_release(&m);
    r->out->trials++;
    return CLOOB_OK;
}

static cloob_status search(run *r, const probe_data *train, const probe_data *val)
{
    for (int e = COARSE_FIRST; e >= COARSE_LAST; e -= COARSE_STEP) CLOOB_TRY(try_lambda(r, train, val, e, r->last));
    for (double step = 0.5 * COARSE_STEP; step >= FINEST; step *= 0.5) {
        double at = log10(r->out->trial[r->best].lambda);
        for (int side = 1; side >= -1; side -= 2) {
            double e = at + side * step;
            if (e <= COARSE_FIRST + 1e-9 && e >= COARSE_LAST - 1e-9)
                CLOOB_TRY(try_lambda(r, train, val, e, r->model.w));
        }
    }
    return CLOOB_OK;
}

/* The geometric mean of the lambdas that are as good as the best. */
static double mean_of_ties(const run *r)
{
    const cloob_probe_trial *t = r->out->trial;
    double sum = 0;
    int n = 0;
    for (int i = 0; i < r->out->trials; i++)
        if (t[i].val_acc == t[r->best].val_acc) sum += log(t[i].lambda), n++;
    return exp(sum / n);
}

/* ---- some rows of a split --------------------------------------------------------------------------- */

typedef struct probe_rows {
    float *x;   /* (n, D), or NULL: data.x is a view of the split */
    int64_t *y; /* (n) */
    probe_data data;
} probe_rows;

static void probe_rows_release(probe_rows *g) { free(g->x), free(g->y); }

static cloob_status probe_rows_init(cloob_ctx *ctx, probe_rows *g, const probe_data *from, const int64_t *chosen,
                                    int64_t n)
{
    int64_t D = from->x.D;
    *g = (probe_rows){ .x = malloc((size_t)(n * D) * sizeof *g->x), .y = malloc((size_t)n * sizeof *g->y) };
    if (!g->x || !g->y) return ctx_no_memory(ctx, (size_t)(n * D) * sizeof *g->x, "rows of a probe");
    for (int64_t i = 0; i < n; i++) {
        const float *row = rows_read(&from->x, chosen[i], 1, g->x + i * D);
        if (row != g->x + i * D) memcpy(g->x + i * D, row, (size_t)D * sizeof *row);
        g->y[i] = from->y[chosen[i]];
    }
    g->data = (probe_data){ { g->x, CLOOB_F32, n, D, 1, from->x.name }, g->y };
    return CLOOB_OK;
}

/* The second half validates when there is no validation split. Every other row, so that rows sorted by class are split
 * evenly; or a random half. */
static cloob_status halve(cloob_ctx *ctx, probe_rows half[2], const probe_data *d, const cloob_probe_options *o)
{
    int64_t n = d->x.N, first = (n + 1) / 2;
    uint64_t key = rng_key(o->seed, "probe/half");
    if (n < 4)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld rows cannot be halved for a search; give `lambda`", d->x.name,
                        (long long)n);
    if (!o->random_half) {
        for (int k = 0; k < 2; k++) {
            rows x = rows_every(&d->x, 2, k);
            int64_t *y = half[k].y = malloc((size_t)x.N * sizeof *y);
            if (!y) return ctx_no_memory(ctx, (size_t)x.N * sizeof *y, "labels");
            for (int64_t i = 0; i < x.N; i++) y[i] = d->y[2 * i + k];
            x.name = "every other training row, used by the search without a validation split";
            half[k].data = (probe_data){ x, y };
        }
        return CLOOB_OK;
    }
    int64_t *order = malloc((size_t)n * sizeof *order);
    if (!order) return ctx_no_memory(ctx, (size_t)n * sizeof *order, "labels");
    for (int64_t i = 0; i < n; i++) order[i] = (int64_t)rng_permute(key, (uint64_t)i, (uint64_t)n);
    cloob_status status = probe_rows_init(ctx, &half[0], d, order, first);
    if (status == CLOOB_OK) status = probe_rows_init(ctx, &half[1], d, order + first, n - first);
    free(order);
    return status;
}

/* ---- training ------------------------------------------------------------------------------------ */

static void log_plan(run *r, const probe_plan *p)
{
    ctx_log(r->ctx, CLOOB_LOG_INFO,
            "plan: %lld x %lld features stay mapped (%.1f MiB), %lld classes, %lld block%s of %lld rows, "
            "%.1f MiB in memory, %.3g GFLOP an evaluation, in %s",
            (long long)p->N, (long long)p->D, (double)p->feature_bytes / 1048576.0, (long long)p->C,
            (long long)p->blocks, p->blocks == 1 ? "" : "s", (long long)p->block_rows,
            (double)p->memory_bytes / 1048576.0, p->flops * 1e-9, p->wide ? "double" : "float");
}

static cloob_status plan(run *r)
{
    label_set set;
    CLOOB_TRY(label_set_init(r->ctx, &set, r->train->y, r->train->x.N));
    probe_plan p = probe_plan_make(r->train, set.C, r->ctx->threads);
    log_plan(r, &p);
    r->out->class_gaps = set.gaps;
    if (set.gaps)
        ctx_log(r->ctx, CLOOB_LOG_WARN, "%s: %lld of the labels 0 to %lld have no training row; they are not classes",
                r->train->x.name, (long long)set.gaps, (long long)set.value[set.C - 1]);
    label_set_release(&set);
    return CLOOB_OK;
}

/* Trains on `parts` splits and hands the parameters to the result. */
static cloob_status train_final(run *r, const probe_data *part, int parts, double lambda, const probe_model *from)
{
    cloob_probe_result *out = r->out;
    probe_model m;
    probe_fit fit;
    label_set set;
    const double *start = NULL;
    CLOOB_TRY(label_set_init(r->ctx, &set, part[0].y, part[0].x.N)); /* a start is usable only if no class was added */
    if (from && parts == 1 && set.C == from->C) start = from->w;
    label_set_release(&set);
    CLOOB_TRY(probe_train(r->ctx, &m, &fit, part, parts, lambda, start, r->o));
    out->lambda = fit.lambda, out->objective = fit.objective, out->coef_norm = fit.coef_norm;
    out->iterations = fit.iterations, out->evaluations = fit.evaluations, out->converged = fit.converged;
    out->dimensions = m.D, out->classes = m.C;
    for (int k = 0; k < parts; k++) out->trained_rows += part[k].x.N;
    if (!fit.converged)
        ctx_log(r->ctx, CLOOB_LOG_WARN,
                "not converged after %d iterations; the objective may still be above its minimum", fit.iterations);
    cloob_status status = score_final(r, &m);
    out->weight = m.w, out->label = m.classes.value;
    return status;
}

static cloob_status search_then_train(run *r)
{
    probe_rows half[2] = { { 0 }, { 0 } };
    accuracy_result without_val;
    cloob_status status = r->val ? CLOOB_OK : halve(r->ctx, half, r->train, r->o);
    if (status == CLOOB_OK) status = r->val ? search(r, r->train, r->val) : search(r, &half[0].data, &half[1].data);
    probe_rows_release(&half[0]), probe_rows_release(&half[1]);
    CLOOB_TRY(status);
    CLOOB_TRY(score(r, &r->model, r->test, &without_val));
    r->out->searched_test_acc = without_val.top1;
    r->out->val_acc = r->out->trial[r->best].val_acc, r->out->has_val = true;
    probe_data both[2] = { *r->train, r->val ? *r->val : *r->train };
    double lambda = r->o->ties_mean ? mean_of_ties(r) : r->out->trial[r->best].lambda;
    return train_final(r, both, r->val && r->o->refit_all ? 2 : 1, lambda, &r->model);
}

cloob_status probe_run(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o, const probe_data *train,
                       const probe_data *val, const probe_data *test)
{
    run r = { .ctx = ctx, .out = out, .o = o, .train = train, .val = val, .test = test };
    memset(out, 0, sizeof *out);
    cloob_status status = plan(&r);
    if (status == CLOOB_OK) status = o->search ? search_then_train(&r) : train_final(&r, train, 1, o->lambda, NULL);
    probe_model_release(&r.model);
    free(r.last);
    return status;
}

void cloob_probe_release(cloob_probe_result *r)
{
    if (!r) return;
    free(r->weight), free(r->label);
    r->weight = NULL, r->label = NULL;
}

/* ---- few shots -------------------------------------------------------------------------------------- */

/* Rows of one class in the order of the split: `row` holds all of them. */
static int64_t rows_of_class(const probe_data *d, int64_t label, int64_t *row)
{
    int64_t n = 0;
    for (int64_t i = 0; i < d->x.N; i++)
        if (d->y[i] == label) row[n++] = i;
    return n;
}

cloob_status few_shot_choose(cloob_ctx *ctx, const probe_data *train, int64_t shots, uint64_t seed, int64_t *chosen,
                             int64_t *n)
{
    label_set set;
    *n = 0;
    CLOOB_TRY(label_set_init(ctx, &set, train->y, train->x.N));
    int64_t *row = malloc((size_t)train->x.N * sizeof *row);
    cloob_status status = row ? CLOOB_OK : ctx_no_memory(ctx, (size_t)train->x.N * sizeof *row, "labels");
    uint64_t key = rng_key(seed, "few-shot");
    for (int64_t c = 0; c < set.C && status == CLOOB_OK; c++) {
        int64_t have = rows_of_class(train, set.value[c], row);
        uint64_t own = rng_subkey(key, (uint64_t)set.value[c]);
        if (have < shots)
            status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: class %lld has %lld rows, `shots` asks for %lld",
                              train->x.name, (long long)set.value[c], (long long)have, (long long)shots);
        for (int64_t k = 0; k < shots && status == CLOOB_OK; k++)
            chosen[(*n)++] = row[rng_permute(own, (uint64_t)k, (uint64_t)have)];
    }
    free(row);
    label_set_release(&set);
    return status;
}

static cloob_status gather(cloob_ctx *ctx, const probe_data *from, int64_t shots, uint64_t seed, probe_rows *g)
{
    int64_t n, *chosen = malloc((size_t)from->x.N * sizeof *chosen);
    *g = (probe_rows){ 0 };
    if (!chosen) return ctx_no_memory(ctx, (size_t)from->x.N * sizeof *chosen, "few shots");
    cloob_status status = few_shot_choose(ctx, from, shots, seed, chosen, &n);
    if (status == CLOOB_OK) status = probe_rows_init(ctx, g, from, chosen, n);
    free(chosen);
    return status;
}

static cloob_status one_draw(cloob_ctx *ctx, const few_shot_options *o, const probe_data *train, const probe_data *val,
                             const probe_data *test, int64_t shots, uint64_t seed, few_shot_draw *out)
{
    probe_rows g;
    cloob_probe_result r = { 0 };
    cloob_probe_options p = o->probe;
    if (!val && p.search) p.search = false, p.lambda = FEW_SHOT_LAMBDA;
    p.refit_all = false; /* the validation rows would be more shots */
    cloob_status status = gather(ctx, train, shots, seed, &g);
    if (status == CLOOB_OK) status = probe_run(ctx, &r, &p, &g.data, val, test);
    *out = (few_shot_draw){ r.lambda, r.test_acc, r.test_acc5, r.test_mean_per_class };
    cloob_probe_release(&r);
    probe_rows_release(&g);
    return status;
}

static void describe_draws(few_shot_row *row, int64_t n)
{
    double square = 0;
    row->mean = 0, row->deviation = 0;
    for (int64_t i = 0; i < n; i++) row->mean += row->draw[i].test_acc / (double)n;
    for (int64_t i = 0; i < n; i++) square += (row->draw[i].test_acc - row->mean) * (row->draw[i].test_acc - row->mean);
    if (n > 1) row->deviation = sqrt(square / (double)(n - 1));
}

cloob_status few_shot_run(cloob_ctx *ctx, few_shot_result *out, const few_shot_options *o, const probe_data *train,
                          const probe_data *val, const probe_data *test)
{
    *out = (few_shot_result){ .rows = o->shots_count, .seeds = o->seeds };
    if (o->shots_count < 1 || o->shots_count > FEW_SHOT_ROWS || o->seeds < 1 || o->seeds > FEW_SHOT_SEEDS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`shots` must be at most %d numbers, and `seeds` from 1 to %d",
                        FEW_SHOT_ROWS, FEW_SHOT_SEEDS);
    for (int64_t k = 0; k < o->shots_count; k++) {
        few_shot_row *row = &out->row[k];
        row->shots = o->shots[k];
        if (row->shots < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`shots`: %lld", (long long)row->shots);
        for (int64_t s = 0; s < o->seeds; s++)
            CLOOB_TRY(one_draw(ctx, o, train, val, test, row->shots, o->seed + (uint64_t)s, &row->draw[s]));
        describe_draws(row, o->seeds);
    }
    return CLOOB_OK;
}
