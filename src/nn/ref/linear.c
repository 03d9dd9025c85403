/* Matrix product with bias and residual: definition. */
#include "nn/ref/ref.h"

/* w[o, k] whichever way it is stored. */
static int64_t at(const op_attr *attr, int64_t O, int64_t K, int64_t o, int64_t k)
{
    return attr->transposed ? k * O + o : o * K + k;
}

cloob_status linear_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *res = &a->in[3], *y = &a->out[0];
    int64_t R = tensor_rows(y), O = tensor_cols(y), K = tensor_cols(x);
    (void)env;
    for (int64_t r = 0; r < R; r++)
        for (int64_t o = 0; o < O; o++) {
            double sum = (has(bias) ? ld(bias, o) : 0.0) + (has(res) ? ld(res, r * O + o) : 0.0);
            for (int64_t k = 0; k < K; k++) sum += ld(x, r * K + k) * ld(w, at(&a->attr, O, K, o, k));
            st(y, r * O + o, sum);
        }
    return CLOOB_OK;
}

cloob_status linear_dx_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    int64_t R = tensor_rows(dy), O = tensor_cols(dy), K = tensor_cols(dx);
    (void)env;
    for (int64_t r = 0; r < R; r++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0.0;
            for (int64_t o = 0; o < O; o++) sum += ld(dy, r * O + o) * ld(w, at(&a->attr, O, K, o, k));
            st(dx, r * K + k, sum);
        }
    return CLOOB_OK;
}

cloob_status linear_dw_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dw = &a->out[0], *dbias = &a->out[1];
    int64_t R = tensor_rows(dy), O = tensor_cols(dy), K = tensor_cols(x);
    (void)env;
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
    return CLOOB_OK;
}
