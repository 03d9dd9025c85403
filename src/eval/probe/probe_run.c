/* The search for lambda, and the whole probe: search, train, score. */
#include "core/rng.h"
#include "eval/probe/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/rows.h"
#include "eval/probe/probe_gpu.h"

/* ---- the search for lambda ------------------------------------------------------------------- */

/* The strength of the probe's regularisation by CLIP's parametric binary search: lambda = 1e-6, 1e-4, ...,
 * 1e6 on the validation rows, then a step to both sides of the best, halved from one decade to an eighth.
 * Among equal accuracies the strongest lambda wins. */

typedef struct probe_search {
    cloob_probe_trial trial[CLOOB_PROBE_TRIALS]; /* in the order tried */
    int trials;
    int best;          /* index of the winner */
    probe_model model; /* the winner's, trained on `train` only; owned */
} probe_search;

enum { COARSE_FIRST = 6, COARSE_LAST = -6, COARSE_STEP = 2 }; /* decades, strongest first */
static const double FINEST = 0.125;

typedef struct search {
    cloob_ctx *ctx;
    probe_search *out;
    const probe_data *train, *val;
    int parts;
    const probe_options *o;
} search;

static cloob_status measure_accuracy(search *s, const probe_model *m, double *acc)
{
    accuracy_counts t;
    CLOOB_TRY(accuracy_init(s->ctx, &t, m->C, false));
    cloob_status status = probe_score(s->ctx, &t, m, s->val, s->o->gpu);
    *acc = accuracy_finish(&t).top1;
    accuracy_release(&t);
    return status;
}

static bool better(const cloob_probe_trial *a, const cloob_probe_trial *b)
{
    return a->val_acc > b->val_acc || (a->val_acc == b->val_acc && a->lambda > b->lambda);
}

/* Keeps the better model; the other one is dropped. */
static void keep(search *s, probe_model *m)
{
    probe_search *out = s->out;
    int i = out->trials - 1;
    if (i > 0 && !better(&out->trial[i], &out->trial[out->best])) {
        probe_model_release(m);
        return;
    }
    probe_model_release(&out->model);
    out->model = *m;
    out->best = i;
}

static cloob_status try_lambda(search *s, double exponent, const double *start, double *next_start)
{
    probe_model m;
    probe_fit fit;
    cloob_probe_trial *t = &s->out->trial[s->out->trials];
    CLOOB_TRY(probe_train(s->ctx, &m, &fit, s->train, s->parts, pow(10, exponent), start, s->o));
    *t = (cloob_probe_trial){ fit.lambda, fit.objective, 0, fit.iterations, fit.converged };
    cloob_status status = measure_accuracy(s, &m, &t->val_acc);
    if (status != CLOOB_OK) {
        probe_model_release(&m);
        return status;
    }
    ctx_log(s->ctx, CLOOB_LOG_INFO, "lambda %-10.4g validation %.4f  objective %.6g  %d iterations%s", t->lambda,
            t->val_acc, t->objective, t->iterations, t->converged ? "" : " (not converged)");
    if (next_start) memcpy(next_start, m.w, (size_t)(m.C * (m.D + 1)) * sizeof *m.w);
    s->out->trials++;
    keep(s, &m);
    return CLOOB_OK;
}

static cloob_status coarse(search *s)
{
    double *last = NULL; /* parameters of the trial before; their number is known after the first */
    cloob_status status = CLOOB_OK;
    for (int e = COARSE_FIRST; e >= COARSE_LAST && status == CLOOB_OK; e -= COARSE_STEP) {
        status = try_lambda(s, e, last, last);
        if (status == CLOOB_OK && !last) {
            size_t bytes = (size_t)(s->out->model.C * (s->out->model.D + 1)) * sizeof *last;
            last = malloc(bytes);
            if (!last) return ctx_no_memory(s->ctx, bytes, "weights");
            memcpy(last, s->out->model.w, bytes);
        }
    }
    free(last);
    return status;
}

