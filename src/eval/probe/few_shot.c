
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "eval/probe/probe.h"

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

void probe_rows_release(probe_rows *g) { free(g->x), free(g->y); }

cloob_status probe_rows_init(cloob_ctx *ctx, probe_rows *g, const probe_data *from, const int64_t *chosen, int64_t n)
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

static void describe(cloob_few_shot_row *row, int64_t n)
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
        describe(row, o->seeds);
    }
    return CLOOB_OK;
}
