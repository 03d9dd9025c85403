/* relu, add, pool, activations: definitions. */
#include "nn/ref/ref.h"

void relu_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++) st(&a->out[0], i, fmax(ld(&a->in[0], i), 0.0));
}

void relu_bwd_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++)
        st(&a->out[0], i, ld(&a->in[1], i) > 0 ? ld(&a->in[0], i) : 0.0);
}

void tanh_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++) st(&a->out[0], i, tanh(ld(&a->in[0], i)));
}

void tanh_bwd_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++)
        st(&a->out[0], i, ld(&a->in[0], i) * (1.0 - ld(&a->in[1], i) * ld(&a->in[1], i)));
}

void add_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++)
        st(&a->out[0], i, ld(&a->in[0], i) + ld(&a->in[1], i));
}

void avgpool2_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t N = y->dim[0], H = y->dim[1], W = y->dim[2], C = y->dim[3];
    for (int64_t n = 0, at = 0; n < N; n++)
        for (int64_t i = 0; i < H; i++)
            for (int64_t j = 0; j < W; j++)
                for (int64_t c = 0; c < C; c++, at++) {
                    int64_t top = ((n * x->dim[1] + 2 * i) * x->dim[2] + 2 * j) * C + c, below = top + x->dim[2] * C;
                    st(y, at, 0.25 * (ld(x, top) + ld(x, top + C) + ld(x, below) + ld(x, below + C)));
                }
}

void avgpool2_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    int64_t N = dx->dim[0], H = dx->dim[1], W = dx->dim[2], C = dx->dim[3];
    for (int64_t n = 0, at = 0; n < N; n++)
        for (int64_t i = 0; i < H; i++)
            for (int64_t j = 0; j < W; j++)
                for (int64_t c = 0; c < C; c++, at++) {
                    bool pooled = i / 2 < dy->dim[1] && j / 2 < dy->dim[2];
                    int64_t from = ((n * dy->dim[1] + i / 2) * dy->dim[2] + j / 2) * C + c;
                    st(dx, at, pooled ? 0.25 * ld(dy, from) : 0.0);
                }
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/* 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
static const double TANH_SCALE = 1.5957691216057308, TANH_CUBE = 0.044715;

static double activation(op_act act, double x)
{
    if (act == OP_ACT_GELU) return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    if (act == OP_ACT_GELU_TANH) return x * sigmoid(TANH_SCALE * (x + TANH_CUBE * x * x * x));
    return x * sigmoid(1.702 * x);
}

static double activation_slope(op_act act, double x)
{
    if (act == OP_ACT_GELU) return 0.5 * (1.0 + erf(x / sqrt(2.0))) + x * exp(-0.5 * x * x) / sqrt(6.283185307179586);
    double cube = act == OP_ACT_GELU_TANH ? TANH_CUBE : 0.0, scale = act == OP_ACT_GELU_TANH ? TANH_SCALE : 1.702;
    double s = sigmoid(scale * (x + cube * x * x * x));
    return s + x * s * (1.0 - s) * scale * (1.0 + 3.0 * cube * x * x);
}

/* Element i of x (..., C) + bias (C). */
static double with_bias(const tensor *x, const tensor *bias, int64_t i)
{
    return ld(x, i) + (has(bias) ? ld(bias, i % tensor_cols(x)) : 0.0);
}

void act_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++)
        st(&a->out[0], i, activation(a->attr.act, with_bias(&a->in[0], &a->in[1], i)));
}

void act_bwd_ref(const op_args *a)
{
    for (int64_t i = 0, n = tensor_count(&a->out[0]); i < n; i++) {
        double slope = activation_slope(a->attr.act, with_bias(&a->in[1], &a->in[2], i));
        st(&a->out[0], i, ld(&a->in[0], i) * slope);
    }
    op_args recomputed = act_recompute(a);
    sum_over_rows(&a->out[2], &a->out[0]);
    if (has(&recomputed.out[0])) act_ref(&recomputed);
}
