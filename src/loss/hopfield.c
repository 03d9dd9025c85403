/* The modern Hopfield network of the public header: retrieval on its own. Host, f32. */
#include "cloob/hopfield.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "loss/cpu.h"
#include "core/needs.h"

/* out (n, d) = softmax(beta states stored^T) stored; lse (n), when not NULL, = ln sum_j exp(beta s_ij). out must not be
 * states. Allocates a tile. */
static cloob_status update(cloob_ctx *ctx, const cloob_hopfield *h, const float *states, int64_t n, float *out,
                           double *lse)
{
    int64_t d = h->dim;
    size_t tile = sizeof(float) * TILE * TILE, rows_n = (size_t)max64(n, 1);
    tiles t = { .e = malloc(tile) };
    float *shift = malloc(rows_n * sizeof *shift);
    double *sum = malloc(rows_n * sizeof *sum);
    bool failed = !t.e || !shift || !sum;
    if (!failed) {
        retrieve_forward(ctx,
                         &(retrieval){ .a = { states, CLOOB_F32, n, d },
                                       .b = { h->stored, CLOOB_F32, h->count, d },
                                       .beta = h->beta,
                                       .shift = shift,
                                       .ra = out,
                                       .sum = sum },
                         &t);
        for (int64_t i = 0; i < n * d; i++) out[i] = (float)((double)out[i] / sum[i / d]);
        for (int64_t i = 0; lse && i < n; i++) lse[i] = (double)shift[i] + log(sum[i]);
    }
    free(t.e), free(shift), free(sum);
    return failed ? ctx_no_memory(ctx, tile, "retrieval") : CLOOB_OK;
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

/* Copies next to out for states that still move; returns their number. */
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
    if (o->updates < 1) return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%d updates: must be at least 1", o->updates);
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
