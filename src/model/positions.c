/* Resizes grids of positional embeddings: bicubic, or linear for values that must not become negative. */
#include "model/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys' cubic kernel with a = -1/2, as in Pillow and PyTorch's antialiased bicubic. */
static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return a * (((x - 5) * x + 8) * x - 4);
    return 0;
}

static double triangle(double x) { return fabs(x) < 1 ? 1 - fabs(x) : 0; }

typedef double filter(double x);

/* weight (to, from): weights of the old positions for each new one; each row sums to 1. */
static void axis_weights(int64_t from, int64_t to, filter *f, double *weight)
{
    double scale = (double)from / (double)to, stretch = scale > 1 ? scale : 1;
    for (int64_t i = 0; i < to; i++) {
        double centre = ((double)i + 0.5) * scale, sum = 0;
        for (int64_t j = 0; j < from; j++) sum += weight[i * from + j] = f(((double)j + 0.5 - centre) / stretch);
        for (int64_t j = 0; j < from; j++) weight[i * from + j] /= sum;
    }
}

/* Resizes in (from, from, d) to out (to, to, d). */
static void resize_grid(const float *in, int64_t from, float *out, int64_t to, int64_t d, const double *weight)
{
    for (int64_t y = 0; y < to; y++)
        for (int64_t x = 0; x < to; x++)
            for (int64_t k = 0; k < d; k++) {
                double sum = 0;
                for (int64_t i = 0; i < from; i++)
                    for (int64_t j = 0; j < from; j++)
                        sum += weight[y * from + i] * weight[x * from + j] * (double)in[(i * from + j) * d + k];
                out[(y * to + x) * d + k] = (float)sum;
            }
}

/* Resizes a tensor of rows of width d: a matrix, or a vector of concatenated rows. */
static cloob_status resize_tensor(cloob_ctx *ctx, weights *w, tensor *t, int64_t d, int64_t from, int64_t to, filter *f)
{
    int64_t rows = tensor_count(t) / d, first = rows - from * from; /* rows of the class token, which has no position in
                                                                     * the grid */
    float *old = malloc((size_t)(rows * d) * sizeof *old);
    double *weight = malloc((size_t)(from * to) * sizeof *weight);
    float *out = arena_push(&w->a, (size_t)((to * to + first) * d) * sizeof *out);
    cloob_status status = old && weight && out ? CLOOB_OK : ctx_no_memory(ctx, (size_t)(to * to * d) * 4, "positions");
    if (status == CLOOB_OK && !dtype_convert(CLOOB_F32, old, t->dtype, t->data, rows * d))
        status = ctx_fail(ctx, CLOOB_ERR_FORMAT, "positional embeddings have an element type that is not supported");
    if (status == CLOOB_OK) {
        axis_weights(from, to, f, weight);
        memcpy(out, old, (size_t)(first * d) * sizeof *out);
        resize_grid(old + first * d, from, out + first * d, to, d, weight);
        t->dtype = CLOOB_F32, t->data = out, t->dim[0] = (to * to + first) * (t->ndim == 1 ? d : 1);
    }
    free(old);
    free(weight);
    return status;
}

/* The filter for a tensor of the positional embeddings `name`; NULL: the tensor is not one of them. The embeddings
 * themselves, means of gradients and averaged weights use the cubic filter. Means of squared gradients use a filter
 * without negative weights, because AdamW takes their square root. */
static filter *filter_for(const char *entry, const char *name)
{
    static const struct {
        const char *kind;
        filter *f;
    } states[] = { { "", cubic }, { "train.m.", cubic }, { "train.ema.", cubic }, { "train.v.", triangle } };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        size_t n = strlen(states[i].kind);
        if (strncmp(entry, states[i].kind, n) == 0 && strcmp(entry + n, name) == 0) return states[i].f;
    }
    return NULL;
}

cloob_status weights_resize_images(cloob_ctx *ctx, weights *w, int64_t image_size)
{
    bool vit = w->config.family == MODEL_VIT;
    int64_t cell = vit ? w->config.patch : 32, from = w->config.image_size / cell, to = image_size / cell;
    const char *name = vit ? "visual.positional_embedding" : "visual.attnpool.positional_embedding";
    model_config asked = w->config;
    asked.image_size = image_size;
    CLOOB_TRY(model_config_check(ctx, &asked));
    const tensor *t = weights_find(w, name);
    int64_t d = t && t->ndim == 2 ? t->dim[1] : 0;
    for (int64_t i = 0; i < w->count && from != to && d > 0; i++) { /* d is 0 for a ConvNeXt, which has none */
        filter *f = filter_for(w->entry[i].name, name);
        if (f) CLOOB_TRY(resize_tensor(ctx, w, &w->entry[i].t, d, from, to, f));
    }
    w->config.image_size = image_size;
    return CLOOB_OK;
}
