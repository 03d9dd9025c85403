/* Evaluation of matrices in memory or in mapped files. */
#include "eval/evaluate.h"

#include <stdlib.h>
#include <string.h>

#include "eval/analysis.h"
#include "eval/rows.h"
#include "eval/metrics.h"
#include "eval/probe/probe.h"
#include "eval/retrieval.h"
#include "core/needs.h"

static cloob_status rows_from(cloob_ctx *ctx, rows *r, const cloob_matrix *m)
{
    tensor t = TENSOR(m->dtype, (void *)(uintptr_t)m->data, m->rows, m->columns);
    return rows_of(ctx, r, &t, m->name ? m->name : "matrix");
}

/* ---- retrieval ----------------------------------------------------------------------------------- */

static cloob_status retrieve_on(cloob_ctx *ctx, cloob_retrieval *out, const unit_rows *x, const unit_rows *y,
                                const cloob_retrieve_options *o)
{
    int64_t queries = o ? o->queries : 0;
    if (o && o->text_image && queries)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`queries`: every image is ranked where `text_image` is given");
    if (o && o->text_image) return retrieval_run_owned(ctx, out, x, y, o->text_image);
    return retrieval_run(ctx, out, x, y, queries);
}

cloob_status cloob_retrieve(cloob_ctx *ctx, cloob_retrieval *out, const cloob_matrix *image, const cloob_matrix *text,
                            const cloob_retrieve_options *options)
{
    API_NEEDS(ctx, out && image && text);
    rows x, y;
    unit_rows ux, uy;
    CLOOB_TRY(rows_from(ctx, &x, image));
    CLOOB_TRY(rows_from(ctx, &y, text));
    CLOOB_TRY(unit_rows_init(ctx, &ux, &x));
    cloob_status status = unit_rows_init(ctx, &uy, &y);
    if (status == CLOOB_OK) {
        status = retrieve_on(ctx, out, &ux, &uy, options);
        unit_rows_release(&uy);
    }
    unit_rows_release(&ux);
    return status;
}

/* ---- analysis ------------------------------------------------------------------------------------ */

cloob_status separation_of(cloob_ctx *ctx, separation *out, const cloob_matrix *m, double beta)
{
    unit_rows u;
    rows r;
    CLOOB_TRY(rows_from(ctx, &r, m));
    CLOOB_TRY(unit_rows_init(ctx, &u, &r));
    cloob_status status = separation_run(ctx, out, &u, beta);
    unit_rows_release(&u);
    return status;
}

cloob_status analyze_matrices(cloob_ctx *ctx, embedding_analysis *out, const cloob_matrix *image,
                              const cloob_matrix *text, double share)
{
    rows x, y;
    memset(out, 0, sizeof *out);
    CLOOB_TRY(rows_from(ctx, &x, image));
    if (text) CLOOB_TRY(rows_from(ctx, &y, text));
    cloob_status status = analysis_run(ctx, out, &x, text ? &y : NULL, share);
    if (status != CLOOB_OK) analysis_release(out);
    return status;
}

/* ---- probe --------------------------------------------------------------------------------------- */

void cloob_probe_options_init_size(cloob_probe_options *o, size_t size)
{
    cloob_probe_options d = { .search = true, .max_iterations = 1000, .refit_all = true };
    options_write(o, size, &d, sizeof d);
}

enum { TRAIN, VAL, TEST, SPLITS };

/* Training, validation and test rows with the same label numbering. */
typedef struct splits {
    probe_data data[SPLITS];
    const probe_data *val; /* NULL: none */
    int64_t *y[SPLITS];    /* owned; NULL: the caller's labels are used */
} splits;

static void splits_release(splits *s)
{
    for (int k = 0; k < SPLITS; k++) free(s->y[k]);
}

static bool same_classes(const cloob_split *a, const cloob_split *b)
{
    bool same = a->classes == b->classes;
    for (int64_t c = 0; c < a->classes && same; c++) same = strcmp(a->class_name[c], b->class_name[c]) == 0;
    return same;
}

/* place (classes of s) = the position of each class in `all` (*count names); new names are appended. Refused: a name
 * that s has twice, and no name in common with the training rows, which come first. */
static cloob_status find_places(cloob_ctx *ctx, const char **all, int64_t *count, const cloob_split *s, int64_t *place)
{
    int64_t before = *count, fresh = 0;
    const char *first = NULL;
    for (int64_t c = 0; c < s->classes; c++) {
        const char *name = s->class_name[c];
        for (int64_t k = 0; k < c; k++)
            if (strcmp(name, s->class_name[k]) == 0)
                return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                                "%s: two classes are called \"%s\"; classes of two splits are matched by name",
                                s->x.name, name);
        for (place[c] = 0; place[c] < *count && strcmp(all[place[c]], name) != 0;) place[c]++;
        if (place[c] < *count) continue;
        if (!fresh++) first = name;
        all[(*count)++] = name;
    }
    if (before && fresh == s->classes)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%s: none of its %lld classes (\"%s\", ...) is among those of the training rows (\"%s\", ...)",
                        s->x.name, (long long)s->classes, first, all[0]);
    if (before && fresh)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld of its %lld classes are not among those of the training rows: \"%s\"%s",
                s->x.name, (long long)fresh, (long long)s->classes, first, fresh > 1 ? ", ..." : "");
    return CLOOB_OK;
}

