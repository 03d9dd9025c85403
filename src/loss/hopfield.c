/* The modern Hopfield network of the public header: retrieval on its own. Like cpu_search.c, and also computes the
 * softmax denominator, which the objective does not need. Host, f32. */
#include "cloob/hopfield.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "loss/cpu.h"
#include "tensor/cpu/gemm.h"
#include "core/needs.h"

enum { BLOCK = 512 };

typedef struct strip { /* states [i, i + m) against stored [j, j + n) */
    int64_t i, j, m, n, d;
    float *score; /* (BLOCK, BLOCK) */
    float *out;   /* (rows, d), not NULL for retrieval */
    float top[BLOCK];
    double sum[BLOCK];
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

/* out (n, d) = softmax(beta states stored^T) stored; lse (n), when not NULL, = ln sum_j exp(beta s_ij). out must not be
 * states. Allocates a tile. */
static cloob_status update(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n, float *out,
                           double *lse)
{
    strip *s = calloc(1, sizeof *s);
    float *score = malloc(sizeof(float) * BLOCK * BLOCK);
    cloob_status status = s && score ? CLOOB_OK : ctx_no_memory(ctx, sizeof(float) * BLOCK * BLOCK, "retrieval");
    memset(out, 0, (size_t)(n * h->dim) * sizeof *out);
    for (int64_t i = 0; status == CLOOB_OK && i < n; i += BLOCK) {
        *s = (strip){ .i = i, .m = min64(BLOCK, n - i), .d = h->dim, .score = score, .out = out };
        for (int64_t r = 0; r < s->m; r++) s->top[r] = -INFINITY;
        for (s->j = 0; s->j < h->count; s->j += BLOCK) {
            const float *w = h->stored + s->j * h->dim;
            s->n = min64(BLOCK, h->count - s->j);
            cpu_sgemm(ctx, false, true, s->m, s->n, h->dim, (float)h->beta, states + i * h->dim, h->dim, w, h->dim, 0,
                      score, s->n);
            pool_for(ctx, s->m, 8, update_range, s);
            cpu_sgemm(ctx, false, false, s->m, h->dim, s->n, 1, score, s->n, w, h->dim, 1, out + i * h->dim, h->dim);
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

/* top (n) = max over j of a_i.b_j, leaving out j = i when `same`. */
static cloob_status nearest(cloob_ctx *ctx, const float *a, int64_t n, const float *b, int64_t m, int64_t d, bool same,
                            float *top)
{
    float *score = malloc(sizeof(float) * BLOCK * BLOCK);
    strip *s = calloc(1, sizeof *s);
    cloob_status status = s && score ? CLOOB_OK : ctx_no_memory(ctx, sizeof(float) * BLOCK * BLOCK, "separations");
    for (int64_t i = 0; i < n; i++) top[i] = -INFINITY;
    for (int64_t i = 0; status == CLOOB_OK && i < n; i += BLOCK) {
        *s = (strip){ .i = i, .m = min64(BLOCK, n - i), .score = score, .same = same, .nearest = top };
        for (s->j = 0; s->j < m; s->j += BLOCK) {
            s->n = min64(BLOCK, m - s->j);
            cpu_sgemm(ctx, false, true, s->m, s->n, d, 1, a + i * d, d, b + s->j * d, d, 0, score, s->n);
            pool_for(ctx, s->m, 8, nearest_range, s);
        }
    }
    free(score);
    free(s);
    return status;
}

/* ---- the public header ---- */

void cloob_hopfield_options_init_size(cloob_hopfield_options *o, size_t size)
{
    cloob_hopfield_options d = { .updates = 1 };
    options_write(o, size, &d, sizeof d);
}

static cloob_status check_rows(cloob_ctx *ctx, const char *what, const float *x, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(vec_dot(x + i * d, x + i * d, d)))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "%s %lld holds NaN or infinity", what, (long long)i);
    return CLOOB_OK;
}

static cloob_status check(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n)
{
    if (h->count < 1 || h->dim < 1 || !h->stored) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no stored patterns");
    if (!isfinite(h->beta) || h->beta < 0)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "Hopfield scale %g: must be finite and not negative", h->beta);
    if (n < 0 || (n > 0 && !states)) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "no states");
    CLOOB_TRY(check_rows(ctx, "stored pattern", h->stored, h->count, h->dim));
    return check_rows(ctx, "state", states, n, h->dim);
}

