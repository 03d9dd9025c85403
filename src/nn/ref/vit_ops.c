/* Tokens without a class token, mean pooling, a repeated query, layer scale: definitions. */
#include "nn/ref/ref.h"

void text_position_ref(const op_args *a)
{
    const int32_t *token = a->in[0].data;
    int32_t *index = a->out[0].data;
    for (int64_t n = 0, T = a->in[0].dim[1]; n < a->in[0].dim[0]; n++) {
        bool unlike = a->attr.unlike, by_token = unlike || a->attr.token;
        index[n] = by_token ? 0 : (int32_t)a->attr.tokens;
        for (int64_t t = T - 1; by_token && t >= 0; t--) {
            if ((token[n * T + t] == a->attr.token) == unlike) continue;
            index[n] = (int32_t)t;
            if (unlike) break;
        }
    }
}

void grid_tokens_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *bias = &a->in[1], *pos = &a->in[2], *y = &a->out[0];
    int64_t C = y->dim[2], TC = y->dim[1] * C;
    for (int64_t i = 0; i < tensor_count(y); i++)
        st(y, i, ld(x, i) + (has(bias) ? ld(bias, i % C) : 0.0) + ld(pos, i % TC));
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

void grid_tokens_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0], *dbias = &a->out[1], *dpos = &a->out[2];
    for (int64_t i = 0; has(dx) && i < tensor_count(dx); i++) st(dx, i, ld(dy, i));
    if (has(dbias)) sum_rows(dbias, dy, NULL, dy->dim[2]);
    if (has(dpos)) sum_rows(dpos, dy, NULL, dy->dim[1] * dy->dim[2]);
}

void mean_rows_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    op_sequences s = op_sequences_of(&a->attr, x, &a->in[1]);
    int64_t C = tensor_cols(x), skip = a->attr.rows;
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t c = 0; c < C; c++) {
            int64_t first = op_first_row(&s, n), rows = op_row_count(&s, n);
            double sum = 0.0;
            for (int64_t t = skip; t < rows; t++) sum += ld(x, (first + t) * C + c);
            st(y, n * C + c, sum / (double)(rows - skip));
        }
}

void mean_rows_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dx = &a->out[0];
    op_sequences s = op_sequences_of(&a->attr, dx, &a->in[2]);
    int64_t C = tensor_cols(dx), skip = a->attr.rows;
    fill_zero(dx); /* rows left out, and padding */
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t t = skip, rows = op_row_count(&s, n); t < rows; t++)
            for (int64_t c = 0; c < C; c++)
                st(dx, (op_first_row(&s, n) + t) * C + c, ld(dy, n * C + c) / (double)(rows - skip));
}

void repeat_row_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    for (int64_t i = 0; i < tensor_count(y); i++) st(y, i, ld(x, i % y->dim[1]));
}

void repeat_row_bwd_ref(const op_args *a) { sum_rows(&a->out[0], &a->in[0], NULL, a->in[0].dim[1]); }

void scale_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *gain = &a->in[1], *y = &a->out[0];
    for (int64_t i = 0, C = tensor_cols(x); i < tensor_count(y); i++) st(y, i, ld(x, i) * ld(gain, i % C));
}

void scale_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *gain = &a->in[2], *dx = &a->out[0], *dgain = &a->out[1];
    int64_t C = tensor_cols(x);
    for (int64_t i = 0; has(dx) && i < tensor_count(dx); i++) st(dx, i, ld(dy, i) * ld(gain, i % C));
    if (has(dgain)) sum_rows(dgain, dy, x, C);
}

void bias_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *bias = &a->in[1], *y = &a->out[0];
    for (int64_t i = 0, C = tensor_cols(x); i < tensor_count(y); i++) {
        int64_t k = op_bias_of(i % C, C, bias->dim[0]);
        st(y, i, ld(x, i) + (k < 0 ? 0.0 : ld(bias, k)));
    }
}

void bias_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *dbias = &a->out[0];
    int64_t C = tensor_cols(dy);
    for (int64_t c = 0; c < C; c++) {
        int64_t k = op_bias_of(c, C, dbias->dim[0]);
        double sum = 0.0;
        for (int64_t r = 0; r < tensor_rows(dy); r++) sum += ld(dy, r * C + c);
        if (k >= 0) st(dbias, k, sum);
    }
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

