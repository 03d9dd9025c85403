/* Layer norm and unit length: definitions. */
#include "nn/ref/ref.h"

void layernorm_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *gain = &a->in[1], *bias = &a->in[2], *y = &a->out[0], *mean = &a->out[1],
                 *rstd = &a->out[2];
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    for (int64_t r = 0; r < R; r++) {
        double mu = 0.0, var = 0.0;
        for (int64_t c = 0; c < C; c++) mu += ld(x, r * C + c) / (double)C;
        for (int64_t c = 0; c < C; c++) var += (ld(x, r * C + c) - mu) * (ld(x, r * C + c) - mu) / (double)C;
        double s = 1.0 / sqrt(var + (double)a->attr.eps);
        if (has(mean)) st(mean, r, mu);
        if (has(rstd)) st(rstd, r, s);
        for (int64_t c = 0; c < C; c++) st(y, r * C + c, (ld(x, r * C + c) - mu) * s * ld(gain, c) + ld(bias, c));
    }
}

/* dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)) + extra. */
static void row_backward(const op_args *a, int64_t r)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *gain = &a->in[4], *extra = &a->in[5], *dx = &a->out[0];
    int64_t C = tensor_cols(x);
    double mu = ld(&a->in[2], r), s = ld(&a->in[3], r), m1 = 0.0, m2 = 0.0;
    for (int64_t c = 0; c < C; c++) {
        double g = ld(dy, r * C + c) * ld(gain, c);
        m1 += g / (double)C;
        m2 += g * (ld(x, r * C + c) - mu) * s / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        double xhat = (ld(x, r * C + c) - mu) * s;
        double v = s * (ld(dy, r * C + c) * ld(gain, c) - m1 - xhat * m2);
        st(dx, r * C + c, v + (has(extra) ? ld(extra, r * C + c) : 0.0));
    }
}

void layernorm_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *mean = &a->in[2], *rstd = &a->in[3];
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    for (int64_t c = 0; c < C; c++) {
        double gain = 0.0, bias = 0.0;
        for (int64_t r = 0; r < R; r++) {
            gain += ld(dy, r * C + c) * (ld(x, r * C + c) - ld(mean, r)) * ld(rstd, r);
            bias += ld(dy, r * C + c);
        }
        if (has(&a->out[1])) st(&a->out[1], c, gain);
        if (has(&a->out[2])) st(&a->out[2], c, bias);
    }
    for (int64_t r = 0; r < R && has(&a->out[0]); r++) row_backward(a, r);
    op_args recomputed = layernorm_recompute(a);
    sum_over_rows(&a->out[4], &a->out[0]);
    if (has(&recomputed.out[0])) layernorm_ref(&recomputed);
}

void l2norm_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0], *rnorm = &a->out[1];
    int64_t N = x->dim[0], D = x->dim[1];
    for (int64_t n = 0; n < N; n++) {
        double square = 0.0;
        for (int64_t i = n * D; i < (n + 1) * D; i++) square += ld(x, i) * ld(x, i);
        double s = 1.0 / sqrt(square);
        if (has(rnorm)) st(rnorm, n, s);
        for (int64_t i = n * D; i < (n + 1) * D; i++) st(y, i, ld(x, i) * s);
    }
}

void l2norm_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *y = &a->in[1], *rnorm = &a->in[2], *dx = &a->out[0];
    int64_t N = y->dim[0], D = y->dim[1];
    for (int64_t n = 0; n < N; n++) {
        double along = 0.0; /* the part of dy along x, which changes only its length */
        for (int64_t i = n * D; i < (n + 1) * D; i++) along += ld(dy, i) * ld(y, i);
        for (int64_t i = n * D; i < (n + 1) * D; i++) st(dx, i, ld(rnorm, n) * (ld(dy, i) - along * ld(y, i)));
    }
}
