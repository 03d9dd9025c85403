/* Weights: the filter, sampled where the input pixels lie, scaled to sum 1, rounded to 22 bits. */
#include "data/view/resize_axis.h"

#include <math.h>
#include <string.h>

/* Keys' cubic with a = -1/2. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static int32_t to_fixed(double w)
{
    double scaled = w * (1 << RESIZE_BITS);
    return (int32_t)(w < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* Weights of the output whose centre lies at `centre` of the input; w is room for a->taps doubles. */
static void weigh(resize_axis *a, int64_t i, double centre, double support, double scale, int64_t in,
                  double (*filter)(double), double *w)
{
    int64_t lo = (int64_t)(centre - support + 0.5), hi = (int64_t)(centre + support + 0.5);
    double sum = 0.0, shrink = 1.0 / scale;
    if (centre - support + 0.5 < 0) lo = 0;
    if (hi > in) hi = in;
    for (int64_t x = lo; x < hi; x++)
        sum += w[x - lo] = filter(((double)(x - lo) + (double)lo - centre + 0.5) * shrink);
    a->first[i] = (int32_t)lo;
    a->count[i] = (int32_t)(hi - lo);
    for (int64_t t = 0; t < hi - lo; t++) a->k[i * a->taps + t] = to_fixed(sum != 0.0 ? w[t] / sum : w[t]);
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
    double step = (double)(to - from) / (double)out, scale = step < 1.0 ? 1.0 : step, *w;
    double support = (filter == RESIZE_BICUBIC ? 2.0 : 1.0) * scale;
    int64_t taps = ((int64_t)ceil(support) * 2 + 1 + 3) / 4 * 4;
    CLOOB_TRY(axis_carve(ctx, a, b, n, taps, &w));
    for (int64_t i = 0; i < n; i++) {
        double centre = (double)from + ((double)(begin + i) + 0.5) * step;
        weigh(a, i, centre, support, scale, in, filter == RESIZE_BICUBIC ? bicubic : bilinear, w);
    }
    return CLOOB_OK;
}
