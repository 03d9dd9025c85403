/* The weights of an axis, all of them. */
#include "data/view/resize_axis.h"

#include <string.h>

/* Output i of the axis, number `begin` + i of the span; w is room for a->taps doubles. */
static void weigh(resize_axis *a, int64_t i, const resize_span *s, int64_t begin, double *w)
{
    int64_t lo, hi;
    double sum = 0.0, centre = resize_centre(s, begin + i);
    resize_inputs(s, centre, &lo, &hi);
    for (int64_t t = 0; t < hi - lo; t++) sum += w[t] = resize_weight(s, centre, lo, t);
    a->first[i] = (int32_t)lo;
    a->count[i] = (int32_t)(hi - lo);
    for (int64_t t = 0; t < hi - lo; t++) a->k[i * a->taps + t] = resize_to_fixed(sum != 0.0 ? w[t] / sum : w[t]);
}

static cloob_status axis_carve(cloob_ctx *ctx, resize_axis *a, resize_buffer *b, int64_t n, int64_t taps, double **w)
{
    size_t rows = (size_t)n, weights = rows * (size_t)taps;
    size_t ints = 2 * rows + 2 * weights + (weights / 4 + rows) * 3, bytes = (size_t)taps * sizeof(double) + ints * 4;
    CLOOB_TRY(resize_reserve(ctx, b, bytes));
    *w = b->data;
    a->n = n;
    a->origin = 0;
    a->taps = taps;
    a->k = (int32_t *)(*w + taps);
    a->first = a->k + weights;
    a->count = a->first + rows;
    a->half = a->count + rows;
    a->digit = a->half + weights;
    memset(a->k, 0, weights * 4);
    return CLOOB_OK;
}

cloob_status resize_axis_build(cloob_ctx *ctx, resize_axis *a, resize_buffer *b, resize_filter filter, int64_t in,
                               float from, float to, int64_t out, int64_t begin, int64_t n)
{
    resize_span s = resize_span_of(filter == RESIZE_BICUBIC, in, from, to, out);
    double *w;
    CLOOB_TRY(axis_carve(ctx, a, b, n, resize_taps(&s), &w));
    for (int64_t i = 0; i < n; i++) weigh(a, i, &s, begin, w);
    return CLOOB_OK;
}
