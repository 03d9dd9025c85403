/* The attention pool's parts: definitions. */
#include "nn/ref/ref.h"

void heads_project_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *u = &a->out[0];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], E = w->dim[0] / H;
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t c = 0; c < C; c++) {
                double sum = 0.0;
                for (int64_t e = h * E; e < (h + 1) * E; e++) sum += ld(x, n * H * E + e) * ld(w, e * C + c);
                st(u, (n * H + h) * C + c, sum * (double)a->attr.scale);
            }
}

void heads_collect_ref(const op_args *a)
{
    const tensor *s = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *o = &a->out[0];
    int64_t N = s->dim[0], H = s->dim[1], C = s->dim[2], E = w->dim[0] / H;
    for (int64_t n = 0; n < N; n++)
        for (int64_t e = 0; e < H * E; e++) {
            double sum = 0.0;
            for (int64_t c = 0; c < C; c++) sum += ld(s, (n * H + e / E) * C + c) * ld(w, e * C + c);
            st(o, n * H * E + e, sum * (double)a->attr.scale + (has(bias) ? ld(bias, e) : 0.0));
        }
}

void heads_dw_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *u = &a->in[1], *dw = &a->out[0], *dbias = &a->out[1];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], E = a->in[2].dim[0] / H;
    for (int64_t e = 0; e < H * E; e++) {
        double bias = 0.0;
        for (int64_t n = 0; n < N; n++) bias += ld(x, n * H * E + e);
        if (has(dbias)) st(dbias, e, bias);
        for (int64_t c = 0; c < C && has(dw); c++) {
            double sum = 0.0;
            for (int64_t n = 0; n < N; n++) sum += ld(x, n * H * E + e) * ld(u, (n * H + e / E) * C + c);
            st(dw, e * C + c, sum * (double)a->attr.scale);
        }
    }
}

/* The tokens of sequence n that its query sees: `keys` rows from `first` on. */
typedef struct seen {
    int64_t first, keys;
} seen;

static seen seen_of(const op_sequences *s, const tensor *index, int64_t n)
{
    return (seen){ op_first_row(s, n), has(index) ? ((const int32_t *)index->data)[n] + 1 : op_row_count(s, n) };
}

static double dot(const tensor *a, int64_t i, const tensor *b, int64_t j, int64_t C)
{
    double sum = 0.0;
    for (int64_t c = 0; c < C; c++) sum += ld(a, i * C + c) * ld(b, j * C + c);
    return sum;
}

void pool_attention_ref(const op_args *a)
{
    const tensor *t = &a->in[0], *u = &a->in[1], *s = &a->out[0], *p = &a->out[1];
    op_sequences q = op_sequences_of(&a->attr, t, &a->in[3]);
    int64_t T = q.T, C = tensor_cols(t), H = u->dim[1];
    for (int64_t row = 0; row < q.N * H; row++) {
        seen v = seen_of(&q, &a->in[2], row / H);
        double max = -INFINITY, sum = 0.0;
        for (int64_t j = 0; j < v.keys; j++) max = fmax(max, dot(u, row, t, v.first + j, C));
        for (int64_t j = 0; j < v.keys; j++) sum += exp(dot(u, row, t, v.first + j, C) - max);
        for (int64_t j = 0; j < T; j++)
            st(p, row * T + j, j < v.keys ? exp(dot(u, row, t, v.first + j, C) - max) / sum : 0.0);
        for (int64_t c = 0; c < C; c++) {
            double out = 0.0;
            for (int64_t j = 0; j < v.keys; j++) out += ld(p, row * T + j) * ld(t, (v.first + j) * C + c);
            st(s, row * C + c, out);
        }
    }
}

/* What a sequence's backward pass reads and where. */
typedef struct pooled {
    const op_args *a;
    seen v;
    int64_t T, C, H;
} pooled;

/* dp_j = ds.t_j; dz_j = p_j (dp_j - sum_k p_k dp_k): what position j sends back to the score of head row. */
static double dz_of(const pooled *x, int64_t row, int64_t j)
{
    const tensor *ds = &x->a->in[0], *t = &x->a->in[1], *p = &x->a->in[3];
    double along = 0.0;
    for (int64_t k = 0; k < x->v.keys; k++) along += ld(p, row * x->T + k) * dot(ds, row, t, x->v.first + k, x->C);
    return ld(p, row * x->T + j) * (dot(ds, row, t, x->v.first + j, x->C) - along);
}

enum { COLUMNS = 512 }; /* gradients are summed in double, this many columns at a time */

/* du = sum_j dz_j t_j. */
static void du_row(const pooled *x, int64_t row, int64_t first)
{
    const tensor *t = &x->a->in[1], *du = &x->a->out[1];
    int64_t C = x->C, columns = C - first < COLUMNS ? C - first : COLUMNS;
    double sum[COLUMNS] = { 0 };
    for (int64_t j = 0; j < x->v.keys; j++) {
        double dz = dz_of(x, row, j);
        for (int64_t c = 0; c < columns; c++) sum[c] += dz * ld(t, (x->v.first + j) * C + first + c);
    }
    for (int64_t c = 0; c < columns; c++) st(du, row * C + first + c, sum[c]);
}

/* dt_j = sum over heads of p_j ds + dz_j u. */
static void dt_row(const pooled *x, int64_t n, int64_t j, int64_t first)
{
    const tensor *ds = &x->a->in[0], *u = &x->a->in[2], *p = &x->a->in[3], *dt = &x->a->out[0];
    int64_t C = x->C, columns = C - first < COLUMNS ? C - first : COLUMNS;
    double sum[COLUMNS] = { 0 };
    for (int64_t row = n * x->H; row < (n + 1) * x->H; row++) {
        double dz = dz_of(x, row, j), pj = ld(p, row * x->T + j);
        for (int64_t c = 0; c < columns; c++)
            sum[c] += pj * ld(ds, row * C + first + c) + dz * ld(u, row * C + first + c);
    }
    for (int64_t c = 0; c < columns; c++) st(dt, (x->v.first + j) * C + first + c, sum[c]);
}

void pool_attention_bwd_ref(const op_args *a)
{
    const tensor *t = &a->in[1];
    op_sequences s = op_sequences_of(&a->attr, t, &a->in[5]);
    int64_t H = a->in[2].dim[1], C = tensor_cols(t);
    if (has(&a->out[0])) fill_zero(&a->out[0]); /* tokens that no query attends to */
    for (int64_t n = 0; n < s.N; n++) {
        pooled x = { a, seen_of(&s, &a->in[4], n), s.T, C, H };
        for (int64_t first = 0; first < C; first += COLUMNS) {
            for (int64_t h = 0; h < H && has(&a->out[1]); h++) du_row(&x, n * H + h, first);
            for (int64_t j = 0; j < x.v.keys && has(&a->out[0]); j++) dt_row(&x, n, j, first);
        }
    }
}
