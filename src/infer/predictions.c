/* Files of predictions (infer/predictions.h): CSV or JSON lines to rows, rows to what eval/metrics counts. */
#include "infer/predictions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "data/sets/csv.h"
#include "eval/metrics.h"

typedef struct prediction {
    const char *image, *label;
    double p;
    bool correct;
} prediction;

struct predictions {
    prediction *row;
    int64_t n, room;
    bool has_p;
    char *path;
    arena a;
};

static cloob_status add_row(cloob_ctx *ctx, predictions *l, const char *image, const char *label, double p,
                            bool correct)
{
    if (!heap_grow(&l->row, l->n, &l->room, sizeof *l->row))
        return ctx_no_memory(ctx, (size_t)l->n * sizeof *l->row, "predictions");
    prediction *s = &l->row[l->n];
    *s = (prediction){ arena_string(&l->a, image), arena_string(&l->a, label ? label : ""), p, correct };
    if (!s->image || !s->label) return ctx_no_memory(ctx, strlen(image), "predictions");
    l->n++;
    return CLOOB_OK;
}

/* ---- one row ------------------------------------------------------------------------------------- */

enum { IMAGE, LABEL, PREDICTED, P, CORRECT, COLUMNS };
static const char *const column[COLUMNS] = { "image", "label", "predicted", "p", "correct" };

static bool is_true(const char *text) { return strcmp(text, "1") == 0 || strcmp(text, "true") == 0; }

/* cell: the columns of one line as texts; NULL: missing. */
static cloob_status take_cells(cloob_ctx *ctx, predictions *l, const char *const cell[COLUMNS], int64_t line)
{
    char *end = NULL;
    double p = cell[P] && *cell[P] ? strtod(cell[P], &end) : NAN;
    if (!cell[IMAGE] || !*cell[IMAGE])
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld names no image", l->path, (long long)line);
    if (end && (*end || !(p >= 0 && p <= 1)))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld: \"%.40s\" is no probability", l->path, (long long)line,
                        cell[P]);
    bool stated = cell[CORRECT] && *cell[CORRECT];
    if (stated && !is_true(cell[CORRECT]) && strcmp(cell[CORRECT], "0") != 0 && strcmp(cell[CORRECT], "false") != 0)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld: correct is \"%.40s\", neither 0 nor 1", l->path,
                        (long long)line, cell[CORRECT]);
    if (!stated && (!cell[LABEL] || !cell[PREDICTED]))
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: line %lld has neither correct nor label and predicted", l->path,
                        (long long)line);
    if (isnan(p)) l->has_p = false;
    return add_row(ctx, l, cell[IMAGE], cell[LABEL], p,
                   stated ? is_true(cell[CORRECT]) : strcmp(cell[LABEL], cell[PREDICTED]) == 0);
}

/* ---- CSV ----------------------------------------------------------------------------------------- */

static cloob_status read_csv(cloob_ctx *ctx, predictions *l, const file_bytes *f)
{
    csv_bytes bytes = { f->data, f->size };
    csv_reader *r = malloc(sizeof *r);
    csv_row row = { 0 };
    if (!r) return ctx_no_memory(ctx, sizeof *r, l->path);
    csv_init(r, ',', csv_read_bytes, &bytes, l->path);
    cloob_status status = csv_next(ctx, r, &row);
    if (status != CLOOB_OK) row.count = 0; /* half a header */
    int at[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) at[k] = csv_find(&row, column[k]);
    if (status == CLOOB_OK && (at[IMAGE] < 0 || (at[CORRECT] < 0 && (at[LABEL] < 0 || at[PREDICTED] < 0))))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT,
                          "%s: its first line must name the columns image,label,predicted,p,correct, as the "
                          "predictions of cloob eval zeroshot do",
                          l->path);
    while (status == CLOOB_OK && (status = csv_next(ctx, r, &row)) == CLOOB_OK && row.count) {
        const char *cell[COLUMNS];
        for (int k = 0; k < COLUMNS; k++) cell[k] = at[k] < 0 ? NULL : csv_field(&row, at[k]);
        status = take_cells(ctx, l, cell, row.line);
    }
    csv_row_release(&row);
    free(r);
    return status;
}

/* ---- JSON lines ------------------------------------------------------------------------------------ */

static const char *cell_of(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    if (v && v->kind == JSON_BOOL) return v->boolean ? "1" : "0";
    return v && (v->kind == JSON_STRING || v->kind == JSON_NUMBER) ? v->text : NULL;
}

