/* Accuracy by groups of the metadata: WILDS, Dollar Street, GeoDE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/suite/suite.h"
#include "eval/metrics.h"

enum { MAX_GROUPS = 1 << 20 };

typedef struct grouping {
    int64_t size[2]; /* values of each field: the largest and 1 */
    int64_t groups;
    int64_t *of; /* (rows) */
} grouping;

/* Groups count up by the first field, then by the second. */
static cloob_status make_groups(cloob_ctx *ctx, const bench *b, const bench_features *f, const int *column, int fields,
                                grouping *g)
{
    *g = (grouping){ .size = { 1, 1 } };
    if (f->e.rows < 1) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no image to group", b->folder);
    for (int k = 0; k < fields; k++) {
        if (column[k] >= f->targets)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: metadata of %lld numbers, number %d is needed", b->folder,
                            (long long)f->targets, column[k] + 1);
        for (int64_t i = 0; i < f->e.rows; i++) {
            double v = f->target[i * f->targets + column[k]];
            if (!(v >= 0 && v < MAX_GROUPS && v == floor(v)))
                return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: image %lld has %g where a group's number is due", b->folder,
                                (long long)i, v);
            if ((int64_t)v >= g->size[k]) g->size[k] = (int64_t)v + 1;
        }
    }
    g->groups = g->size[0] * g->size[1];
    if (g->groups > MAX_GROUPS)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: %lld groups are too many", b->folder, (long long)g->groups);
    g->of = calloc((size_t)f->e.rows, sizeof *g->of);
    if (!g->of) return ctx_no_memory(ctx, (size_t)f->e.rows * sizeof *g->of, "groups");
    for (int64_t i = 0; i < f->e.rows; i++) {
        const double *row = f->target + i * f->targets;
        g->of[i] = (int64_t)row[column[0]] + (fields > 1 ? g->size[0] * (int64_t)row[column[1]] : 0);
    }
    return CLOOB_OK;
}

static void put_group(bench *b, const char *name, const char *const *field, int fields, const grouping *g, int64_t at,
                      double accuracy, int64_t count)
{
    char group[128];
    if (fields == 1) snprintf(group, sizeof group, "%s:%lld", field[0], (long long)at);
    else
        snprintf(group, sizeof group, "%s:%lld_%s:%lld", field[1], (long long)(at / g->size[0]), field[0],
                 (long long)(at % g->size[0]));
    bench_score_of(b, accuracy, "%s_%s", name, group);
    bench_score_of(b, (double)count, "count_%s", group);
}

cloob_status bench_by_group(cloob_ctx *ctx, bench *b, const bench_features *f, const unsigned char *right,
                            const char *name, const int *column, const char *const *field, int fields)
{
    grouping g;
    int64_t n = f->e.rows, sum = 0;
    CLOOB_TRY(make_groups(ctx, b, f, column, fields, &g));
    double *accuracy = calloc((size_t)g.groups, sizeof *accuracy);
    int64_t *count = calloc((size_t)g.groups, sizeof *count);
    if (accuracy && count) {
        double worst = accuracy_by_group(right, g.of, n, g.groups, accuracy, count);
        for (int64_t i = 0; i < n; i++) sum += right[i] != 0;
        bench_score_of(b, (double)sum / (double)n, "%s_avg", name);
        for (int64_t k = 0; k < g.groups; k++)
            if (count[k]) put_group(b, name, field, fields, &g, k, accuracy[k], count[k]);
        bench_score_of(b, worst, "%s_wg", name);
    }
    bool ok = accuracy && count;
    free(accuracy), free(count), free(g.of);
    return ok ? CLOOB_OK : ctx_no_memory(ctx, (size_t)g.groups * 16, "groups");
}

/* ---- the sets ------------------------------------------------------------------------------------ */

static cloob_status by_one(cloob_ctx *ctx, bench *b, const bench_features *f, const unsigned char *right,
                           const char *name, int column, const char *field)
{
    return bench_by_group(ctx, b, f, right, name, &column, &field, 1);
}

static cloob_status over_classes(cloob_ctx *ctx, bench *b, const bench_answers *a, int64_t C)
{
    class_means m;
    CLOOB_TRY(means_over_classes(ctx, a->label, a->predicted, a->n, C, &m));
    bench_score(b, "acc_avg", benchmark_metric(b->out, "acc1"));
    bench_score(b, "recall-macro_all", m.recall);
    bench_score(b, "F1-macro_all", m.f1);
    return CLOOB_OK;
}

/* WILDS quotes the worst year and the worst region of FMoW by these names. */
static void rename_last(bench *b, const char *from, const char *to)
{
    for (int64_t i = b->out->scores; i-- > 0;) {
        benchmark_score *s = &b->out->score[i];
        if (strcmp(s->name, from) != 0) continue;
        char *name = strdup(to);
        if (name) free(s->name), s->name = name;
        return;
    }
}

static cloob_status by_year_and_region(cloob_ctx *ctx, bench *b, const bench_features *f, const bench_answers *a)
{
    CLOOB_TRY(by_one(ctx, b, f, a->right, "acc", 1, "year"));
    rename_last(b, "acc_wg", "acc_worst_year");
    CLOOB_TRY(by_one(ctx, b, f, a->right, "acc", 0, "region"));
    rename_last(b, "acc_wg", "acc_worst_region");
    return CLOOB_OK;
}

cloob_status task_groups(cloob_ctx *ctx, bench *b, bench_features *f, const bench_answers *a)
{
    if (b->set->protocol == DATACOMP_IWILDCAM) return over_classes(ctx, b, a, f->e.classes);
    CLOOB_TRY(features_add_targets(ctx, b, b->o.split, f));
    switch (b->set->protocol) {
    case DATACOMP_CAMELYON17: return by_one(ctx, b, f, a->right, "acc", 1, "slide");
    case DATACOMP_FMOW: return by_year_and_region(ctx, b, f, a);
    case DATACOMP_DOLLAR_STREET: return by_one(ctx, b, f, a->right5, "acc_top5", 0, "income_ds");
    case DATACOMP_GEODE: return by_one(ctx, b, f, a->right, "acc", 0, "region");
    default: return CLOOB_OK;
    }
}
