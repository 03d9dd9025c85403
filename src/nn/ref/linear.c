/* GEMM with bias and residual: definition. */
#include <math.h>

#include "nn/ref/ref.h"

/* ---- 8-bit factors ------------------------------------------------------------------------------- */

/* e4m3: a sign bit, 4 bits of exponent, 3 of fraction */
static const double E4M3_MAX = 448;
enum { E4M3_LOW = -6, E4M3_BITS = 3 }; /* exponent of the smallest normal number; bits behind the point */

/* Of K elements from `row` on, the largest becomes the format's largest. */
static double row_scale(const tensor *t, int64_t row, int64_t K)
{
    double max = 0;
    for (int64_t i = row; i < row + K; i++) max = fmax(max, fabs(ld(t, i)));
    return max > 0 ? E4M3_MAX / max : 1;
}

/* Element i, rounded under the scale; scale 0: as it is. */
static double rounded(const tensor *t, int64_t i, double scale)
{
    double v = ld(t, i), a = fabs(v * scale);
    int exponent;
    if (scale == 0 || a == 0) return v;
    frexp(a, &exponent);
    double step = exp2((exponent - 1 < E4M3_LOW ? E4M3_LOW : exponent - 1) - E4M3_BITS);
    return copysign(fmin(rint(a / step) * step, E4M3_MAX) / scale, v);
}

/* ---- definition ---------------------------------------------------------------------------------- */

/* w[o, k] of a weight stored (out, in) or (in, out). */
static int64_t at(const op_attr *attr, int64_t O, int64_t K, int64_t o, int64_t k)
{
    return attr->transposed ? k * O + o : o * K + k;
}

void linear_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *res = &a->in[3], *y = &a->out[0];
    int64_t R = tensor_rows(y), O = tensor_cols(y), K = tensor_cols(x);
    double sx = 0, sw = 0;
    bool rows = a->attr.fp8 == OP_FP8_ALWAYS && x->dtype == CLOOB_BF16 && !a->attr.transposed;
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < O; o++) {
            if (rows) sx = row_scale(x, r * K, K), sw = row_scale(w, o * K, K);
            double sum = (has(bias) ? ld(bias, o) : 0.0) + (has(res) ? ld(res, r * O + o) : 0.0);
            for (int64_t k = 0; k < K; k++) sum += rounded(x, r * K + k, sx) * rounded(w, at(&a->attr, O, K, o, k), sw);
            st(y, r * O + o, sum);
        }
}

void linear_dx_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    int64_t R = tensor_rows(dy), O = tensor_cols(dy), K = tensor_cols(dx);
    for (int64_t r = 0; r < R; r++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0.0;
            for (int64_t o = 0; o < O; o++) sum += ld(dy, r * O + o) * ld(w, at(&a->attr, O, K, o, k));
            st(dx, r * K + k, sum);
        }
}

void linear_dw_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0], *dbias = &a->out[1];
    int64_t R = tensor_rows(dy), O = tensor_cols(dy), K = tensor_cols(x);
    for (int64_t o = 0; o < O; o++) {
        double bias = 0.0;
        for (int64_t r = 0; r < R; r++) bias += ld(dy, r * O + o);
        if (has(dbias)) st(dbias, o, bias);
        for (int64_t k = 0; k < K && has(dw); k++) {
            double sum = 0.0;
            for (int64_t r = 0; r < R; r++) sum += ld(dy, r * O + o) * ld(x, r * K + k);
            st(dw, at(&a->attr, O, K, o, k), sum);
        }
    }
}
