/* Convolution: definition. y[n,i,j,o] = sum over kernel (u,v) and c of x[n, i s + u - p, j s + v - p, c] w[o,u,v,c]. */
#include "nn/ref/ref.h"

typedef struct sizes {
    int64_t N, H, W, C, O, K, c, Ho, Wo, s, p;
} sizes;

static sizes sizes_of(const tensor *x, const tensor *w, const tensor *y, const op_attr *at)
{
    return (sizes){ x->dim[0], x->dim[1], x->dim[2], x->dim[3],  w->dim[0], w->dim[1],
                    w->dim[3], y->dim[1], y->dim[2], at->stride, at->pad };
}

/* Index of the first channel of the input position that kernel element (u, v) reads for output (i, j); -1: padding. */
static int64_t seen(const sizes *z, int64_t n, int64_t i, int64_t j, int64_t u, int64_t v)
{
    int64_t h = i * z->s + u - z->p, w = j * z->s + v - z->p;
    return h < 0 || h >= z->H || w < 0 || w >= z->W ? -1 : ((n * z->H + h) * z->W + w) * z->C;
}

static double conv_at(const sizes *z, const tensor *x, const tensor *w, int64_t n, int64_t i, int64_t j, int64_t o)
{
    double sum = 0.0;
    for (int64_t u = 0; u < z->K; u++)
        for (int64_t v = 0; v < z->K; v++) {
            int64_t xi = seen(z, n, i, j, u, v), wi = ((o * z->K + u) * z->K + v) * z->c;
            for (int64_t c = 0; c < z->c && xi >= 0; c++) sum += ld(x, xi + c) * ld(w, wi + c);
        }
    return sum;
}

void conv2d_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *res = &a->in[3], *y = &a->out[0];
    sizes z = sizes_of(x, w, y, &a->attr);
    for (int64_t n = 0, at = 0; n < z.N; n++)
        for (int64_t i = 0; i < z.Ho; i++)
            for (int64_t j = 0; j < z.Wo; j++)
                for (int64_t o = 0; o < z.O; o++, at++) {
                    double v = conv_at(&z, x, w, n, i, j, o) + (has(bias) ? ld(bias, o) : 0.0) +
                               (has(res) ? ld(res, at) : 0.0);
                    st(y, at, a->attr.relu && v < 0 ? 0.0 : v);
                }
}

/* dx sums the contributions of all outputs that read the position. */
static double dx_at(const sizes *z, const tensor *dy, const tensor *w, int64_t n, int64_t h, int64_t x, int64_t c)
{
    double sum = 0.0;
    for (int64_t u = 0; u < z->K; u++)
        for (int64_t v = 0; v < z->K; v++) {
            int64_t i = h + z->p - u, j = x + z->p - v;
            if (i < 0 || j < 0 || i % z->s || j % z->s || i / z->s >= z->Ho || j / z->s >= z->Wo) continue;
            int64_t yi = ((n * z->Ho + i / z->s) * z->Wo + j / z->s) * z->O;
            for (int64_t o = 0; o < z->O; o++) sum += ld(dy, yi + o) * ld(w, ((o * z->K + u) * z->K + v) * z->c + c);
        }
    return sum;
}

void conv2d_dx_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    sizes z = sizes_of(dx, w, dy, &a->attr);
    for (int64_t n = 0, at = 0; n < z.N; n++)
        for (int64_t h = 0; h < z.H; h++)
            for (int64_t x = 0; x < z.W; x++)
                for (int64_t c = 0; c < z.C; c++, at++) st(dx, at, c < z.c ? dx_at(&z, dy, w, n, h, x, c) : 0.0);
}

static double dw_at(const sizes *z, const tensor *dy, const tensor *x, int64_t o, int64_t u, int64_t v, int64_t c)
{
    double sum = 0.0;
    for (int64_t n = 0; n < z->N; n++)
        for (int64_t i = 0; i < z->Ho; i++)
            for (int64_t j = 0; j < z->Wo; j++) {
                int64_t xi = seen(z, n, i, j, u, v);
                if (xi >= 0) sum += ld(dy, ((n * z->Ho + i) * z->Wo + j) * z->O + o) * ld(x, xi + c);
            }
    return sum;
}

void conv2d_dw_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0];
    sizes z = sizes_of(x, dw, dy, &a->attr);
    for (int64_t o = 0, at = 0; o < z.O; o++)
        for (int64_t u = 0; u < z.K; u++)
            for (int64_t v = 0; v < z.K; v++)
                for (int64_t c = 0; c < z.c; c++, at++) st(dw, at, dw_at(&z, dy, x, o, u, v, c));
}

/* ---- each channel by its own kernel -------------------------------------------------------------- */

/* y[n,i,j,o] = bias[o] + sum over (u,v) of x[n, i s + u - k/2, j s + v - k/2, o / m] w[o,u,v]. */
static sizes dw_sizes(const tensor *x, const tensor *w, const tensor *y, const op_attr *at)
{
    sizes z = sizes_of(x, w, y, at);
    z.p = z.K / 2;
    return z;
}

void dwconv_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *y = &a->out[0];
    sizes z = dw_sizes(x, w, y, &a->attr);
    for (int64_t at = 0, K = z.K * z.K; at < tensor_count(y); at++) {
        int64_t o = at % z.O, j = at / z.O % z.Wo, i = at / z.O / z.Wo % z.Ho, n = at / z.O / z.Wo / z.Ho;
        double sum = has(bias) ? ld(bias, o) : 0.0;
        for (int64_t k = 0; k < K; k++) {
            int64_t xi = seen(&z, n, i, j, k / z.K, k % z.K);
            if (xi >= 0) sum += ld(x, xi + o / (z.O / z.C)) * ld(w, o * K + k);
        }
        st(y, at, sum);
    }
}

/* The row i of y that reads row h of x by row u of the kernel; -1: none. */
static int64_t reads(int64_t h, int64_t u, int64_t rows, const sizes *z)
{
    int64_t i = h + z->p - u;
    return i < 0 || i % z->s || i / z->s >= rows ? -1 : i / z->s;
}

void dwconv_dx_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    sizes z = dw_sizes(dx, w, dy, &a->attr);
    for (int64_t at = 0, K = z.K * z.K, m = z.O / z.C; at < tensor_count(dx); at++) {
        int64_t c = at % z.C, l = at / z.C % z.W, h = at / z.C / z.W % z.H, n = at / z.C / z.W / z.H;
        double sum = 0.0;
        for (int64_t k = 0; k < K; k++) {
            int64_t i = reads(h, k / z.K, z.Ho, &z), j = reads(l, k % z.K, z.Wo, &z);
            for (int64_t o = c * m; i >= 0 && j >= 0 && o < (c + 1) * m; o++)
                sum += ld(dy, ((n * z.Ho + i) * z.Wo + j) * z.O + o) * ld(w, o * K + k);
        }
        st(dx, at, sum);
    }
}

void dwconv_dw_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0];
    sizes z = dw_sizes(x, dw, dy, &a->attr);
    for (int64_t at = 0, K = z.K * z.K; at < tensor_count(dw); at++) {
        int64_t o = at / K, k = at % K;
        double sum = 0.0;
        for (int64_t p = 0; p < tensor_count(dy) / z.O; p++) {
            int64_t xi = seen(&z, p / z.Wo / z.Ho, p / z.Wo % z.Ho, p % z.Wo, k / z.K, k % z.K);
            if (xi >= 0) sum += ld(dy, p * z.O + o) * ld(x, xi + o / (z.O / z.C));
        }
        st(dw, at, sum);
    }
}