void gate_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    for (int64_t i = 0, C = tensor_cols(y); i < tensor_count(y); i++) {
        int64_t at = i / C * 2 * C + i % C;
        st(y, i, ld(x, at) * sigmoid(ld(x, at)) * ld(x, at + C));
    }
}

void gate_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *dx = &a->out[0];
    for (int64_t i = 0, C = tensor_cols(dy); i < tensor_count(dy); i++) {
        int64_t at = i / C * 2 * C + i % C;
        double g = ld(x, at), s = sigmoid(g), d = ld(dy, i);
        st(dx, at, d * ld(x, at + C) * (s + g * s * (1.0 - s)));
        st(dx, at + C, d * g * s);
    }
}

void excite_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *g = &a->in[1], *y = &a->out[0];
    int64_t C = x->dim[3], image = x->dim[1] * x->dim[2] * C;
    for (int64_t i = 0; i < tensor_count(x); i++) st(y, i, ld(x, i) * sigmoid(ld(g, i / image * C + i % C)));
}

void excite_bwd_ref(const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1], *g = &a->in[2], *dx = &a->out[0], *dg = &a->out[1];
    int64_t C = x->dim[3], P = x->dim[1] * x->dim[2];
    for (int64_t i = 0; i < tensor_count(g); i++) {
        double s = sigmoid(ld(g, i)), sum = 0.0;
        for (int64_t p = 0; p < P; p++) {
            int64_t at = (i / C * P + p) * C + i % C;
            if (has(dx)) st(dx, at, ld(dy, at) * s);
            sum += ld(dy, at) * ld(x, at);
        }
        if (has(dg)) st(dg, i, sum * s * (1.0 - s));
    }
}

void rope_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int64_t T = x->dim[1], C = x->dim[2] / 3, e = C / a->attr.heads;
    for (int64_t i = 0; i < tensor_count(x); i += 2) {
        int64_t c = i % (3 * C), t = i / (3 * C) % T - a->attr.rows;
        double angle = c < 2 * C && t >= 0 ? op_rope_angle(&a->attr, t, c % e / 2, e) : 0.0, u = ld(x, i),
               v = ld(x, i + 1);
        st(y, i, u * cos(angle) - v * sin(angle));
        st(y, i + 1, v * cos(angle) + u * sin(angle));
    }
}

void mask_queries_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    const int32_t *index = a->in[1].data;
    int64_t T = x->dim[1], C = x->dim[2] / 3;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        int64_t c = i % (3 * C), t = i / (3 * C) % T;
        st(y, i, c < C && t > index[i / (3 * C) / T] ? 0.0 : ld(x, i));
    }
}

/* Of a part of a batch, the records behind it have no rows. */
cloob_status patch_rows_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    int32_t *start = a->out[1].data, *grid = a->out[2].data;
    int64_t N = x->dim[0], live = op_live_places(env, x), bytes = tensor_count(x) / N, P = a->attr.patch, r = 0;
    for (int64_t n = 0; n < N; n++) {
        const uint8_t *record = (const uint8_t *)x->data + n * bytes;
        start[n] = (int32_t)r;
        grid[2 * n] = grid[2 * n + 1] = 1;
        if (n >= live) continue;
        op_record_grid(record, bytes, a->attr.rows, grid + 2 * n);
        int64_t w = grid[2 * n + 1];
        for (int64_t t = 0; t < grid[2 * n] * w; t++, r++)
            for (int64_t k = 0; k < 3 * P * P; k++) {
                int64_t i = t / w * P + k / 3 / P, j = t % w * P + k / 3 % P, c = k % 3;
                double v = record[(i * w * P + j) * 3 + c] / 255.0;
                st(y, r * 3 * P * P + k, (v - (double)a->attr.mean[c]) / (double)a->attr.std[c]);
            }
    }
    start[N] = (int32_t)r;
    for (int64_t i = r * 3 * P * P; i < tensor_count(y) && live == N; i++) st(y, i, 0.0);
    return CLOOB_OK;
}

/* The shares of places *first, *first + 1, ... of `from` in place i of `to`: a triangle as wide as two steps of the
 * coarser grid, cut off at the edges; returns their number. */
