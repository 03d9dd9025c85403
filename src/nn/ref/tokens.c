/* Images, token embeddings, extraction of rows: definitions. */

#include "nn/ref/ref.h"

void image_input_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t P = image_patch(&a->attr), C = y->dim[3] / (P * P), W = y->dim[2] * P, HW = y->dim[1] * P * W;
    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t p = 0; p < HW; p++)
            for (int64_t c = 0; c < C; c++) {
                int64_t i = p / W, j = p % W, window = (n * y->dim[1] + i / P) * y->dim[2] + j / P;
                double v = 0.0;
                if (c < 3 && x->dtype == CLOOB_U8)
                    v = (((const uint8_t *)x->data)[(n * HW + p) * 3 + c] / 255.0 - (double)a->attr.mean[c]) /
                        (double)a->attr.std[c];
                else if (c < 3) v = ld(x, (n * 3 + c) * HW + p);
                st(y, ((window * P + i % P) * P + j % P) * C + c, v);
            }
}

/* The index of the token in row r: from the packing, or r. */
static int64_t token_in(const tensor *row, int64_t r) { return has(row) ? ((const int32_t *)row->data)[r] : r; }

void embed_ref(const op_args *a)
{
    const tensor *table = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    const int32_t *token = a->in[0].data;
    int64_t T = a->in[0].dim[1], C = tensor_cols(y);
    for (int64_t r = 0; r < tensor_rows(y); r++) {
        int64_t i = token_in(&a->in[3], r);
        for (int64_t c = 0; c < C; c++) st(y, r * C + c, ld(table, token[i] * C + c) + ld(pos, i % T * C + c));
    }
}

void embed_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dtable = &a->out[0], *dpos = &a->out[1];
    const int32_t *token = a->in[1].data;
    int64_t T = a->in[1].dim[1], C = tensor_cols(dy);
    if (has(dtable)) fill_zero(dtable);
    if (has(dpos)) fill_zero(dpos);
    for (int64_t r = 0; r < tensor_rows(dy); r++) {
        int64_t i = token_in(&a->in[4], r);
        for (int64_t c = 0; c < C; c++) {
            double g = ld(dy, r * C + c);
            int64_t word = token[i] * C + c, place = i % T * C + c;
            if (has(dtable)) st(dtable, word, ld(dtable, word) + g);
            if (has(dpos)) st(dpos, place, ld(dpos, place) + g);
        }
    }
}

void eot_index_ref(const op_args *a)
{
    const int32_t *token = a->in[0].data;
    int32_t *index = a->out[0].data;
    int64_t N = a->in[0].dim[0], T = a->in[0].dim[1];
    for (int64_t n = 0; n < N; n++) {
        index[n] = 0;
        for (int32_t t = 1; t < T; t++)
            if (token[n * T + t] > token[n * T + index[n]]) index[n] = t;
    }
}

void pack_texts_ref(const op_args *a)
{
    const int32_t *index = a->in[0].data;
    int32_t *start = a->out[0].data, *row = a->out[1].data, *last = a->out[2].data, *first = a->out[3].data;
    int64_t N = a->in[1].dim[0], T = a->in[1].dim[1], R = a->attr.rows, r = 0;
    for (int64_t n = 0; n < N; n++) {
        start[n] = (int32_t)r;
        if (first) first[n] = (int32_t)r;
        for (int64_t t = 0; t <= index[n] && r < R; t++) row[r++] = (int32_t)(n * T + t);
        if (last) last[n] = (int32_t)(r > 0 ? r - 1 : 0);
    }
    start[N] = (int32_t)r;
    while (r < R) row[r++] = 0;
}

/* The row of x that entry i of index names: inside its sequence, or packed, of all. */
static int64_t row_of(const tensor *x, const tensor *index, int64_t i)
{
    int64_t t = has(index) ? ((const int32_t *)index->data)[i] : 0,
            each = has(index) && index->ndim == 2 ? index->dim[1] : 1;
    return x->ndim == 2 ? t : i / each * x->dim[1] + t;
}

void take_rows_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t N = tensor_rows(y), C = tensor_cols(y);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) st(y, n * C + c, ld(x, row_of(x, &a->in[1], n) * C + c));
}

void take_rows_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *extra = &a->in[3], *dx = &a->out[0];
    int64_t N = tensor_rows(dy), C = tensor_cols(dy);
    for (int64_t i = 0; i < tensor_count(dx); i++) st(dx, i, has(extra) ? ld(extra, i) : 0.0);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) {
            int64_t i = row_of(dx, &a->in[1], n) * C + c;
            st(dx, i, ld(dx, i) + ld(dy, n * C + c));
        }
}

void class_tokens_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *cls = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    int64_t N = y->dim[0], T = y->dim[1], C = y->dim[2];
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < C; c++) {
                double v = t == 0 ? ld(cls, c) : ld(x, (n * (T - 1) + t - 1) * C + c);
                st(y, (n * T + t) * C + c, v + ld(pos, t * C + c));
            }
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

void class_tokens_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dcls = &a->out[1], *dpos = &a->out[2];
    int64_t N = dy->dim[0], T = dy->dim[1], C = dy->dim[2];
    for (int64_t n = 0; n < N && has(dx); n++)
        for (int64_t i = 0; i < (T - 1) * C; i++) st(dx, n * (T - 1) * C + i, ld(dy, n * T * C + C + i));
    for (int64_t c = 0; c < C && has(dcls); c++) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++) sum += ld(dy, n * T * C + c);
        st(dcls, c, sum);
    }
    if (has(dpos)) sum_over_batch(dy, dpos);
}

void mean_tokens_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *pos = &a->in[1], *y = &a->out[0];
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
}

void mean_tokens_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dpos = &a->out[1];
    int64_t N = dy->dim[0], T = dy->dim[1], C = dy->dim[2];
    for (int64_t n = 0; n < N && has(dx); n++)
        for (int64_t t = 1; t < T; t++)
            for (int64_t c = 0; c < C; c++)
                st(dx, (n * (T - 1) + t - 1) * C + c,
                   ld(dy, (n * T + t) * C + c) + ld(dy, n * T * C + c) / (double)(T - 1));
    if (has(dpos)) sum_over_batch(dy, dpos);
}
