#include "eval/metrics/metrics.h"

#include <stdlib.h>

#include "eval/tiles.h"

typedef struct near { /* a training row and its similarity */
    float similarity;
    int64_t row;
} near;

typedef struct search {
    int64_t k;
    near *best;    /* (test rows, k), most similar first */
    int64_t *have; /* (test rows) */
} search;

/* Equal similarities keep the smaller row: tiles of a block come in order of the training rows. */
static void keep(search *s, int64_t i, float similarity, int64_t row)
{
    near *best = s->best + i * s->k;
    int64_t n = s->have[i], at;
    if (n == s->k && !(similarity > best[n - 1].similarity)) return;
    if (n < s->k) s->have[i] = ++n;
    for (at = n - 1; at > 0 && similarity > best[at - 1].similarity; at--) best[at] = best[at - 1];
    best[at] = (near){ similarity, row };
}

static void visit(void *arg, const tile *t)
{
    search *s = arg;
    for (int64_t i = 0; i < t->ni; i++)
        for (int64_t j = 0; j < t->nj; j++) keep(s, t->i0 + i, t->s[i * t->nj + j], t->j0 + j);
}

static int64_t vote(const near *best, int64_t n, const int64_t *label)
{
    int64_t winner = label[best[0].row], max = 0;
    double weight = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t votes = 0;
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            if (label[best[j].row] == label[best[i].row]) votes++, sum += (double)best[j].similarity;
        if (votes < max || (votes == max && sum <= weight)) continue;
        winner = label[best[i].row], max = votes, weight = sum;
    }
    return winner;
}

cloob_status knn_predict(cloob_ctx *ctx, const rows *train, const int64_t *label, const rows *test, int64_t k,
                         int64_t *predicted)
{
    unit_rows a, b;
    if (k < 1 || k > KNN_MAX)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%lld neighbours: 1 to %d are possible", (long long)k, KNN_MAX);
    if (train->D != test->D)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s has rows of %lld, %s of %lld", train->name, (long long)train->D,
                        test->name, (long long)test->D);
    search s = { .k = k < train->N ? k : train->N };
    CLOOB_TRY(unit_rows_init(ctx, &a, test));
    cloob_status status = unit_rows_init(ctx, &b, train);
    if (status != CLOOB_OK) return unit_rows_release(&a), status;
    s.best = malloc((size_t)(test->N * s.k) * sizeof *s.best);
    s.have = calloc((size_t)test->N, sizeof *s.have);
    status = s.best && s.have ? tiles_run(ctx, &a, &b, TILES_ALL, &(tile_visitor){ visit, NULL, &s })
                              : ctx_no_memory(ctx, (size_t)(test->N * s.k) * sizeof *s.best, "neighbours");
    for (int64_t i = 0; i < test->N && status == CLOOB_OK; i++) predicted[i] = vote(s.best + i * s.k, s.have[i], label);
    free(s.best), free(s.have);
    unit_rows_release(&a), unit_rows_release(&b);
    return status;
}