static int64_t grid_shares(int64_t from, int64_t to, int64_t i, int64_t *first, double share[OP_GRID_SIDE])
{
    double scale = (double)from / (double)to, wide = scale > 1 ? scale : 1, centre = ((double)i + 0.5) * scale, sum = 0;
    int64_t n = 0;
    *first = 0;
    for (int64_t j = 0; j < from; j++) {
        double v = 1 - fabs((double)j + 0.5 - centre) / wide;
        if (v <= 0) continue;
        if (n == 0) *first = j;
        share[n++] = v;
        sum += v;
    }
    for (int64_t k = 0; k < n; k++) share[k] /= sum;
    return n;
}

/* y[r] = x[r] plus place t of an h x w grid. */
static void add_position(const tensor *y, const tensor *x, const tensor *pos, int64_t G, int64_t r, int64_t t,
                         const int32_t *grid)
{
    int64_t C = tensor_cols(x), h = grid[0] > 0 ? grid[0] : 1, w = grid[1] > 0 ? grid[1] : 1, top, left;
    double down[OP_GRID_SIDE], across[OP_GRID_SIDE];
    int64_t rows = grid_shares(G, h, t / w < h ? t / w : h - 1, &top, down),
            cols = grid_shares(G, w, t % w, &left, across);
    for (int64_t c = 0; c < C; c++) {
        double sum = ld(x, r * C + c);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) sum += down[i] * across[j] * ld(pos, ((top + i) * G + left + j) * C + c);
        st(y, r * C + c, sum);
    }
}

cloob_status grid_positions_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *pos = &a->in[1], *y = &a->out[0];
    const int32_t *start = a->in[2].data, *grid = a->in[3].data;
    int64_t N = a->in[3].dim[0], C = tensor_cols(x), G = (int64_t)lround(sqrt((double)pos->dim[0]));
    for (int64_t n = 0; n < N; n++)
        for (int64_t r = start[n]; r < start[n + 1]; r++) add_position(y, x, pos, G, r, r - start[n], grid + 2 * n);
    for (int64_t i = start[N] * C; i < op_live_rows(env, x) * C; i++) st(y, i, ld(x, i));
    return CLOOB_OK;
}

/* The share of place j of `from` in place i of `to`. */
static double grid_share(int64_t from, int64_t to, int64_t i, int64_t j)
{
    double share[OP_GRID_SIDE];
    int64_t first, n = grid_shares(from, to, i, &first, share);
    return j >= first && j < first + n ? share[j - first] : 0.0;
}

/* sum (columns c .. c + n) plus what row (i, j) of the table has in one image's rows. */
static void add_position_grad(double *sum, const tensor *dy, int64_t c, int64_t n, const int32_t start[2],
                              const int32_t grid[2], int64_t G, int64_t i, int64_t j)
{
    int64_t h = grid[0] > 0 ? grid[0] : 1, w = grid[1] > 0 ? grid[1] : 1, rows = start[1] - start[0];
    for (int64_t t = 0; t < rows; t += w) {
        double down = grid_share(G, h, t / w < h ? t / w : h - 1, i);
        for (int64_t x = 0; x < w && t + x < rows && down > 0; x++) {
            double share = down * grid_share(G, w, x, j);
            for (int64_t k = 0; k < n && share > 0; k++)
                sum[k] += share * ld(dy, (start[0] + t + x) * tensor_cols(dy) + c + k);
        }
    }
}

void grid_positions_bwd_ref(const op_args *a)
{
    enum { COLUMNS = 256 };
    const tensor *dy = &a->in[0], *dpos = &a->out[0];
    const int32_t *start = a->in[2].data, *grid = a->in[3].data;
    int64_t N = a->in[3].dim[0], C = tensor_cols(dy), G = (int64_t)lround(sqrt((double)dpos->dim[0]));
    for (int64_t p = 0; p < G * G; p++)
        for (int64_t c = 0; c < C; c += COLUMNS) {
            double sum[COLUMNS] = { 0 };
            int64_t columns = C - c < COLUMNS ? C - c : COLUMNS;
            for (int64_t n = 0; n < N; n++)
                add_position_grad(sum, dy, c, columns, start + n, grid + 2 * n, G, p / G, p % G);
            for (int64_t k = 0; k < columns; k++) st(dpos, p * C + c + k, sum[k]);
        }
}