static cloob_status refine(search *s)
{
    for (double step = 0.5 * COARSE_STEP; step >= FINEST; step *= 0.5) {
        double at = log10(s->out->trial[s->out->best].lambda);
        for (int side = 1; side >= -1; side -= 2) {
            double e = at + side * step;
            if (e <= COARSE_FIRST + 1e-9 && e >= COARSE_LAST - 1e-9) CLOOB_TRY(try_lambda(s, e, s->out->model.w, NULL));
        }
    }
    return CLOOB_OK;
}

/* Each training starts from the parameters of the last one, so that fifteen cost little more than a few. */
static cloob_status probe_search_run(cloob_ctx *ctx, probe_search *out, const probe_data *train, int parts,
                                     const probe_data *val, const probe_options *o)
{
    search s = { ctx, out, train, val, parts, o };
    memset(out, 0, sizeof *out);
    cloob_status status = coarse(&s);
    if (status == CLOOB_OK) status = refine(&s);
    if (status != CLOOB_OK) probe_model_release(&out->model);
    return status;
}

/* ---- the whole probe ------------------------------------------------------------------------- */

typedef struct run {
    cloob_ctx *ctx;
    cloob_probe_result *out;
    const cloob_probe_options *o;
    probe_options training;
    const probe_data *train, *val, *test; /* val may be NULL */
    device *gpu;                          /* NULL: none */
} run;

/* Copies of chosen rows of a split, as float. */
typedef struct probe_rows {
    float *x; /* (n, D) */
    int64_t *y;
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

/* The half that validates when there is no validation split: every other row, so that rows sorted by class are shared
 * out evenly; or a random half. */
typedef struct halves {
    probe_data part[2];
    int64_t *y[2]; /* owned */
    probe_rows drawn[2];
} halves;

static cloob_status every_other(cloob_ctx *ctx, halves *h, const probe_data *d)
{
    for (int k = 0; k < 2; k++) {
        h->part[k].x = rows_every(&d->x, 2, k);
        h->y[k] = malloc((size_t)h->part[k].x.N * sizeof *h->y[k]);
        if (!h->y[k]) return ctx_no_memory(ctx, (size_t)d->x.N * sizeof *h->y[k], "labels");
        for (int64_t i = 0; i < h->part[k].x.N; i++) h->y[k][i] = d->y[2 * i + k];
        h->part[k].y = h->y[k];
    }
    return CLOOB_OK;
}

static cloob_status draw_halves(cloob_ctx *ctx, halves *h, const probe_data *d, uint64_t seed)
{
    int64_t n = d->x.N, first = (n + 1) / 2, *order = malloc((size_t)n * sizeof *order);
    uint64_t key = rng_key(seed, "probe/half");
    if (!order) return ctx_no_memory(ctx, (size_t)n * sizeof *order, "labels");
    for (int64_t i = 0; i < n; i++) order[i] = (int64_t)rng_permute(key, (uint64_t)i, (uint64_t)n);
    cloob_status status = probe_rows_init(ctx, &h->drawn[0], d, order, first);
    if (status == CLOOB_OK) status = probe_rows_init(ctx, &h->drawn[1], d, order + first, n - first);
    for (int k = 0; k < 2; k++) h->part[k] = h->drawn[k].data;
    free(order);
    return status;
}

static cloob_status halves_init(cloob_ctx *ctx, halves *h, const probe_data *d, const cloob_probe_options *o)
{
    memset(h, 0, sizeof *h);
    if (d->x.N < 4)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld rows cannot be halved for a search; give `lambda`", d->x.name,
                        (long long)d->x.N);
    return o->random_half ? draw_halves(ctx, h, d, o->seed) : every_other(ctx, h, d);
}

static void halves_release(halves *h)
{
    for (int k = 0; k < 2; k++) free(h->y[k]), probe_rows_release(&h->drawn[k]);
}

/* The geometric mean of the lambdas that are as good as the best. */
static double mean_of_ties(const probe_search *s)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < s->trials; i++)
        if (s->trial[i].val_acc == s->trial[s->best].val_acc) sum += log(s->trial[i].lambda), n++;
    return exp(sum / n);
}

/* ---- scores -------------------------------------------------------------------------------------- */

