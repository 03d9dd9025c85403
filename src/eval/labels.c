/* Labels in, classes out. */
#include "eval/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1024 };

static bool is_integer_type(cloob_dtype d)
{
    return d == CLOOB_I64 || d == CLOOB_I32 || d == CLOOB_I16 || d == CLOOB_I8 || d == CLOOB_U8;
}

static cloob_status bad_label(cloob_ctx *ctx, const char *name, int64_t row, double value)
{
    return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: row %lld holds %g; labels are whole numbers from 0 on", name,
                    (long long)row, value);
}

cloob_status labels_read(cloob_ctx *ctx, int64_t *out, const tensor *t, int64_t N, const char *name)
{
    char shape[SHAPE_TEXT];
    double block[BLOCK];
    size_t size = dtype_size(t->dtype);
    if (t->ndim != 1 || t->dim[0] != N)
        return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has shape %s, needs (%lld), one label per row of x", name,
                        tensor_shape_text(t, shape), (long long)N);
    for (int64_t at = 0; at < N; at += BLOCK) {
        int64_t n = N - at < BLOCK ? N - at : BLOCK;
        const char *from = (const char *)t->data + (size_t)at * size;
        if (!dtype_convert(CLOOB_F64, block, t->dtype, from, n))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: has type %s, needs integers", name, dtype_name(t->dtype));
        for (int64_t i = 0; i < n; i++) {
            if (!(block[i] >= 0 && block[i] < 9e15) || block[i] != floor(block[i]))
                return bad_label(ctx, name, at + i, block[i]);
            out[at + i] = (int64_t)block[i];
        }
    }
    if (!is_integer_type(t->dtype))
        ctx_log(ctx, CLOOB_LOG_INFO, "%s: labels are stored as %s; all are whole numbers", name, dtype_name(t->dtype));
    return CLOOB_OK;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

cloob_status label_set_init(cloob_ctx *ctx, label_set *s, const int64_t *label, int64_t N)
{
    *s = (label_set){ .value = malloc((size_t)(N + 1) * sizeof *s->value) };
    if (!s->value) return ctx_no_memory(ctx, (size_t)N * sizeof *s->value, "labels");
    memcpy(s->value, label, (size_t)N * sizeof *s->value);
    qsort(s->value, (size_t)N, sizeof *s->value, ascending);
    for (int64_t i = 0; i < N; i++)
        if (s->C == 0 || s->value[i] != s->value[s->C - 1]) s->value[s->C++] = s->value[i];
    s->gaps = s->C ? s->value[s->C - 1] + 1 - s->C : 0;
    return CLOOB_OK;
}

void label_set_release(label_set *s)
{
    free(s->value);
    s->value = NULL;
}

int64_t label_set_find(const label_set *s, int64_t label)
{
    const int64_t *at = bsearch(&label, s->value, (size_t)s->C, sizeof label, ascending);
    return at ? at - s->value : -1;
}

/* ---- by name --------------------------------------------------------------------------------------- */

static int64_t name_find(const class_names *all, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (strcmp(all->name[i], name) == 0) return i;
    return -1;
}

static bool name_add(class_names *all, const char *name)
{
    if (all->count == all->capacity) {
        int64_t capacity = 2 * all->capacity + 16;
        const char **grown = realloc(all->name, (size_t)capacity * sizeof *grown);
        if (!grown) return false;
        all->name = grown, all->capacity = capacity;
    }
    all->name[all->count++] = name;
    return true;
}

/* Where each class of the split is in `all`: (classes). */
static cloob_status places(cloob_ctx *ctx, class_names *all, const cloob_split *s, int64_t *place)
{
    int64_t before = all->count, fresh = 0, known = 0;
    const char *first = NULL;
    for (int64_t c = 0; c < s->classes; c++) {
        const char *name = s->class_name[c];
        place[c] = name_find(all, all->count, name);
        for (int64_t k = 0; k < c; k++)
            if (place[k] == place[c] && place[c] >= 0)
                return ctx_fail(ctx, CLOOB_ERR_FORMAT,
                                "%s: two classes are called \"%s\"; classes of two splits are matched by name",
                                s->x.name, name);
        known += place[c] >= 0;
        if (place[c] >= 0) continue;
        place[c] = all->count;
        if (!fresh++) first = name;
        if (!name_add(all, name)) return ctx_no_memory(ctx, 64, "class names");
    }
    if (before && !known)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "%s: none of its %lld classes (\"%s\", ...) is among those of the training rows (\"%s\", ...)",
                        s->x.name, (long long)s->classes, first, all->name[0]);
    if (before && fresh)
        ctx_log(ctx, CLOOB_LOG_WARN, "%s: %lld of its %lld classes are not among those of the training rows: \"%s\"%s",
                s->x.name, (long long)fresh, (long long)s->classes, first, fresh > 1 ? ", ..." : "");
    return CLOOB_OK;
}

cloob_status labels_by_name(cloob_ctx *ctx, class_names *all, const cloob_split *s, int64_t **out)
{
    int64_t N = s->x.rows;
    int64_t *place = malloc((size_t)(s->classes + 1) * sizeof *place), *y = malloc((size_t)(N + 1) * sizeof *y);
    cloob_status status = place && y ? places(ctx, all, s, place) : ctx_no_memory(ctx, (size_t)N * sizeof *y, "labels");
    for (int64_t i = 0; i < N && status == CLOOB_OK; i++)
        if (s->y[i] < s->classes) y[i] = place[s->y[i]];
        else
            status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: row %lld has the label %lld, and %lld classes have names",
                              s->x.name, (long long)i, (long long)s->y[i], (long long)s->classes);
    free(place);
    *out = status == CLOOB_OK ? y : NULL;
    if (status != CLOOB_OK) free(y);
    return status;
}

void class_names_release(class_names *all)
{
    free(all->name);
    *all = (class_names){ 0 };
}
