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
            double most = -INFINITY, sum = 0.0;
            for (int64_t j = 0; j < T; j++) most = fmax(most, dot(u, row * C, t, (n * T + j) * C, C));
            for (int64_t j = 0; j < T; j++) sum += exp(dot(u, row * C, t, (n * T + j) * C, C) - most);
            for (int64_t j = 0; j < T; j++) st(p, row * T + j, exp(dot(u, row * C, t, (n * T + j) * C, C) - most) / sum);
            for (int64_t c = 0; c < C; c++) {
                double out = 0.0;
                for (int64_t j = 0; j < T; j++) out += ld(p, row * T + j) * ld(t, (n * T + j) * C + c);
                st(s, row * C + c, out);
            }
        }
    return CLOOB_OK;
}

/* dp_j = ds.t_j; dz_j = p_j (dp_j - sum_k p_k dp_k); du = sum dz_j t_j; dt_j += p_j ds + dz_j u. */
cloob_status pool_attention_bwd_ref(const op_env *env, const op_args *a)
{
    const tensor *ds = &a->in[0], *t = &a->in[1], *u = &a->in[2], *p = &a->in[3], *dt = &a->out[0], *du = &a->out[1];
    int64_t N = t->dim[0], T = t->dim[1], C = t->dim[2], H = u->dim[1];
    (void)env;
    fill_zero(dt);
    fill_zero(du);
    for (int64_t n = 0; n < N; n++)
        for (int64_t h = 0; h < H; h++) {
            int64_t row = n * H + h;
            double along = 0.0;
            for (int64_t j = 0; j < T; j++) along += ld(p, row * T + j) * dot(ds, row * C, t, (n * T + j) * C, C);
            for (int64_t j = 0; j < T; j++) {
                int64_t tj = (n * T + j) * C;
                double pj = ld(p, row * T + j), dz = pj * (dot(ds, row * C, t, tj, C) - along);
                for (int64_t c = 0; c < C; c++) {
                    st(du, row * C + c, ld(du, row * C + c) + dz * ld(t, tj + c));
                    st(dt, tj + c, ld(dt, tj + c) + pj * ld(ds, row * C + c) + dz * ld(u, row * C + c));
                }
            }
        }
    return CLOOB_OK;
}
