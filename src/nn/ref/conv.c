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

/* Index of the first channel of the input position that kernel element (u, v) sees from output (i, j); -1: padding. */
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

cloob_status conv2d_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *res = &a->in[3], *y = &a->out[0];
    sizes z = sizes_of(x, w, y, &a->attr);
    (void)env;
    for (int64_t n = 0, at = 0; n < z.N; n++)
        for (int64_t i = 0; i < z.Ho; i++)
            for (int64_t j = 0; j < z.Wo; j++)
                for (int64_t o = 0; o < z.O; o++, at++) {
                    double v = conv_at(&z, x, w, n, i, j, o) + (has(bias) ? ld(bias, o) : 0.0) +
                               (has(res) ? ld(res, at) : 0.0);
                    st(y, at, a->attr.relu && v < 0 ? 0.0 : v);
                }
    return CLOOB_OK;
}

/* dx gathers what every output that saw the position sends back. */
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

cloob_status conv2d_dx_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    sizes z = sizes_of(dx, w, dy, &a->attr);
    (void)env;
    for (int64_t n = 0, at = 0; n < z.N; n++)
        for (int64_t h = 0; h < z.H; h++)
            for (int64_t x = 0; x < z.W; x++)
                for (int64_t c = 0; c < z.C; c++, at++) st(dx, at, c < z.c ? dx_at(&z, dy, w, n, h, x, c) : 0.0);
    return CLOOB_OK;
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

cloob_status conv2d_dw_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0];
    sizes z = sizes_of(x, dw, dy, &a->attr);
    (void)env;
    for (int64_t o = 0, at = 0; o < z.O; o++)
        for (int64_t u = 0; u < z.K; u++)
            for (int64_t v = 0; v < z.K; v++)
                for (int64_t c = 0; c < z.c; c++, at++) st(dw, at, dw_at(&z, dy, x, o, u, v, c));
    return CLOOB_OK;
}

/* ---- each channel by its own kernel -------------------------------------------------------------- */

/* out[n,i,j,c] = sum over (u,v) of x[n, i + u - k/2, j + v - k/2, c] w[c,u,v], or with `turned` of w[c,k-1-u,k-1-v]. */
static void dwconv(const tensor *out, const tensor *x, const tensor *w, bool turned)
{
    int64_t H = x->dim[1], W = x->dim[2], C = x->dim[3], k = w->dim[1];
    for (int64_t at = 0; at < tensor_count(out); at++) {
        int64_t c = at % C, j = at / C % W, i = at / C / W % H, n = at / C / W / H;
        double sum = 0.0;
        for (int64_t u = 0; u < k; u++)
            for (int64_t v = 0; v < k; v++) {
                int64_t h = i + u - k / 2, l = j + v - k / 2, wi = c * k * k + u * k + v;
                if (h < 0 || h >= H || l < 0 || l >= W) continue;
                sum += ld(x, ((n * H + h) * W + l) * C + c) * ld(w, turned ? c * k * k + k * k - 1 - u * k - v : wi);
            }
        st(out, at, sum);
    }
}

cloob_status dwconv_ref(const op_env *env, const op_args *a)
{
    (void)env;
    dwconv(&a->out[0], &a->in[0], &a->in[1], false);
    return CLOOB_OK;
}

cloob_status dwconv_dx_ref(const op_env *env, const op_args *a)
{
    (void)env;
    dwconv(&a->out[0], &a->in[0], &a->in[1], true);
    return CLOOB_OK;
}

cloob_status dwconv_dw_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0];
    int64_t H = x->dim[1], W = x->dim[2], C = x->dim[3], k = dw->dim[1];
    (void)env;
    for (int64_t at = 0; at < tensor_count(dw); at++) {
        int64_t c = at / (k * k), u = at / k % k, v = at % k;
        double sum = 0.0;
        for (int64_t p = 0; p < tensor_count(dy) / C; p++) {
            int64_t h = p / W % H + u - k / 2, l = p % W + v - k / 2, n = p / W / H;
            if (h >= 0 && h < H && l >= 0 && l < W) sum += ld(dy, p * C + c) * ld(x, ((n * H + h) * W + l) * C + c);
        }
        st(dw, at, sum);
    }
    return CLOOB_OK;
}
