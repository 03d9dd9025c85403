/* The attention pool's parts: definitions. */
#include "nn/ref/ref.h"

cloob_status heads_project_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *w = &a->in[1], *u = &a->out[0];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], E = w->dim[0] / H;
    (void)env;
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t c = 0; c < C; c++) {
                double sum = 0.0;
                for (int64_t e = h * E; e < (h + 1) * E; e++) sum += ld(x, n * H * E + e) * ld(w, e * C + c);
                st(u, (n * H + h) * C + c, sum * (double)a->attr.scale);
            }
    return CLOOB_OK;
}

cloob_status heads_collect_ref(const op_env *env, const op_args *a)
{
    const tensor *s = &a->in[0], *w = &a->in[1], *bias = &a->in[2], *o = &a->out[0];
    int64_t N = s->dim[0], H = s->dim[1], C = s->dim[2], E = w->dim[0] / H;
    (void)env;
    for (int64_t n = 0; n < N; n++)
        for (int64_t e = 0; e < H * E; e++) {
            double sum = 0.0;
            for (int64_t c = 0; c < C; c++) sum += ld(s, (n * H + e / E) * C + c) * ld(w, e * C + c);
            st(o, n * H * E + e, sum * (double)a->attr.scale + (has(bias) ? ld(bias, e) : 0.0));
        }
    return CLOOB_OK;
}

cloob_status heads_dw_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *u = &a->in[1], *dw = &a->out[0], *dbias = &a->out[1];
    int64_t N = u->dim[0], H = u->dim[1], C = u->dim[2], E = dw->dim[0] / H;
    (void)env;
    for (int64_t e = 0; e < H * E; e++) {
        double bias = 0.0;
        for (int64_t n = 0; n < N; n++) bias += ld(x, n * H * E + e);
        if (has(dbias)) st(dbias, e, bias);
        for (int64_t c = 0; c < C; c++) {
            double sum = 0.0;
            for (int64_t n = 0; n < N; n++) sum += ld(x, n * H * E + e) * ld(u, (n * H + e / E) * C + c);
            st(dw, e * C + c, sum * (double)a->attr.scale);
        }
    }
    return CLOOB_OK;
}

static double dot(const tensor *a, int64_t i, const tensor *b, int64_t j, int64_t C)
{
    double sum = 0.0;
    for (int64_t c = 0; c < C; c++) sum += ld(a, i + c) * ld(b, j + c);
    return sum;
}

cloob_status pool_attention_ref(const op_env *env, const op_args *a)
{
    const tensor *t = &a->in[0], *u = &a->in[1], *s = &a->out[0], *p = &a->out[1];
    int64_t N = t->dim[0], T = t->dim[1], C = t->dim[2], H = u->dim[1];
    (void)env;
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++) {
            int64_t row = n * H + h;
            double max = -INFINITY, sum = 0.0;
            for (int64_t j = 0; j < T; j++) max = fmax(max, dot(u, row * C, t, (n * T + j) * C, C));
            for (int64_t j = 0; j < T; j++) sum += exp(dot(u, row * C, t, (n * T + j) * C, C) - max);
            for (int64_t j = 0; j < T; j++) st(p, row * T + j, exp(dot(u, row * C, t, (n * T + j) * C, C) - max) / sum);
            for (int64_t c = 0; c < C; c++) {
                double out = 0.0;
                for (int64_t j = 0; j < T; j++) out += ld(p, row * T + j) * ld(t, (n * T + j) * C + c);
                st(s, row * C + c, out);
            }
        }
    return CLOOB_OK;
}

/* dp_j = ds.t_j; dz_j = p_j (dp_j - sum_k p_k dp_k): what position j sends back to the score of head row. */
static double dz_of(const op_args *a, int64_t n, int64_t row, int64_t j)
{
    const tensor *ds = &a->in[0], *t = &a->in[1], *p = &a->in[3];
    int64_t T = t->dim[1], C = t->dim[2];
    double along = 0.0;
    for (int64_t k = 0; k < T; k++) along += ld(p, row * T + k) * dot(ds, row * C, t, (n * T + k) * C, C);
    return ld(p, row * T + j) * (dot(ds, row * C, t, (n * T + j) * C, C) - along);
}

enum { COLUMNS = 512 }; /* gradients are summed in double, this many columns at a time */

/* du = sum_j dz_j t_j. */
static void du_row(const op_args *a, int64_t n, int64_t row, int64_t first)
{
    const tensor *t = &a->in[1], *du = &a->out[1];
    int64_t T = t->dim[1], C = t->dim[2], columns = C - first < COLUMNS ? C - first : COLUMNS;
    double sum[COLUMNS] = { 0 };
    for (int64_t j = 0; j < T; j++) {
        double dz = dz_of(a, n, row, j);
        for (int64_t c = 0; c < columns; c++) sum[c] += dz * ld(t, (n * T + j) * C + first + c);
    }
    for (int64_t c = 0; c < columns; c++) st(du, row * C + first + c, sum[c]);
}

/* dt_j = sum over heads of p_j ds + dz_j u. */
static void dt_row(const op_args *a, int64_t n, int64_t j, int64_t first)
{
    const tensor *ds = &a->in[0], *t = &a->in[1], *u = &a->in[2], *p = &a->in[3], *dt = &a->out[0];
    int64_t T = t->dim[1], C = t->dim[2], H = u->dim[1], columns = C - first < COLUMNS ? C - first : COLUMNS;
    double sum[COLUMNS] = { 0 };
    for (int64_t row = n * H; row < (n + 1) * H; row++) {
        double dz = dz_of(a, n, row, j), pj = ld(p, row * T + j);
        for (int64_t c = 0; c < columns; c++)
            sum[c] += pj * ld(ds, row * C + first + c) + dz * ld(u, row * C + first + c);
    }
    for (int64_t c = 0; c < columns; c++) st(dt, (n * T + j) * C + first + c, sum[c]);
}

cloob_status pool_attention_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *t = &a->in[1], *u = &a->in[2];
    int64_t N = t->dim[0], T = t->dim[1], C = t->dim[2], H = u->dim[1];
    (void)env;
    for (int64_t n = 0; n < N; n++)
        for (int64_t first = 0; first < C; first += COLUMNS) {
            for (int64_t h = 0; h < H; h++) du_row(a, n, n * H + h, first);
            for (int64_t j = 0; j < T; j++) dt_row(a, n, j, first);
        }
    return CLOOB_OK;
}