static cloob_status score(run *r, const probe_model *m, const probe_data *d, double *acc, accuracy_result *all,
                          int64_t *unknown_labels)
{
    accuracy_counts t;
    CLOOB_TRY(accuracy_init(r->ctx, &t, m->C, false));
    cloob_status status = probe_score(r->ctx, &t, m, d, r->training.gpu);
    accuracy_result result = accuracy_finish(&t);
    *acc = result.top1;
    if (all) *all = result;
    if (unknown_labels) *unknown_labels = t.unknown;
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
    accuracy_result test;
    CLOOB_TRY(score(r, m, r->train, &out->train_acc, NULL, NULL));
    CLOOB_TRY(score(r, m, r->test, &out->test_acc, &test, &out->unknown_labels));
    if (out->unknown_labels) CLOOB_TRY(count_unknown_classes(r, m, r->test, &test));
    out->test_mean_per_class = test.mean_per_class, out->test_acc5 = test.top5;
    out->test_rows = r->test->x.N;
    if (out->unknown_labels)
        ctx_log(r->ctx, CLOOB_LOG_WARN, "%lld of %lld test rows are of classes without training rows: counted as wrong",
                (long long)out->unknown_labels, (long long)r->test->x.N);
    if (r->val && !r->o->search) {
        out->has_val = true;
        CLOOB_TRY(score(r, m, r->val, &out->val_acc, NULL, NULL));
    }
    return CLOOB_OK;
}

/* ---- training ------------------------------------------------------------------------------------ */

static void log_plan(run *r, const probe_plan *p)
{
    ctx_log(r->ctx, CLOOB_LOG_INFO,
            "plan: %lld x %lld features stay mapped (%.1f MiB), %lld classes, %lld blocks of %lld rows, %.1f "
            "MiB in memory, "
            "%.3g GFLOP an evaluation, in %s",
            (long long)p->N, (long long)p->D, (double)p->feature_bytes / 1048576.0, (long long)p->C,
            (long long)p->blocks, (long long)p->block_rows, (double)p->memory_bytes / 1048576.0, p->flops * 1e-9,
            p->wide ? "double" : "float");
}

enum { EVALUATIONS = 50 }; /* that a training takes, or so */

static cloob_status plan(run *r, const char *device_name)
{
    label_set set;
    CLOOB_TRY(label_set_init(r->ctx, &set, r->train->y, r->train->x.N));
    probe_plan p = probe_plan_make(r->train, set.C, r->ctx->threads, false);
    cloob_status status = eval_device_open(r->ctx, device_name, p.wide ? 0 : p.flops * EVALUATIONS, &r->gpu);
    if (status == CLOOB_OK && r->gpu && !p.wide) {
        p = probe_plan_make(r->train, set.C, r->ctx->threads, true);
        status = probe_gpu_create(r->ctx, r->gpu, 0, &r->training.gpu);
    }
    if (status == CLOOB_OK) log_plan(r, &p);
    r->out->class_gaps = set.gaps;
    if (set.gaps)
        ctx_log(r->ctx, CLOOB_LOG_WARN, "%s: %lld of the labels 0 to %lld have no training row; they are no classes",
                r->train->x.name, (long long)set.gaps, (long long)set.value[set.C - 1]);
    label_set_release(&set);
    return status;
}

