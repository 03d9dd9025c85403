/* Pictures, token embeddings, rows taken out: definitions. */
#include <string.h>

#include "nn/ref/ref.h"

cloob_status image_input_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    (void)env;
    int64_t N = y->dim[0], HW = y->dim[1] * y->dim[2], C = y->dim[3];
    for (int64_t n = 0; n < N; n++)
        for (int64_t p = 0; p < HW; p++)
            for (int64_t c = 0; c < C; c++) {
                double v = 0.0;
                if (c < 3 && x->dtype == CLOOB_U8)
                    v = (((const uint8_t *)x->data)[(n * HW + p) * 3 + c] / 255.0 - (double)a->attr.mean[c]) / (double)a->attr.std[c];
                else if (c < 3) v = ld(x, (n * 3 + c) * HW + p);
                st(y, (n * HW + p) * C + c, v);
            }
    return CLOOB_OK;
}

cloob_status embed_ref(const op_env *env, const op_args *a)
{
    const tensor *table = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    const int32_t *token = a->in[0].data;
    (void)env;
    int64_t N = y->dim[0], T = y->dim[1], C = y->dim[2];
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++)
                st(y, (n * T + t) * C + c, ld(table, token[n * T + t] * C + c) + ld(pos, t * C + c));
    return CLOOB_OK;
}

cloob_status embed_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dtable = &a->out[0], *dpos = &a->out[1];
    const int32_t *token = a->in[1].data;
    (void)env;
    int64_t N = dy->dim[0], T = dy->dim[1], C = dy->dim[2];
    if (has(dtable)) fill_zero(dtable);
    if (has(dpos)) fill_zero(dpos);
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++) {
                double g = ld(dy, (n * T + t) * C + c);
                int64_t row = token[n * T + t] * C + c;
                if (has(dtable)) st(dtable, row, ld(dtable, row) + g);
                if (has(dpos)) st(dpos, t * C + c, ld(dpos, t * C + c) + g);
            }
    return CLOOB_OK;
}

cloob_status eot_index_ref(const op_env *env, const op_args *a)
{
    const int32_t *token = a->in[0].data;
    int32_t *index = a->out[0].data;
    (void)env;
    int64_t N = a->in[0].dim[0], T = a->in[0].dim[1];
    for (int64_t n = 0; n < N; n++) {
        index[n] = 0;
        for (int32_t t = 1; t < T; t++)
            if (token[n * T + t] > token[n * T + index[n]]) index[n] = t;
    }
    return CLOOB_OK;
}

static int64_t row_of(const tensor *index, int64_t n) { return has(index) ? ((const int32_t *)index->data)[n] : 0; }

cloob_status take_rows_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    (void)env;
    int64_t N = x->dim[0], T = x->dim[1], C = x->dim[2];
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) st(y, n * C + c, ld(x, (n * T + row_of(&a->in[1], n)) * C + c));
    return CLOOB_OK;
}

cloob_status take_rows_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *extra = &a->in[3], *dx = &a->out[0];
    (void)env;
    int64_t N = dx->dim[0], T = dx->dim[1], C = dx->dim[2];
    for (int64_t i = 0; i < N * T * C; i++) st(dx, i, has(extra) ? ld(extra, i) : 0.0);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) {
            int64_t i = (n * T + row_of(&a->in[1], n)) * C + c;
            st(dx, i, ld(dx, i) + ld(dy, n * C + c));
        }
    return CLOOB_OK;
}

cloob_status class_tokens_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *cls = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    (void)env;
    int64_t N = y->dim[0], T = y->dim[1], C = y->dim[2];
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++) {
                double v = t == 0 ? ld(cls, c) : ld(x, (n * (T - 1) + t - 1) * C + c);
                st(y, (n * T + t) * C + c, v + ld(pos, t * C + c));
            }
    return CLOOB_OK;
}

/* dpos[t] = sum over the batch of dy[:, t]. */
static void sum_over_batch(const tensor *dy, const tensor *dpos)
{
    int64_t N = dy->dim[0], TC = dy->dim[1] * dy->dim[2];
    for (int64_t i = 0; i < TC; i++) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++) sum += ld(dy, n * TC + i);
        st(dpos, i, sum);
    }
}

cloob_status class_tokens_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dcls = &a->out[1], *dpos = &a->out[2];
    (void)env;
    int64_t N = dy->dim[0], T = dy->dim[1], C = dy->dim[2];
    for (int64_t n = 0; n < N && has(dx); n++)
        for (int64_t i = 0; i < (T - 1) * C; i++) st(dx, n * (T - 1) * C + i, ld(dy, n * T * C + C + i));
    for (int64_t c = 0; c < C && has(dcls); c++) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++) sum += ld(dy, n * T * C + c);
        st(dcls, c, sum);
    }
    if (has(dpos)) sum_over_batch(dy, dpos);
    return CLOOB_OK;
}

cloob_status mean_tokens_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *pos = &a->in[1], *y = &a->out[0];
    (void)env;
    int64_t N = y->dim[0], T = y->dim[1], C = y->dim[2];
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0.0;
            for (int64_t t = 1; t < T; t++) {
                double v = ld(x, (n * (T - 1) + t - 1) * C + c);
                sum += v;
                st(y, (n * T + t) * C + c, v + ld(pos, t * C + c));
            }
            st(y, n * T * C + c, sum / (double)(T - 1) + ld(pos, c));
        }
    return CLOOB_OK;
}

cloob_status mean_tokens_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dpos = &a->out[1];
    (void)env;
    int64_t N = dy->dim[0], T = dy->dim[1], C = dy->dim[2];
    for (int64_t n = 0; n < N && has(dx); n++)
        for (int64_t t = 1; t < T; t++)
            for (int64_t c = 0; c < C; c++)
                st(dx, (n * (T - 1) + t - 1) * C + c, ld(dy, (n * T + t) * C + c) + ld(dy, n * T * C + c) / (double)(T - 1));
    if (has(dpos)) sum_over_batch(dy, dpos);
    return CLOOB_OK;
}
