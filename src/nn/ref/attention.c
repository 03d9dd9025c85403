/* Attention: definition. One (row, head, query) at a time: scores, softmax, weighted sum of values. */
#include "nn/ref/ref.h"

/* Where one query finds its keys and values: first elements, step from key to key, how many. */
typedef struct view {
    int64_t q, k, v, step, keys, width;
    double scale;
} view;

static view view_of(const op_args *a, const tensor *qkv, const op_sequences *s, int64_t n, int64_t h, int64_t t)
{
    int64_t C = tensor_cols(qkv) / 3, e = C / a->attr.heads, base = op_first_row(s, n) * 3 * C;
    return (view){ base + t * 3 * C + h * e,
                   base + C + h * e,
                   base + 2 * C + h * e,
                   3 * C,
                   a->attr.causal ? t + 1 : op_row_count(s, n),
                   e,
                   1.0 / sqrt((double)e) };
}

static view view_one(const op_args *a, const tensor *q, const op_sequences *s, const tensor *index, int64_t n,
                     int64_t h)
{
    int64_t C = q->dim[1], e = C / a->attr.heads, base = op_first_row(s, n) * 2 * C;
    int64_t keys = has(index) ? ((const int32_t *)index->data)[n] + 1 : op_row_count(s, n);
    return (view){ n * C + h * e, base + h * e, base + C + h * e, 2 * C, keys, e, 1.0 / sqrt((double)e) };
}

static double score(const view *w, const tensor *q, const tensor *kv, int64_t j)
{
    double s = 0.0;
    for (int64_t i = 0; i < w->width; i++) s += ld(q, w->q + i) * ld(kv, w->k + j * w->step + i);
    return s * w->scale;
}

static double query_forward(const view *w, const tensor *q, const tensor *kv, const tensor *y, int64_t yi)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < w->keys; j++) max = fmax(max, score(w, q, kv, j));
    for (int64_t j = 0; j < w->keys; j++) sum += exp(score(w, q, kv, j) - max);
    double lse = max + log(sum);
    for (int64_t i = 0; i < w->width; i++) {
        double out = 0.0;
        for (int64_t j = 0; j < w->keys; j++) out += exp(score(w, q, kv, j) - lse) * ld(kv, w->v + j * w->step + i);
        st(y, yi + i, out);
    }
    return lse;
}

enum { COLUMNS = 64 }; /* gradients are summed in double, this many columns at a time */

/* p = softmax(s); ds_j = p_j (dy.v_j - dy.y) scale: the gradient of the score of key j. */
typedef struct pair {
    double p, ds;
} pair;

static pair pair_of(const view *w, const tensor *q, const tensor *kv, const tensor *y, const tensor *dy, int64_t yi,
                    double lse, int64_t j)
{
    double p = exp(score(w, q, kv, j) - lse), dp = 0.0, along = 0.0;
    for (int64_t i = 0; i < w->width; i++) {
        dp += ld(dy, yi + i) * ld(kv, w->v + j * w->step + i);
        along += ld(dy, yi + i) * ld(y, yi + i);
    }
    return (pair){ p, p * (dp - along) * w->scale };
}

/* dq = sum ds_j k_j. */
static void query_backward(const view *w, const tensor *q, const tensor *kv, const tensor *y, const tensor *dy,
                           int64_t yi, double lse, const tensor *dq)
{
    for (int64_t first = 0; first < w->width; first += COLUMNS) {
        int64_t columns = w->width - first < COLUMNS ? w->width - first : COLUMNS;
        double sum[COLUMNS] = { 0 };
        for (int64_t j = 0; j < w->keys; j++) {
            pair b = pair_of(w, q, kv, y, dy, yi, lse, j);
            for (int64_t i = 0; i < columns; i++) sum[i] += b.ds * ld(kv, w->k + j * w->step + first + i);
        }
        for (int64_t i = 0; i < columns; i++) st(dq, w->q + first + i, sum[i]);
    }
}

