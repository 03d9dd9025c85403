/* Tokens without a class token, mean pooling, a repeated query, layer scale: definitions. */
#include "nn/ref/ref.h"

cloob_status text_position_ref(const op_env *env, const op_args *a)
{
    const int32_t *token = a->in[0].data;
    int32_t *index = a->out[0].data;
    (void)env;
    for (int64_t n = 0, T = a->in[0].dim[1]; n < a->in[0].dim[0]; n++) {
        index[n] = a->attr.token ? 0 : (int32_t)a->attr.tokens;
        for (int64_t t = T - 1; a->attr.token && t >= 0; t--)
            if (token[n * T + t] == a->attr.token) index[n] = (int32_t)t;
    }
    return CLOOB_OK;
}

cloob_status grid_tokens_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *bias = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    (void)env;
    int64_t C = y->dim[2], TC = y->dim[1] * C;
    for (int64_t i = 0; i < tensor_count(y); i++) st(y, i, ld(x, i) + ld(bias, i % C) + ld(pos, i % TC));
    return CLOOB_OK;
}

/* out[c] = sum over the rows of a, or of a b, (R, C). */
static void sum_rows(const tensor *out, const tensor *a, const tensor *b, int64_t C)
{
    for (int64_t c = 0; c < C; c++) {
        double sum = 0.0;
        for (int64_t r = 0; r < tensor_count(a) / C; r++) sum += ld(a, r * C + c) * (b ? ld(b, r * C + c) : 1.0);
        st(out, c, sum);
    }
}

cloob_status grid_tokens_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dbias = &a->out[1], *dpos = &a->out[2];
    (void)env;
    for (int64_t i = 0; has(dx) && i < tensor_count(dx); i++) st(dx, i, ld(dy, i));
    if (has(dbias)) sum_rows(dbias, dy, NULL, dy->dim[2]);
    if (has(dpos)) sum_rows(dpos, dy, NULL, dy->dim[1] * dy->dim[2]);
    return CLOOB_OK;
}

cloob_status mean_rows_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t T = x->dim[1], C = x->dim[2], first = a->attr.rows;
    (void)env;
    for (int64_t n = 0; n < x->dim[0]; n++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0.0;
            for (int64_t t = first; t < T; t++) sum += ld(x, (n * T + t) * C + c);
            st(y, n * C + c, sum / (double)(T - first));
        }
    return CLOOB_OK;
}

cloob_status mean_rows_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    int64_t T = dx->dim[1], C = dx->dim[2], first = a->attr.rows;
    (void)env;
    for (int64_t i = 0; i < tensor_count(dx); i++) {
        int64_t c = i % C, t = i / C % T, n = i / C / T;
        st(dx, i, t < first ? 0.0 : ld(dy, n * C + c) / (double)(T - first));
    }
    return CLOOB_OK;
}

cloob_status repeat_row_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    (void)env;
    for (int64_t i = 0; i < tensor_count(y); i++) st(y, i, ld(x, i % y->dim[1]));
    return CLOOB_OK;
}

cloob_status repeat_row_bwd_ref(const op_env *env, const op_args *a)
{
    (void)env;
    sum_rows(&a->out[0], &a->in[0], NULL, a->in[0].dim[1]);
    return CLOOB_OK;
}

cloob_status scale_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *gain = &a->in[1], *y = &a->out[0];
    (void)env;
    for (int64_t i = 0, C = tensor_cols(x); i < tensor_count(y); i++) st(y, i, ld(x, i) * ld(gain, i % C));
    return CLOOB_OK;
}

cloob_status scale_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *gain = &a->in[2], *dx = &a->out[0], *dgain = &a->out[1];
    int64_t C = tensor_cols(x);
    (void)env;
    for (int64_t i = 0; has(dx) && i < tensor_count(dx); i++) st(dx, i, ld(dy, i) * ld(gain, i % C));
    if (has(dgain)) sum_rows(dgain, dy, x, C);
    return CLOOB_OK;
}
