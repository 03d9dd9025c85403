/* Trials in a fixed order; see the header. */
#include "eval/probe/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

cloob_status probe_search_run(cloob_ctx *ctx, probe_search *out, const probe_data *train, int parts,
                              const probe_data *val, const probe_options *o)
{
    search s = { ctx, out, train, val, parts, o };
    memset(out, 0, sizeof *out);
    cloob_status status = coarse(&s);
    if (status == CLOOB_OK) status = refine(&s);
    if (status != CLOOB_OK) probe_search_release(out);
    return status;
}

void probe_search_release(probe_search *s) { probe_model_release(&s->model); }