/* Trains on `parts` splits and hands the parameters to the result. */
static cloob_status train_final(run *r, const probe_data *part, int parts, double lambda, const probe_model *from)
{
    cloob_probe_result *out = r->out;
    probe_model m;
    probe_fit fit;
    label_set set;
    const double *start = NULL;
    CLOOB_TRY(label_set_init(r->ctx, &set, part[0].y, part[0].x.N)); /* a start fits when no class was added */
    if (from && parts == 1 && set.C == from->C) start = from->w;
    label_set_release(&set);
    CLOOB_TRY(probe_train(r->ctx, &m, &fit, part, parts, lambda, start, &r->training));
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
    probe_search s;
    halves h = { 0 };
    const probe_data *train = r->train, *val = r->val;
    cloob_status status = CLOOB_OK;
    if (!val) {
        status = halves_init(r->ctx, &h, r->train, r->o);
        train = &h.part[0], val = &h.part[1];
    }
    if (status == CLOOB_OK) status = probe_search_run(r->ctx, &s, train, 1, val, &r->training);
    if (status != CLOOB_OK) {
        halves_release(&h);
        return status;
    }
    cloob_probe_trial best = s.trial[s.best];
    if (r->o->ties_mean) best.lambda = mean_of_ties(&s);
    memcpy(r->out->trial, s.trial, sizeof s.trial);
    r->out->trials = s.trials, r->out->val_acc = best.val_acc, r->out->has_val = true;
    status = score(r, &s.model, r->test, &r->out->searched_test_acc, NULL, NULL);
    probe_data both[2] = { *r->train, r->val ? *r->val : *r->train };
    int parts = r->val && r->o->refit_all ? 2 : 1;
    if (status == CLOOB_OK) status = train_final(r, both, parts, best.lambda, &s.model);
    probe_model_release(&s.model);
    halves_release(&h);
    return status;
}

cloob_status probe_run(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o, const probe_data *train,
                       const probe_data *val, const probe_data *test)
{
    run r = { ctx, out, o, { o->max_iterations, o->tolerance, NULL }, train, val, test, NULL };
    memset(out, 0, sizeof *out);
    cloob_status status = plan(&r, o->device);
    if (status == CLOOB_OK) status = o->search ? search_then_train(&r) : train_final(&r, train, 1, o->lambda, NULL);
    probe_gpu_destroy(r.training.gpu);
    device_close(r.gpu);
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

static cloob_status one_draw(cloob_ctx *ctx, const cloob_few_shot_options *o, const probe_data *train,
                             const probe_data *val, const probe_data *test, int64_t shots, uint64_t seed,
                             cloob_few_shot_draw *out)
{
    probe_rows g;
    cloob_probe_result r = { 0 };
    cloob_probe_options p = o->probe;
    if (!val && p.search) p.search = false, p.lambda = CLOOB_FEW_SHOT_LAMBDA;
    p.refit_all = false; /* the validation rows would be more shots */
    cloob_status status = gather(ctx, train, shots, seed, &g);
    if (status == CLOOB_OK) status = probe_run(ctx, &r, &p, &g.data, val, test);
    *out = (cloob_few_shot_draw){ r.lambda, r.test_acc, r.test_acc5, r.test_mean_per_class };
    cloob_probe_release(&r);
    probe_rows_release(&g);
    return status;
}

static void describe_draws(cloob_few_shot_row *row, int64_t n)
{
    double square = 0;
    row->mean = 0, row->deviation = 0;
    for (int64_t i = 0; i < n; i++) row->mean += row->draw[i].test_acc / (double)n;
    for (int64_t i = 0; i < n; i++) square += (row->draw[i].test_acc - row->mean) * (row->draw[i].test_acc - row->mean);
    if (n > 1) row->deviation = sqrt(square / (double)(n - 1));
}

cloob_status few_shot_run(cloob_ctx *ctx, cloob_few_shot_result *out, const cloob_few_shot_options *o,
                          const probe_data *train, const probe_data *val, const probe_data *test)
{
    *out = (cloob_few_shot_result){ .rows = o->shots_count, .seeds = o->seeds };
    if (o->shots_count < 1 || o->shots_count > CLOOB_FEW_SHOT_ROWS || o->seeds < 1 || o->seeds > CLOOB_FEW_SHOT_SEEDS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`shots`: up to %d numbers, each drawn 1 to %d times (`seeds`)",
                        CLOOB_FEW_SHOT_ROWS, CLOOB_FEW_SHOT_SEEDS);
    for (int64_t k = 0; k < o->shots_count; k++) {
        cloob_few_shot_row *row = &out->row[k];
        row->shots = o->shots[k];
        if (row->shots < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`shots`: %lld", (long long)row->shots);
        for (int64_t s = 0; s < o->seeds; s++)
            CLOOB_TRY(one_draw(ctx, o, train, val, test, row->shots, o->seed + (uint64_t)s, &row->draw[s]));
        describe_draws(row, o->seeds);
    }
    return CLOOB_OK;
}
