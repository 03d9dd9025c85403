/* Accuracy by groups of the metadata: WILDS, Dollar Street, GeoDE, FairFace, UTKFace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/memory.h"
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
    g->of = must(calloc((size_t)f->e.rows, sizeof *g->of));
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

/* NAME_avg, NAME_FIELD:VALUE and count_FIELD:VALUE of every group that has rows, NAME_wg; the groups are those of
 * `fields` columns of the targets, the last of them first in the name, as WILDS writes it. */
static cloob_status by_group(cloob_ctx *ctx, bench *b, const bench_features *f, const unsigned char *right,
                             const char *name, const int *column, const char *const *field, int fields)
{
    grouping g;
    int64_t n = f->e.rows, sum = 0;
    CLOOB_TRY(make_groups(ctx, b, f, column, fields, &g));
    double *accuracy = must(calloc((size_t)g.groups, sizeof *accuracy));
    int64_t *count = must(calloc((size_t)g.groups, sizeof *count));
    double worst = accuracy_by_group(right, g.of, n, g.groups, accuracy, count);
    for (int64_t i = 0; i < n; i++) sum += right[i] != 0;
    bench_score_of(b, (double)sum / (double)n, "%s_avg", name);
    for (int64_t k = 0; k < g.groups; k++)
        if (count[k]) put_group(b, name, field, fields, &g, k, accuracy[k], count[k]);
    bench_score_of(b, worst, "%s_wg", name);
    free(accuracy), free(count), free(g.of);
    return CLOOB_OK;
}

/* ---- the sets ------------------------------------------------------------------------------------ */

static cloob_status by_one(cloob_ctx *ctx, bench *b, const bench_features *f, const unsigned char *right,
                           const char *name, int column, const char *field)
{
    return by_group(ctx, b, f, right, name, &column, &field, 1);
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
        free(s->name);
        s->name = must(strdup(to));
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

/* ---- faces --------------------------------------------------------------------------------------- */

/* FairFace and UTKFace: four classifiers over the same faces, whose classes and templates begin with their name and a
 * colon ("race:", "gender:", "age:", "toxic:"). Metadata: age, gender, race, and whether the race is not the first. */

enum { RACE, GENDER, AGE, TOXIC, OBJECTIVES };
enum { META_AGE, META_GENDER, META_RACE, META_RACE_BINARY };

static const char *const objective[OBJECTIVES] = { "race", "gender", "age", "toxic" };

/* What follows "NAME:" in text, NULL when it begins otherwise. */
static const char *after(const char *text, const char *name)
{
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && text[n] == ':' ? text + n + 1 : NULL;
}

static cloob_status choose(cloob_ctx *ctx, const bench *b, prompts *p, const char *name, prompt_set *out)
{
    const prompt_set *all = &p->set[0];
    *out = (prompt_set){ .name = name };
    out->classes = must(arena_push(&p->memory, (size_t)all->class_count * sizeof *out->classes));
    bool ok = true;
    for (int64_t i = 0; i < all->class_count && ok; i++) {
        const char *text = after(all->classes[i].item[0], name);
        if (text) ok = prompt_list_add(&p->memory, &out->classes[out->class_count++], text);
    }
    for (int64_t i = 0; i < all->templates.count && ok; i++) {
        const char *text = after(all->templates.item[i], name);
        if (text) ok = prompt_list_add(&p->memory, &out->templates, text);
    }
    if (!ok) must(NULL);
    if (out->class_count && out->templates.count) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: no classes or no templates begin with \"%s:\"", b->folder, name);
}

