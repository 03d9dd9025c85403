/* Accuracy by groups of the metadata: WILDS, Dollar Street, GeoDE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/memory.h"
#include "lab/suite/suite.h"
#include "eval/metrics.h"

enum { MAX_GROUPS = 1 << 20 };

/* The group of each row, column `column` of the targets, and the largest + 1. The caller frees *of. */
static cloob_status read_groups(cloob_ctx *ctx, const bench *b, const bench_features *f, int column, int64_t **of,
                                int64_t *groups)
{
    *groups = 1;
    if (f->e.rows < 1) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no image to group", b->folder);
    if (column >= f->targets)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: the metadata has %lld numbers; number %d is required", b->folder,
                        (long long)f->targets, column + 1);
    *of = must(calloc((size_t)f->e.rows, sizeof **of));
    for (int64_t i = 0; i < f->e.rows; i++) {
        double v = f->target[i * f->targets + column];
        if (!(v >= 0 && v < MAX_GROUPS && v == floor(v))) {
            free(*of);
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: image %lld has %g, which is not the number of a group",
                            b->folder, (long long)i, v);
        }
        (*of)[i] = (int64_t)v;
        if ((*of)[i] >= *groups) *groups = (*of)[i] + 1;
    }
    return CLOOB_OK;
}

/* NAME_avg, NAME_FIELD:VALUE and count_FIELD:VALUE of every group that has rows, NAME_WORST; the groups are the values
 * of a column of the targets. */
static cloob_status by_group(cloob_ctx *ctx, bench *b, const bench_features *f, const unsigned char *right,
                             const char *name, int column, const char *field, const char *worst_name)
{
    int64_t n = f->e.rows, sum = 0, groups, *of = NULL;
    CLOOB_TRY(read_groups(ctx, b, f, column, &of, &groups));
    double *accuracy = must(calloc((size_t)groups, sizeof *accuracy));
    int64_t *count = must(calloc((size_t)groups, sizeof *count));
    double worst = accuracy_by_group(right, of, n, groups, accuracy, count);
    for (int64_t i = 0; i < n; i++) sum += right[i] != 0;
    bench_score_of(b, (double)sum / (double)n, "%s_avg", name);
    for (int64_t k = 0; k < groups; k++) {
        if (!count[k]) continue;
        bench_score_of(b, accuracy[k], "%s_%s:%lld", name, field, (long long)k);
        bench_score_of(b, (double)count[k], "count_%s:%lld", field, (long long)k);
    }
    bench_score_of(b, worst, "%s_%s", name, worst_name);
    free(accuracy), free(count), free(of);
    return CLOOB_OK;
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

cloob_status task_groups(cloob_ctx *ctx, bench *b, bench_features *f, const bench_answers *a)
{
    if (b->set->protocol == DATACOMP_IWILDCAM) return over_classes(ctx, b, a, f->e.classes);
    CLOOB_TRY(features_add_targets(ctx, b, f));
    switch (b->set->protocol) {
    case DATACOMP_CAMELYON17: return by_group(ctx, b, f, a->right, "acc", 1, "slide", "wg");
    case DATACOMP_FMOW: /* WILDS quotes the worst year and the worst region */
        CLOOB_TRY(by_group(ctx, b, f, a->right, "acc", 1, "year", "worst_year"));
        return by_group(ctx, b, f, a->right, "acc", 0, "region", "worst_region");
    case DATACOMP_DOLLAR_STREET: return by_group(ctx, b, f, a->right5, "acc_top5", 0, "income_ds", "wg");
    case DATACOMP_GEODE: return by_group(ctx, b, f, a->right, "acc", 0, "region", "wg");
    default: return CLOOB_OK;
    }
}