/* *out (x.rows) = place of each row's label; owned by the caller. */
static cloob_status move_labels(cloob_ctx *ctx, const cloob_split *s, const int64_t *place, int64_t **out)
{
    int64_t *y = *out = malloc((size_t)(s->x.rows + 1) * sizeof *y);
    if (!y) return ctx_no_memory(ctx, (size_t)s->x.rows * sizeof *y, "labels");
    for (int64_t i = 0; i < s->x.rows; i++) {
        if (s->y[i] >= s->classes)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: row %lld has label %lld, but only %lld classes have names",
                            s->x.name, (long long)i, (long long)s->y[i], (long long)s->classes);
        y[i] = place[s->y[i]];
    }
    return CLOOB_OK;
}

/* Where every split names its classes and the lists differ, names decide; otherwise the numbers do. */
static cloob_status match_classes(cloob_ctx *ctx, splits *s, const cloob_split *const from[SPLITS])
{
    bool named = true, same = true, some = false;
    int64_t classes = 0, count = 0;
    for (int k = 0; k < SPLITS; k++) {
        if (!from[k]) continue;
        if (from[k]->class_name) some = true;
        else named = false;
        classes += from[k]->classes;
    }
    for (int k = VAL; k < SPLITS && named; k++) same = same && (!from[k] || same_classes(from[TRAIN], from[k]));
    if (some && !named)
        ctx_log(ctx, CLOOB_LOG_WARN, "not all of the splits name their classes: they are matched by number");
    if (!named || same) return CLOOB_OK;
    const char **all = malloc((size_t)classes * sizeof *all);
    int64_t *place = malloc((size_t)classes * sizeof *place);
    cloob_status status = all && place ? CLOOB_OK : ctx_no_memory(ctx, (size_t)classes * 16, "class names");
    for (int k = 0; k < SPLITS && status == CLOOB_OK; k++) {
        if (!from[k]) continue;
        status = find_places(ctx, all, &count, from[k], place);
        if (status == CLOOB_OK) status = move_labels(ctx, from[k], place, &s->y[k]);
        s->data[k].y = s->y[k];
    }
    free(all), free(place);
    return status;
}

/* On failure there is nothing to release. */
static cloob_status splits_init(cloob_ctx *ctx, splits *s, const cloob_split *train, const cloob_split *val,
                                const cloob_split *test)
{
    const cloob_split *from[SPLITS] = { train, val, test };
    *s = (splits){ .val = val ? &s->data[VAL] : NULL };
    for (int k = 0; k < SPLITS; k++) {
        if (!from[k]) continue;
        s->data[k].y = from[k]->y;
        CLOOB_TRY(rows_from(ctx, &s->data[k].x, &from[k]->x));
    }
    cloob_status status = match_classes(ctx, s, from);
    if (status != CLOOB_OK) splits_release(s);
    return status;
}

cloob_status cloob_probe(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o,
                         const cloob_split *train, const cloob_split *val, const cloob_split *test)
{
    API_NEEDS(ctx, out && o && train && test);
    OPTIONS_READ(ctx, cloob_probe_options, o);
    splits s;
    memset(out, 0, sizeof *out);
    CLOOB_TRY(splits_init(ctx, &s, train, val, test));
    cloob_status status = probe_run(ctx, out, o, &s.data[TRAIN], s.val, &s.data[TEST]);
    splits_release(&s);
    if (status != CLOOB_OK) cloob_probe_release(out);
    return status;
}

cloob_status few_shot_probe(cloob_ctx *ctx, few_shot_result *out, const few_shot_options *o, const cloob_split *train,
                            const cloob_split *val, const cloob_split *test)
{
    splits s;
    CLOOB_TRY(splits_init(ctx, &s, train, val, test));
    cloob_status status = few_shot_run(ctx, out, o, &s.data[TRAIN], s.val, &s.data[TEST]);
    splits_release(&s);
    return status;
}

/* Classes of the test rows that training does not have are wrong, and count in the mean over classes. */
static cloob_status score_labels(cloob_ctx *ctx, const int64_t *label, const int64_t *predicted, int64_t n,
                                 knn_result *out)
{
    label_set set;
    CLOOB_TRY(label_set_init(ctx, &set, label, n));
    for (int64_t c = 0; c < set.C; c++) {
        int64_t of_class = 0, right = 0;
        for (int64_t i = 0; i < n; i++)
            if (label[i] == set.value[c]) of_class++, right += predicted[i] == label[i];
        out->test_acc += (double)right / (double)n;
        out->test_mean_per_class += (double)right / (double)of_class / (double)set.C;
    }
    label_set_release(&set);
    return CLOOB_OK;
}

cloob_status knn_classify(cloob_ctx *ctx, knn_result *out, int64_t k, const cloob_split *train, const cloob_split *test)
{
    splits s;
    CLOOB_TRY(splits_init(ctx, &s, train, NULL, test));
    const probe_data *a = &s.data[TRAIN], *b = &s.data[TEST];
    *out = (knn_result){ .k = k, .train_rows = a->x.N, .test_rows = b->x.N };
    int64_t *predicted = malloc((size_t)b->x.N * sizeof *predicted);
    cloob_status status = predicted ? knn_predict(ctx, &a->x, a->y, &b->x, k, predicted)
                                    : ctx_no_memory(ctx, (size_t)b->x.N * sizeof *predicted, "predictions");
    if (status == CLOOB_OK) status = score_labels(ctx, b->y, predicted, b->x.N, out);
    free(predicted);
    splits_release(&s);
    return status;
}