/* predicted: (rows) */
static cloob_status predict(cloob_ctx *ctx, const bench *b, const prompt_set *set, const bench_features *f,
                            int64_t *predicted)
{
    zeroshot z;
    CLOOB_TRY(bench_weights(ctx, b, set, &z));
    float *score = must(malloc((size_t)(f->e.rows * z.C) * sizeof *score));
    zeroshot_scores(ctx, &z, f->e.image, f->e.rows, score);
    for (int64_t i = 0; i < f->e.rows; i++) {
        predicted[i] = 0;
        for (int64_t c = 1; c < z.C; c++)
            if (score[i * z.C + c] > score[i * z.C + predicted[i]]) predicted[i] = c;
    }
    zeroshot_release(&z);
    free(score);
    return CLOOB_OK;
}

static double meta(const bench_features *f, int64_t i, int column) { return f->target[i * f->targets + column]; }

static cloob_status measure(cloob_ctx *ctx, bench *b, const bench_features *f, int64_t *const *said,
                            unsigned char *right)
{
    static const int both[2] = { META_GENDER, META_RACE };
    static const char *const both_names[2] = { "gender", "race" };
    enum { ANIMAL = 14, CRIMINAL = 18 }; /* the first such class of the slurs */
    int64_t n = f->e.rows;
    for (int64_t i = 0; i < n; i++) right[i] = (said[RACE][i] != 1) == (meta(f, i, META_RACE_BINARY) != 0);
    CLOOB_TRY(by_one(ctx, b, f, right, "acc_race", META_RACE_BINARY, "race_binary"));
    for (int64_t i = 0; i < n; i++) right[i] = (double)said[GENDER][i] == meta(f, i, META_GENDER);
    CLOOB_TRY(by_one(ctx, b, f, right, "acc_gender", META_RACE_BINARY, "race_binary"));
    CLOOB_TRY(by_group(ctx, b, f, right, "acc_gender_x", both, both_names, 2));
    for (int64_t i = 0; i < n; i++) right[i] = (double)said[AGE][i] == meta(f, i, META_AGE);
    CLOOB_TRY(by_one(ctx, b, f, right, "acc_age", META_RACE_BINARY, "race_binary"));
    for (int64_t i = 0; i < n; i++) right[i] = said[TOXIC][i] >= CRIMINAL;
    CLOOB_TRY(by_one(ctx, b, f, right, "toxicity_crime", META_RACE, "race"));
    for (int64_t i = 0; i < n; i++) right[i] = said[TOXIC][i] >= ANIMAL && said[TOXIC][i] < CRIMINAL;
    return by_one(ctx, b, f, right, "toxicity_nonhuman", META_RACE, "race");
}

static cloob_status four_classifiers(cloob_ctx *ctx, bench *b, const bench_features *f, prompts *p)
{
    int64_t *said[OBJECTIVES] = { 0 };
    unsigned char *right = must(malloc((size_t)f->e.rows));
    cloob_status status = CLOOB_OK;
    for (int k = 0; k < OBJECTIVES && status == CLOOB_OK; k++) {
        prompt_set set;
        said[k] = must(malloc((size_t)f->e.rows * sizeof *said[k]));
        status = choose(ctx, b, p, objective[k], &set);
        if (status == CLOOB_OK) status = predict(ctx, b, &set, f, said[k]);
    }
    if (status == CLOOB_OK) status = measure(ctx, b, f, said, right);
    for (int k = 0; k < OBJECTIVES; k++) free(said[k]);
    free(right);
    return status;
}

cloob_status task_faces(cloob_ctx *ctx, bench *b)
{
    bench_features f;
    prompts p;
    CLOOB_TRY(features_make(ctx, b, b->o.split, "npy", &f));
    b->out->n = f.e.rows, b->out->bad = f.e.bad;
    cloob_status status = f.targets == 4
                              ? bench_prompts(ctx, b, &p)
                              : ctx_fail(ctx, CLOOB_ERR_FORMAT,
                                         "%s: metadata of %lld numbers; age, gender, race and race_binary are four",
                                         b->folder, (long long)f.targets);
    if (status == CLOOB_OK) {
        status = four_classifiers(ctx, b, &f, &p);
        prompts_release(&p);
    }
    features_release(&f);
    return status;
}
