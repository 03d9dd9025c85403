/* Batch norm with relu, residual and pool: definitions. Rows are N H W, columns channels. */
#include "nn/ref/ref.h"

cloob_status bn_stats_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[0], *run_mean = &a->in[1], *run_var = &a->in[2], *mean = &a->out[0], *rstd = &a->out[1];
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    double m = (double)a->attr.momentum;
    for (int64_t c = 0; c < C; c++) {
        float part[3] = { 0 }; /* mean and mean square of this rank, then of all */
        double sum = 0.0, square = 0.0, count = (double)R;
        for (int64_t r = 0; r < R; r++) sum += ld(x, r * C + c);
        double mu = sum / (double)R;
        for (int64_t r = 0; r < R; r++) square += (ld(x, r * C + c) - mu) * (ld(x, r * C + c) - mu);
        double var = square / (double)R;
        if (env->sum_ranks) {
            part[0] = (float)mu, part[1] = (float)(var + mu * mu), part[2] = (float)count;
            CLOOB_TRY(env->sum_ranks(env->sum_user, part, 3));
            mu = (double)part[0] / env->ranks;
            var = (double)part[1] / env->ranks - mu * mu;
            count = (double)part[2];
        }
        st(mean, c, mu);
        st(rstd, c, 1.0 / sqrt(var + (double)a->attr.eps));
        if (a->attr.keep_stats || env->keep_stats) continue;
        st(run_mean, c, (1.0 - m) * ld(run_mean, c) + m * mu);
        st(run_var, c, (1.0 - m) * ld(run_var, c) + m * var * count / (count - 1.0));
    }
    return CLOOB_OK;
}

void bn_running_ref(const op_args *a)
{
    for (int64_t c = 0; c < tensor_count(&a->in[0]); c++) {
        st(&a->out[0], c, ld(&a->in[0], c));
        st(&a->out[1], c, 1.0 / sqrt(ld(&a->in[1], c) + (double)a->attr.eps));
    }
}

static double normalised(const tensor *x, const tensor *mean, const tensor *rstd, int64_t i, int64_t c)
{
    return (ld(x, i) - ld(mean, c)) * ld(rstd, c);
}

/* Input rows that output row r averages: four with pool, else itself. Returns how many. */
static int sources(const tensor *x, bool pool, int64_t r, int64_t row[4])
{
    if (!pool) {
        row[0] = r;
        return 1;
    }
    int64_t H = x->dim[1], W = x->dim[2], Ho = H / 2, Wo = W / 2;
    int64_t n = r / (Ho * Wo), i = r / Wo % Ho, j = r % Wo;
    for (int k = 0; k < 4; k++) row[k] = (n * H + 2 * i + k / 2) * W + 2 * j + k % 2;
    return 4;
}

void bn_apply_ref(const op_args *a)
{
    const tensor *x = &a->in[0], *gain = &a->in[3], *bias = &a->in[4], *res = &a->in[5], *y = &a->out[0];
    int64_t R = tensor_rows(y), C = tensor_cols(y);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            int64_t row[4];
            int k = sources(x, a->attr.pool, r, row);
            double sum = 0.0;
            for (int s = 0; s < k; s++) {
                int64_t i = row[s] * C + c;
                double v = normalised(x, &a->in[1], &a->in[2], i, c) * ld(gain, c) + ld(bias, c) +
                           (has(res) ? ld(res, i) : 0.0);
                sum += a->attr.relu && v < 0 ? 0.0 : v;
            }
            st(y, r * C + c, sum / k);
        }
}

/* The gradient before relu and pool at row r, channel c of x. */
typedef struct before {
    const tensor *dy, *dy2, *x, *mean, *rstd, *gain, *bias, *y;
    bool relu, pool;
} before;

static double gradient_before(const before *b, int64_t r, int64_t c)
{
    int64_t C = tensor_cols(b->x), i = r * C + c, from = i;
    double share = 1.0;
    if (b->pool) {
        int64_t H = b->x->dim[1], W = b->x->dim[2], Ho = H / 2, Wo = W / 2;
        int64_t n = r / (H * W), h = r / W % H, w = r % W;
        if (h >= 2 * Ho || w >= 2 * Wo) return 0.0; /* an odd last row or column is not pooled */
        from = ((n * Ho + h / 2) * Wo + w / 2) * C + c;
        share = 0.25;
    }
    if (b->relu) {
        double v = has(b->y) ? ld(b->y, i) : normalised(b->x, b->mean, b->rstd, i, c) * ld(b->gain, c) + ld(b->bias, c);
        if (v <= 0) return 0.0;
    }
    return share * (ld(b->dy, from) + (has(b->dy2) ? ld(b->dy2, from) : 0.0));
}

cloob_status bn_bwd_reduce_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[2], *dgain = &a->out[0], *dbias = &a->out[1], *sums = &a->out[2], *g = &a->out[3];
    before b = { &a->in[0], &a->in[1], x,         &a->in[3],    &a->in[4],
                 &a->in[5], &a->in[6], &a->in[7], a->attr.relu, a->attr.pool };
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    for (int64_t c = 0; c < C; c++) {
        double bias = 0.0, gain = 0.0;
        for (int64_t r = 0; r < R; r++) {
            double v = gradient_before(&b, r, c);
            bias += v;
            gain += v * normalised(x, b.mean, b.rstd, r * C + c, c);
            if (has(g)) st(g, r * C + c, v);
        }
        if (has(dgain)) st(dgain, c, gain);
        if (has(dbias)) st(dbias, c, bias);
        st(sums, c, bias);
        st(sums, C + c, gain);
    }
    op_args recomputed = bn_recompute(a);
    if (has(&recomputed.out[0])) bn_apply_ref(&recomputed);
    return env->sum_ranks ? env->sum_ranks(env->sum_user, sums->data, 2 * C) : CLOOB_OK;
}

/* dx = gain rstd (g - mean(g) - xhat mean(g xhat)), the means over all ranks. */
cloob_status bn_bwd_apply_ref(const op_env *env, const op_args *a)
{
    const tensor *x = &a->in[1], *sums = &a->in[6], *dx = &a->out[0], none = { 0 };
    before b = {
        &a->in[0], &a->in[7], x, &a->in[2], &a->in[3], &a->in[4], &a->in[5], &none, a->attr.relu, a->attr.pool
    };
    int64_t R = tensor_rows(x), C = tensor_cols(x);
    double count = (double)R * (env->sum_ranks ? env->ranks : 1);
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            double xhat = normalised(x, b.mean, b.rstd, r * C + c, c);
            double v = gradient_before(&b, r, c) - ld(sums, c) / count - xhat * ld(sums, C + c) / count;
            st(dx, r * C + c, ld(b.gain, c) * ld(b.rstd, c) * v);
        }
    return CLOOB_OK;
}

void fold_bn_ref(const op_args *a)
{
    const tensor *w = &a->in[0], *gain = &a->in[1], *bias = &a->in[2], *mean = &a->in[3], *var = &a->in[4];
    int64_t O = w->dim[0], K = tensor_count(w) / O;
    for (int64_t o = 0; o < O; o++) {
        double s = ld(gain, o) / sqrt(ld(var, o) + (double)a->attr.eps);
        for (int64_t k = 0; k < K; k++) st(&a->out[0], o * K + k, s * ld(w, o * K + k));
        st(&a->out[1], o, ld(bias, o) - s * ld(mean, o));
    }
}
