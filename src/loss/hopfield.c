/* Retrieval as a network of its own: like cpu_search.c, with the softmax denominator, which the objective
 * never needs, kept beside the sums. */
#include "loss/hopfield.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu_vec.h"
#include "tensor/cpu/gemm.h"

enum { TILE = 512 };

typedef struct strip { /* states [i, i + m) against stored [j, j + n) */
    int64_t i, j, m, n, d;
    float *score; /* (TILE, TILE) */
    float *out;   /* (rows, d), not NULL for retrieval */
    float top[TILE];
    double sum[TILE];
    bool same;
    float *nearest;
} strip;

static void update_range(void *arg, int64_t begin, int64_t end, int thread)
{
    strip *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *e = s->score + r * s->n, top = vec_max(e, s->n);
        if (top > s->top[r]) {
            double shrink = isinf(s->top[r]) ? 0 : exp((double)s->top[r] - (double)top);
            float *out = s->out + (s->i + r) * s->d;
            for (int64_t k = 0; k < s->d; k++) out[k] *= (float)shrink;
            s->sum[r] *= shrink;
            s->top[r] = top;
        }
        s->sum[r] += vec_sum_exp(e, s->n, s->top[r]);
        vec_exp(e, s->n, s->top[r], 1.0f);
    }
}

static void update_finish(const strip *s, double *lse)
{
    for (int64_t r = 0; r < s->m; r++) {
        float *out = s->out + (s->i + r) * s->d;
        for (int64_t k = 0; k < s->d; k++) out[k] = (float)((double)out[k] / s->sum[r]);
        if (lse) lse[s->i + r] = (double)s->top[r] + log(s->sum[r]);
    }
}

cloob_status hopfield_update(cloob_ctx *ctx, const hopfield *h, const float *states, int64_t n, float *out, double *lse)
{
    strip *s = calloc(1, sizeof *s);
    float *score = malloc(sizeof(float) * TILE * TILE);
    cloob_status status = s && score ? CLOOB_OK : ctx_no_memory(ctx, sizeof(float) * TILE * TILE, "retrieval");
    memset(out, 0, (size_t)(n * h->d) * sizeof *out);
    for (int64_t i = 0; status == CLOOB_OK && i < n; i += TILE) {
        *s = (strip){ .i = i, .m = min64(TILE, n - i), .d = h->d, .score = score, .out = out };
        for (int64_t r = 0; r < s->m; r++) s->top[r] = -INFINITY;
        for (s->j = 0; s->j < h->M; s->j += TILE) {
            const float *w = h->stored + s->j * h->d;
            s->n = min64(TILE, h->M - s->j);
            cpu_sgemm(ctx, false, true, s->m, s->n, h->d, (float)h->beta, states + i * h->d, h->d, w, h->d, 0, score,
                      s->n);
            pool_for(ctx, s->m, 8, update_range, s);
            cpu_sgemm(ctx, false, false, s->m, h->d, s->n, 1, score, s->n, w, h->d, 1, out + i * h->d, h->d);
        }
        update_finish(s, lse);
    }
    free(score);
    free(s);
    return status;
}

static void nearest_range(void *arg, int64_t begin, int64_t end, int thread)
{
    strip *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *k = s->score + r * s->n;
        int64_t own = s->i + r - s->j;
        if (s->same && own >= 0 && own < s->n) k[own] = -INFINITY;
        float top = vec_max(k, s->n), *best = &s->nearest[s->i + r];
        if (top > *best) *best = top;
    }
}

cloob_status hopfield_nearest(cloob_ctx *ctx, const float *a, int64_t n, const float *b, int64_t m, int64_t d,
                              bool same, float *top)
{
    float *score = malloc(sizeof(float) * TILE * TILE);
    strip *s = calloc(1, sizeof *s);
    cloob_status status = s && score ? CLOOB_OK : ctx_no_memory(ctx, sizeof(float) * TILE * TILE, "separations");
    for (int64_t i = 0; i < n; i++) top[i] = -INFINITY;
    for (int64_t i = 0; status == CLOOB_OK && i < n; i += TILE) {
        *s = (strip){ .i = i, .m = min64(TILE, n - i), .score = score, .same = same, .nearest = top };
        for (s->j = 0; s->j < m; s->j += TILE) {
            s->n = min64(TILE, m - s->j);
            cpu_sgemm(ctx, false, true, s->m, s->n, d, 1, a + i * d, d, b + s->j * d, d, 0, score, s->n);
            pool_for(ctx, s->m, 8, nearest_range, s);
        }
    }
    free(score);
    free(s);
    return status;
}
