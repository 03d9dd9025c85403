/* Mean, covariance, eigenvalues. */
#include "eval/analysis.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linalg.h"

enum { BLOCK_ROWS = 2048 };

int64_t spectrum_effective(const double *value, int64_t n, double share)
{
    double total = 0, sum = 0;
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++) total += value[i];
    if (total <= 1e-12) return 0; /* rows of unit length that differ by rounding only: no spread at all */
    for (int64_t i = 0; i < n; i++) {
        sum += value[i];
        if (sum / total < share) below++;
    }
    return below < n ? below + 1 : n;
}

typedef struct moments {
    double *mean, *C, *wide; /* (D), (D, D), (BLOCK_ROWS, D) */
    float *block;            /* (BLOCK_ROWS, D) */
} moments;

static bool moments_init(moments *m, int64_t D)
{
    m->mean = calloc((size_t)D, sizeof *m->mean);
    m->C = calloc((size_t)(D * D), sizeof *m->C);
    m->wide = malloc((size_t)(BLOCK_ROWS * D) * sizeof *m->wide);
    m->block = malloc((size_t)(BLOCK_ROWS * D) * sizeof *m->block);
    return m->mean && m->C && m->wide && m->block;
}

static void moments_release(moments *m) { free(m->mean), free(m->C), free(m->wide), free(m->block); }

static int64_t read_block(moments *m, const unit_rows *x, int64_t at)
{
    int64_t n = x->src.N - at < BLOCK_ROWS ? x->src.N - at : BLOCK_ROWS;
    unit_rows_read(x, at, n, m->block);
    return n;
}

static void add_to_mean(moments *m, const unit_rows *x)
{
    int64_t D = x->src.D;
    for (int64_t at = 0, n; at < x->src.N; at += n) {
        n = read_block(m, x, at);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < D; k++) m->mean[k] += m->block[i * D + k];
    }
    for (int64_t k = 0; k < D; k++) m->mean[k] /= (double)x->src.N;
}

static void add_to_covariance(cloob_ctx *ctx, moments *m, const unit_rows *x)
{
    int64_t D = x->src.D;
    double weight = 1 / (double)(x->src.N - 1);
    for (int64_t at = 0, n; at < x->src.N; at += n) {
        n = read_block(m, x, at);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < D; k++) m->wide[i * D + k] = m->block[i * D + k] - m->mean[k];
        cpu_dgemm(ctx, true, false, D, D, n, weight, m->wide, D, m->wide, D, 1, m->C, D);
    }
}

cloob_status spectrum_run(cloob_ctx *ctx, spectrum *out, const unit_rows *x, double share)
{
    int64_t D = x->src.D;
    moments m;
    memset(out, 0, sizeof *out);
    if (x->src.N < 2) return ctx_fail(ctx, CLOOB_ERR_FORMAT, "%s: a covariance needs two rows", x->src.name);
    bool room = moments_init(&m, D);
    out->value = malloc((size_t)D * sizeof *out->value);
    cloob_status status = ctx_no_memory(ctx, (size_t)(D * D) * sizeof(double), "a covariance");
    if (room && out->value) {
        add_to_mean(&m, x);
        add_to_covariance(ctx, &m, x);
        status = linalg_eigenvalues(ctx, out->value, m.C, D);
    }
    moments_release(&m);
    if (status != CLOOB_OK) {
        spectrum_release(out);
        return status;
    }
    out->D = D;
    for (int64_t k = 0; k < D; k++) {
        if (out->value[k] < 0) out->value[k] = 0;
        out->total += out->value[k];
    }
    out->effective = spectrum_effective(out->value, D, share);
    return CLOOB_OK;
}

void spectrum_release(spectrum *s)
{
    free(s->value);
    s->value = NULL;
}