void attention_ref(const op_args *a)
{
    const tensor *qkv = &a->in[0], *y = &a->out[0], *lse = &a->out[1];
    op_sequences s = op_sequences_of(&a->attr, qkv, &a->in[1]);
    int64_t C = tensor_cols(y), H = a->attr.heads;
    fill_zero(y); /* padding rows */
    if (has(lse)) fill_zero(lse);
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < op_row_count(&s, n); t++) {
                view w = view_of(a, qkv, &s, n, h, t);
                double l = query_forward(&w, qkv, qkv, y, (op_first_row(&s, n) + t) * C + h * w.width);
                if (has(lse)) st(lse, op_head_at(&s, H, n, h) + t, l);
            }
}

/* dk_j = sum over the queries that see it of ds q, dv_j = sum p dy. */
static void key_backward(const op_args *a, const op_sequences *s, int64_t n, int64_t h, int64_t j, int64_t first)
{
    const tensor *dy = &a->in[0], *qkv = &a->in[1], *y = &a->in[2], *lse = &a->in[3], *dqkv = &a->out[0];
    int64_t C = tensor_cols(y), H = a->attr.heads;
    view w = view_of(a, qkv, s, n, h, 0);
    int64_t columns = w.width - first < COLUMNS ? w.width - first : COLUMNS, step = w.step;
    double dk[COLUMNS] = { 0 }, dv[COLUMNS] = { 0 };
    for (int64_t t = a->attr.causal ? j : 0; t < op_row_count(s, n); t++) {
        int64_t yi = (op_first_row(s, n) + t) * C + h * w.width;
        w = view_of(a, qkv, s, n, h, t);
        pair b = pair_of(&w, qkv, qkv, y, dy, yi, ld(lse, op_head_at(s, H, n, h) + t), j);
        for (int64_t i = 0; i < columns; i++) {
            dk[i] += b.ds * ld(qkv, w.q + first + i);
            dv[i] += b.p * ld(dy, yi + first + i);
        }
    }
    for (int64_t i = 0; i < columns; i++) {
        st(dqkv, w.k + j * step + first + i, dk[i]);
        st(dqkv, w.v + j * step + first + i, dv[i]);
    }
}

void attention_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *qkv = &a->in[1], *y = &a->in[2], *lse = &a->in[3], *dqkv = &a->out[0];
    op_sequences s = op_sequences_of(&a->attr, qkv, &a->in[4]);
    int64_t C = tensor_cols(y), H = a->attr.heads;
    fill_zero(dqkv); /* padding rows */
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < op_row_count(&s, n); t++) {
                view w = view_of(a, qkv, &s, n, h, t);
                query_backward(&w, qkv, qkv, y, dy, (op_first_row(&s, n) + t) * C + h * w.width,
                               ld(lse, op_head_at(&s, H, n, h) + t), dqkv);
                for (int64_t first = 0; first < w.width; first += COLUMNS) key_backward(a, &s, n, h, t, first);
            }
    sum_over_rows(&a->out[1], dqkv);
}

void attention_one_ref(const op_args *a)
{
    const tensor *q = &a->in[0], *kv = &a->in[1], *y = &a->out[0], *lse = &a->out[1];
    op_sequences s = op_sequences_of(&a->attr, kv, &a->in[3]);
    int64_t H = a->attr.heads;
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t h = 0; h < H; h++) {
            view w = view_one(a, q, &s, &a->in[2], n, h);
            double l = query_forward(&w, q, kv, y, w.q);
            if (has(lse)) st(lse, n * H + h, l);
        }
}

void attention_one_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *q = &a->in[1], *kv = &a->in[2], *y = &a->in[4], *lse = &a->in[5];
    const tensor *dq = &a->out[0], *dkv = &a->out[1];
    op_sequences s = op_sequences_of(&a->attr, kv, &a->in[6]);
    int64_t H = a->attr.heads;
    fill_zero(dkv); /* keys that no query attends to */
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t h = 0; h < H; h++) {
            view w = view_one(a, q, &s, &a->in[3], n, h);
            double l = ld(lse, n * H + h);
            query_backward(&w, q, kv, y, dy, w.q, l, dq);
            for (int64_t j = 0; j < w.keys; j++) {
                pair b = pair_of(&w, q, kv, y, dy, w.q, l, j);
                for (int64_t i = 0; i < w.width; i++) {
                    st(dkv, w.k + j * w.step + i, b.ds * ld(q, w.q + i));
                    st(dkv, w.v + j * w.step + i, b.p * ld(dy, w.q + i));
                }
            }
        }
}
