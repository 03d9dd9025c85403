/* 8-bit weights with a scale per row. */
#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char TAIL[] = ".int8_scale";

const char *int8_scale_name(const char *name, char text[INT8_NAME])
{
    snprintf(text, INT8_NAME, "%s%s", name, TAIL);
    return text;
}

static bool is_scale(const char *name)
{
    size_t n = strlen(name), m = sizeof TAIL - 1;
    return n > m && strcmp(name + n - m, TAIL) == 0;
}

static bool is_matrix(const st_entry *e)
{
    return e->t.ndim > 1 && strncmp(e->name, "train.", 6) != 0 && dtype_is_float(e->t.dtype);
}

static void quantise_rows(const float *from, int8_t *to, float *scale, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        float top = 0;
        for (int64_t c = 0; c < cols; c++) top = fmaxf(top, fabsf(from[r * cols + c]));
        scale[r] = top / 127.0f;
        for (int64_t c = 0; c < cols; c++)
            to[r * cols + c] = (int8_t)(top > 0 ? lrintf(from[r * cols + c] / scale[r]) : 0);
    }
}

static cloob_status quantise(cloob_ctx *ctx, weights *w, int64_t i)
{
    tensor t = w->entry[i].t;
    char name[INT8_NAME];
    int64_t n = tensor_count(&t), rows = t.dim[0];
    float *wide = malloc((size_t)n * sizeof *wide), *scale = arena_push(&w->a, (size_t)rows * sizeof *scale);
    int8_t *narrow = arena_push(&w->a, (size_t)n);
    if (!wide || !scale || !narrow) {
        free(wide);
        return ctx_no_memory(ctx, (size_t)n * sizeof *wide, w->entry[i].name);
    }
    dtype_convert(CLOOB_F32, wide, t.dtype, t.data, n);
    weights_drop_pages(w, &t);
    quantise_rows(wide, narrow, scale, rows, rows ? n / rows : 0);
    free(wide);
    w->entry[i].t.dtype = CLOOB_I8;
    w->entry[i].t.data = narrow;
    tensor s = TENSOR(CLOOB_F32, scale, rows);
    return weights_add(ctx, w, int8_scale_name(w->entry[i].name, name), &s);
}

cloob_status int8_quantise(cloob_ctx *ctx, weights *w)
{
    for (int64_t i = 0, n = w->count; i < n; i++)
        if (is_matrix(&w->entry[i])) CLOOB_TRY(quantise(ctx, w, i));
    return CLOOB_OK;
}

bool int8_row(const weights *w, const char *name, const tensor *t, float *to)
{
    char text[INT8_NAME];
    const tensor *s = weights_find(w, int8_scale_name(name, text));
    int64_t rows = t->ndim > 1 ? t->dim[0] : 0;
    if (!s || s->dtype != CLOOB_F32 || !rows || tensor_count(s) != rows) return false;
    int64_t cols = tensor_count(t) / rows;
    const int8_t *from = t->data;
    const char *scales = s->data; /* a mapped file need not be aligned */
    for (int64_t r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, scales + (size_t)r * sizeof scale, sizeof scale);
        for (int64_t c = 0; c < cols; c++) to[r * cols + c] = scale * (float)from[r * cols + c];
    }
    return true;
}

cloob_status int8_expand(cloob_ctx *ctx, weights *w)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < w->count; i++) {
        tensor *t = &w->entry[i].t;
        if (t->dtype != CLOOB_I8) continue;
        float *wide = arena_push(&w->a, (size_t)tensor_count(t) * sizeof *wide);
        if (!wide) return ctx_no_memory(ctx, (size_t)tensor_count(t) * sizeof *wide, w->entry[i].name);
        if (!int8_row(w, w->entry[i].name, t, wide))
            return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: 8-bit weights without their scales", w->entry[i].name);
        t->dtype = CLOOB_F32;
        t->data = wide;
    }
    for (int64_t i = 0; i < w->count; i++)
        if (!is_scale(w->entry[i].name)) w->entry[kept++] = w->entry[i];
    w->count = kept;
    return CLOOB_OK;
}