static cloob_status read_lines(cloob_ctx *ctx, predictions *l, const file_bytes *f)
{
    const char *at = f->data, *text;
    size_t n;
    cloob_status status = CLOOB_OK;
    for (int64_t line = 1; status == CLOOB_OK && text_line(&at, f->data + f->size, &text, &n); line++) {
        const char *cell[COLUMNS];
        arena a = { 0 };
        json *root;
        if (!n) continue;
        status = json_parse(ctx, &a, text, n, l->path, &root);
        for (int k = 0; k < COLUMNS && status == CLOOB_OK; k++) cell[k] = cell_of(root, column[k]);
        if (status == CLOOB_OK) status = take_cells(ctx, l, cell, line);
        arena_release(&a);
    }
    return status;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static int by_image(const void *a, const void *b)
{
    return strcmp(((const prediction *)a)->image, ((const prediction *)b)->image);
}

/* Sorted by image, so that two files can be walked together; a name that comes twice cannot be matched. */
static cloob_status sort_rows(cloob_ctx *ctx, predictions *l)
{
    if (!l->n) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: holds no predictions", l->path);
    qsort(l->row, (size_t)l->n, sizeof *l->row, by_image);
    for (int64_t i = 1; i < l->n; i++)
        if (strcmp(l->row[i].image, l->row[i - 1].image) == 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: image %.200s has two lines", l->path, l->row[i].image);
    return CLOOB_OK;
}

cloob_status predictions_open(cloob_ctx *ctx, const char *path, predictions **out)
{
    file_bytes f;
    *out = NULL;
    CLOOB_TRY(file_read(ctx, path, FILE_TEXT_LIMIT, &f));
    predictions *l = calloc(1, sizeof *l);
    cloob_status status = l ? CLOOB_OK : ctx_no_memory(ctx, sizeof *l, path);
    if (l) {
        l->has_p = true, l->path = arena_string(&l->a, path);
        if (!l->path) status = ctx_no_memory(ctx, strlen(path), path);
        else
            status = text_ends_with(path, ".jsonl") || f.data[0] == '{' ? read_lines(ctx, l, &f) : read_csv(ctx, l, &f);
    }
    file_bytes_release(&f);
    if (status == CLOOB_OK) status = sort_rows(ctx, l);
    if (status == CLOOB_OK) *out = l;
    else predictions_close(l);
    return status;
}

void predictions_close(predictions *p)
{
    if (!p) return;
    free(p->row);
    arena_release(&p->a);
    free(p);
}

int64_t predictions_count(const predictions *p) { return p ? p->n : 0; }

/* ---- use ------------------------------------------------------------------------------------------- */

cloob_status predictions_calibrate(cloob_ctx *ctx, const predictions *l, int bins, calibration *out)
{
    if (!l->has_p)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has no probabilities (column p); calibration needs them", l->path);
    double *p = malloc((size_t)l->n * sizeof *p);
    unsigned char *right = malloc((size_t)l->n);
    cloob_status status = p && right ? CLOOB_OK : ctx_no_memory(ctx, (size_t)l->n * sizeof *p, l->path);
    for (int64_t i = 0; i < l->n && status == CLOOB_OK; i++) p[i] = l->row[i].p, right[i] = l->row[i].correct;
    if (status == CLOOB_OK) status = calibration_measure(ctx, p, right, l->n, bins, out);
    free(p), free(right);
    return status;
}

void paired_options_init(paired_options *o)
{
    if (o) *o = (paired_options){ .resamples = 10000, .level = 0.95 };
}

/* Rows of the images that both have, walked in the order of their names. */
static cloob_status match(cloob_ctx *ctx, const predictions *a, const predictions *b, unsigned char *right_a,
                          unsigned char *right_b, int64_t *n)
{
    *n = 0;
    for (int64_t i = 0, j = 0; i < a->n && j < b->n;) {
        int order = strcmp(a->row[i].image, b->row[j].image);
        if (order < 0) i++;
        if (order > 0) j++;
        if (order) continue;
        const prediction *x = &a->row[i++], *y = &b->row[j++];
        if (*x->label && *y->label && strcmp(x->label, y->label) != 0)
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: label \"%.60s\" in %s, \"%.60s\" in %s", x->image, x->label,
                            a->path, y->label, b->path);
        right_a[*n] = x->correct, right_b[*n] = y->correct, ++*n;
    }
    if (*n) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s and %s have no image in common: \"%.120s\", \"%.120s\"", a->path,
                    b->path, a->row[0].image, b->row[0].image);
}

cloob_status predictions_compare(cloob_ctx *ctx, const predictions *a, const predictions *b,
                                 const paired_options *given, paired_result *out)
{
    paired_options o;
    paired_options_init(&o);
    if (given) o = *given;
    if (!(o.level > 0 && o.level < 1))
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a level of %g: between 0 and 1 is possible", o.level);
    int64_t room = a->n < b->n ? a->n : b->n, n;
    unsigned char *right = malloc((size_t)room * 2);
    if (!right) return ctx_no_memory(ctx, (size_t)room * 2, "predictions");
    cloob_status status = match(ctx, a, b, right, right + room, &n);
    if (status == CLOOB_OK) status = paired_compare(ctx, right, right + room, n, o.resamples, o.seed, o.level, out);
    if (status == CLOOB_OK) out->left_out = a->n + b->n - 2 * n;
    free(right);
    return status;
}
