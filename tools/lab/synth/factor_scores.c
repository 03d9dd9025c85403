/* Every factor on its own, from the same rows. */
#include "lab/synth/world_truth.h"

#include <stdlib.h>
#include <string.h>

#include "eval/probe/probe.h"
#include "eval/labels.h"
#include "tensor/cpu/gemm.h"

enum { BLOCK_BYTES = 1 << 20 };

typedef struct halves {
    probe_data train, test;
    int64_t *y; /* owned: labels of the training rows, then of the test rows */
} halves;

static cloob_status split(cloob_ctx *ctx, halves *h, const rows *x, const factor *f)
{
    h->train.x = rows_every(x, 2, 0), h->test.x = rows_every(x, 2, 1);
    h->y = malloc((size_t)x->N * sizeof *h->y);
    if (!h->y) return ctx_no_memory(ctx, (size_t)x->N * sizeof *h->y, "labels");
    h->train.y = h->y, h->test.y = h->y + h->train.x.N;
    for (int64_t i = 0; i < x->N; i++) {
        if (f->label[i] < 0 || f->label[i] >= f->C)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "factor %s: image %lld has value %lld of 0 to %lld", f->name,
                            (long long)i, (long long)f->label[i], (long long)f->C - 1);
        h->y[i % 2 ? h->train.x.N + i / 2 : i / 2] = f->label[i];
    }
    return CLOOB_OK;
}

static cloob_status chance(cloob_ctx *ctx, double *share, const probe_data *d, int64_t C)
{
    int64_t *count = calloc((size_t)C, sizeof *count), largest = 0;
    if (!count) return ctx_no_memory(ctx, (size_t)C * sizeof *count, "counts");
    for (int64_t i = 0; i < d->x.N; i++) count[d->y[i]]++;
    for (int64_t c = 0; c < C; c++) largest = count[c] > largest ? count[c] : largest;
    free(count);
    *share = (double)largest / (double)d->x.N;
    return CLOOB_OK;
}

static cloob_status run_zeroshot(cloob_ctx *ctx, double *accuracy, const probe_data *d, const factor *f)
{
    int64_t D = d->x.D, block = rows_block(&d->x, BLOCK_BYTES);
    float *x = malloc((size_t)(block * D) * sizeof *x), *z = malloc((size_t)(block * f->C) * sizeof *z);
    accuracy_counts t = { 0 };
    cloob_status status = x && z ? accuracy_init(ctx, &t, f->C, false) : ctx_no_memory(ctx, BLOCK_BYTES, "scores");
    for (int64_t at = 0, n; at < d->x.N && status == CLOOB_OK; at += n) {
        n = d->x.N - at < block ? d->x.N - at : block;
        cpu_sgemm(ctx, false, true, n, f->C, D, 1, rows_read(&d->x, at, n, x), D, f->weight, D, 0, z, f->C);
        accuracy_add(&t, z, d->y + at, n);
    }
    if (status == CLOOB_OK) *accuracy = accuracy_finish(&t).top1;
    accuracy_release(&t);
    free(x), free(z);
    return status;
}

static cloob_status run_probe(cloob_ctx *ctx, double *accuracy, const halves *h, double lambda)
{
    probe_options o = { .max_iterations = 1000 };
    probe_model m;
    probe_fit fit;
    accuracy_counts t;
    CLOOB_TRY(probe_train(ctx, &m, &fit, &h->train, 1, lambda, NULL, &o));
    cloob_status status = accuracy_init(ctx, &t, m.C, false);
    if (status == CLOOB_OK) {
        status = probe_score(ctx, &t, &m, &h->test);
        *accuracy = accuracy_finish(&t).top1;
        accuracy_release(&t);
    }
    probe_model_release(&m);
    return status;
}

static cloob_status run_factor(cloob_ctx *ctx, factor_score *s, const rows *x, const factor *f, double lambda)
{
    halves h = { 0 };
    *s = (factor_score){ .zeroshot = -1 };
    cloob_status status = split(ctx, &h, x, f);
    if (status == CLOOB_OK) status = chance(ctx, &s->chance, &h.test, f->C);
    if (status == CLOOB_OK && f->weight) status = run_zeroshot(ctx, &s->zeroshot, &h.test, f);
    if (status == CLOOB_OK) status = run_probe(ctx, &s->probe, &h, lambda);
    free(h.y);
    if (status != CLOOB_OK) return ctx_wrap(ctx, status, "factor %s", f->name);
    double kept = s->chance < 1 ? (s->probe - s->chance) / (1 - s->chance) : 0;
    s->kept = kept < 0 ? 0 : kept;
    return CLOOB_OK;
}

cloob_status factors_run(cloob_ctx *ctx, factor_score *score, factor_summary *sum, const rows *x, const factor *f,
                         int64_t F, double lambda)
{
    int64_t shown = 0;
    memset(sum, 0, sizeof *sum);
    if (x->N < 4)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s: %lld images are too few to train and test on", x->name,
                        (long long)x->N);
    CLOOB_TRY(rows_check(ctx, x));
    for (int64_t k = 0; k < F; k++) {
        CLOOB_TRY(run_factor(ctx, &score[k], x, &f[k], lambda));
        sum->kept += score[k].kept;
        sum->probe += score[k].probe / (double)F;
        if (f[k].weight) sum->zeroshot += score[k].zeroshot, shown++;
    }
    if (shown) sum->zeroshot /= (double)shown;
    return CLOOB_OK;
}