/* out = next where a state is still moving; returns how many are. */
static int64_t take(const cloob_hopfield_options *o, float *out, const float *next, int *updates, bool *still,
                    int64_t n, int64_t d)
{
    int64_t moving = 0;
    for (int64_t i = 0; i < n; i++) {
        double moved = 0;
        if (!still[i]) continue;
        for (int64_t k = i * d; k < (i + 1) * d; k++) moved += pow((double)next[k] - (double)out[k], 2);
        memcpy(out + i * d, next + i * d, (size_t)d * sizeof *out);
        if (updates) updates[i]++;
        still[i] = !(sqrt(moved) < o->tolerance);
        moving += still[i];
    }
    return moving;
}

static cloob_status scale_to_unit(cloob_ctx *ctx, float *out, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        double length = sqrt(vec_dot(out + i * d, out + i * d, d));
        if (!(length > 0))
            return ctx_fail(ctx, CLOOB_ERR_NUMERIC, "state %lld retrieves zero, which has no direction", (long long)i);
        for (int64_t k = i * d; k < (i + 1) * d; k++) out[k] = (float)((double)out[k] / length);
    }
    return CLOOB_OK;
}

cloob_status cloob_hopfield_retrieve(cloob_ctx *ctx, const cloob_hopfield *h, const cloob_hopfield_options *o,
                                     const float *states, int64_t n, float *out, int *updates)
{
    API_NEEDS(ctx, h && o && n >= 0 && (n == 0 || (states && out)));
    OPTIONS_READ(ctx, cloob_hopfield_options, o);
    CLOOB_TRY(check(ctx, h, states, n));
    if (o->updates < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%d updates: at least 1 is needed", o->updates);
    size_t bytes = (size_t)(n * h->dim) * sizeof(float);
    float *next = malloc(bytes ? bytes : 1);
    bool *still = malloc((size_t)n + 1);
    cloob_status status = next && still ? CLOOB_OK : ctx_no_memory(ctx, bytes, "retrieval");
    if (status == CLOOB_OK) {
        if (out != states) memcpy(out, states, bytes);
        memset(still, true, (size_t)n);
        for (int64_t i = 0; updates && i < n; i++) updates[i] = 0;
    }
    for (int step = 0; status == CLOOB_OK && step < o->updates; step++) {
        status = update(ctx, h, out, n, next, NULL);
        if (status == CLOOB_OK && take(o, out, next, updates, still, n, h->dim) == 0) break;
    }
    if (status == CLOOB_OK && o->unit) status = scale_to_unit(ctx, out, n, h->dim);
    free(next);
    free(still);
    return status;
}

cloob_status cloob_hopfield_energy(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n,
                                   double *energy)
{
    API_NEEDS(ctx, h && n >= 0 && (n == 0 || (states && energy)));
    CLOOB_TRY(check(ctx, h, states, n));
    if (h->beta == 0) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "the energy needs a Hopfield scale above 0");
    size_t bytes = (size_t)(n * h->dim) * sizeof(float);
    float *next = malloc(bytes ? bytes : 1);
    if (!next) return ctx_no_memory(ctx, bytes, "the energy");
    double largest = 0;
    cloob_status status = update(ctx, h, states, n, next, energy);
    for (int64_t j = 0; j < h->count; j++)
        largest = fmax(largest, vec_dot(h->stored + j * h->dim, h->stored + j * h->dim, h->dim));
    for (int64_t i = 0; status == CLOOB_OK && i < n; i++) {
        double own = vec_dot(states + i * h->dim, states + i * h->dim, h->dim);
        energy[i] = -energy[i] / h->beta + log((double)h->count) / h->beta + own / 2 + largest / 2;
    }
    free(next);
    return status;
}

cloob_status cloob_hopfield_separation(cloob_ctx *ctx, const cloob_hopfield *h, double *separation)
{
    API_NEEDS(ctx, h && separation);
    CLOOB_TRY(check(ctx, h, NULL, 0));
    if (h->count < 2) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "a separation needs at least 2 patterns");
    float *top = malloc((size_t)h->count * sizeof *top);
    if (!top) return ctx_no_memory(ctx, (size_t)h->count * sizeof *top, "separations");
    cloob_status status = nearest(ctx, h->stored, h->count, h->stored, h->count, h->dim, true, top);
    for (int64_t i = 0; status == CLOOB_OK && i < h->count; i++)
        separation[i] = vec_dot(h->stored + i * h->dim, h->stored + i * h->dim, h->dim) - (double)top[i];
    free(top);
    return status;
}
