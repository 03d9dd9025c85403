/* The weights of Pillow's resize, number by number, for the host and for kernels: the filter, sampled at the input
 * pixels, scaled to sum 1, rounded to 22 bits. */
#ifndef DATA_VIEW_RESIZE_WEIGHTS_H
#define DATA_VIEW_RESIZE_WEIGHTS_H

#include <math.h>

#include "data/view/host_device.h"
#include "io/image/image_view.h"

enum { RESIZE_BITS = 32 - 8 - 2, RESIZE_HALF = 1 << (RESIZE_BITS - 1) };
#define RESIZE_PI 3.14159265358979323846

/* Keys' cubic with a = -1/2. */
VIEW_BOTH double resize_cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

VIEW_BOTH double resize_sinc(double x) { return x == 0.0 ? 1.0 : sin(x * RESIZE_PI) / (x * RESIZE_PI); }

VIEW_BOTH double resize_hamming(double x)
{
    x = fabs(x);
    if (x == 0.0 || x >= 1.0) return x == 0.0 ? 1.0 : 0.0;
    x *= RESIZE_PI;
    return sin(x) / x * ((double)0.54f + (double)0.46f * cos(x)); /* floats in Pillow */
}

/* A resize_filter at x. The box is open on its left. */
VIEW_BOTH double resize_filter_at(int filter, double x)
{
    switch (filter) {
    case RESIZE_BILINEAR: return fabs(x) < 1.0 ? 1.0 - fabs(x) : 0.0;
    case RESIZE_LANCZOS: return x >= -3.0 && x < 3.0 ? resize_sinc(x) * resize_sinc(x / 3) : 0.0;
    case RESIZE_BOX: return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case RESIZE_HAMMING: return resize_hamming(x);
    default: return resize_cubic(x);
    }
}

VIEW_BOTH double resize_support(int filter)
{
    switch (filter) {
    case RESIZE_BILINEAR:
    case RESIZE_HAMMING: return 1.0;
    case RESIZE_LANCZOS: return 3.0;
    case RESIZE_BOX: return 0.5;
    default: return 2.0;
    }
}

/* Whether the pass down is first: where the height shrinks by more than twice what the width does, as in Pillow 13. */
VIEW_BOTH int resize_down_first(int64_t in_width, int64_t in_height, int64_t width, int64_t height)
{
    int64_t columns = in_width - width, rows = in_height - height;
    return rows > 0 && rows > 2 * columns;
}

/* w in fixed point with `bits` after the point, as a number with RESIZE_BITS. */
VIEW_BOTH int32_t resize_round(double w, int bits)
{
    double scaled = w * (1 << bits);
    return (int32_t)(w < 0 ? scaled - 0.5 : scaled + 0.5) * (1 << (RESIZE_BITS - bits));
}

VIEW_BOTH int32_t resize_to_fixed(double w) { return resize_round(w, RESIZE_BITS); }

/* One axis: `in` pixels become `out` pixels. */
typedef struct resize_span {
    double step;            /* inputs per output */
    double shrink, support; /* 1 / how far the filter is stretched; how far it reaches */
    int64_t in;
    int filter;
} resize_span;

VIEW_BOTH resize_span resize_span_of(int filter, int64_t in, int64_t out)
{
    resize_span s;
    s.step = (double)in / (double)out;
    s.in = in;
    s.filter = filter;
    double scale = s.step < 1.0 ? 1.0 : s.step;
    s.shrink = 1.0 / scale;
    s.support = resize_support(filter) * scale;
    return s;
}

/* Room that every output needs: a multiple of 4. */
VIEW_BOTH int64_t resize_taps(const resize_span *s) { return ((int64_t)ceil(s->support) * 2 + 1 + 3) / 4 * 4; }

VIEW_BOTH double resize_centre(const resize_span *s, int64_t i) { return ((double)i + 0.5) * s->step; }

/* The inputs [lo, hi) of the output at `centre`. */
VIEW_BOTH void resize_inputs(const resize_span *s, double centre, int64_t *lo, int64_t *hi)
{
    *lo = centre - s->support + 0.5 < 0 ? 0 : (int64_t)(centre - s->support + 0.5);
    *hi = (int64_t)(centre + s->support + 0.5);
    if (*hi > s->in) *hi = s->in;
}

/* The filter at input lo + t, before it is scaled. */
VIEW_BOTH double resize_weight(const resize_span *s, double centre, int64_t lo, int64_t t)
{
    return resize_filter_at(s->filter, ((double)t + (double)lo - centre + 0.5) * s->shrink);
}

#endif
