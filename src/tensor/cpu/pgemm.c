/* Packing, the walk over panels and rows, and GEMMs of few rows. */
#include "tensor/cpu/pgemm.h"

#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"

enum { P = PGEMM_COLUMNS };

static int64_t panels(int64_t N) { return (N + P - 1) / P; }

size_t pgemm_packed_bytes(int64_t N, int64_t K) { return (size_t)(panels(N) * K * P) * sizeof(float); }

/* ---- packing ------------------------------------------------------------------------------------- */

/* Panel p: (K, P), zeros beyond the last column. */
CPU_CLONES static void pack_panel(const pgemm_weight *w, int64_t p, float *to)
{
    int64_t n = min64(P, w->N - p * P), K = w->K;
    if (n < P) memset(to, 0, (size_t)(K * P) * sizeof *to);
    if (w->transposed) {
        for (int64_t k = 0; k < K; k++) memcpy(to + k * P, w->w + k * w->N + p * P, (size_t)n * sizeof *to);
        return;
    }
    enum { STRIP = 16 }; /* a line of each row at a time */
    const float *from = w->w + p * P * K;
    for (int64_t k0 = 0; k0 < K; k0 += STRIP) {
        int64_t strip = min64(STRIP, K - k0);
        for (int64_t c = 0; c < n; c++)
            for (int64_t k = 0; k < strip; k++) to[(k0 + k) * P + c] = from[c * K + k0 + k];
    }
}

typedef struct pack_job {
    const pgemm_weight *w;
    float *packed;
} pack_job;

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    (void)thread;
    for (int64_t p = begin; p < end; p++) pack_panel(j->w, p, j->packed + p * j->w->K * P);
}

void pgemm_pack(cloob_ctx *ctx, const pgemm_weight *w, float *packed)
{
    pack_job j = { w, packed };
    pool_for(ctx, panels(w->N), 1, pack_range, &j);
}

static int64_t round_up(int64_t floats) { return (floats + 63) / 64 * 64; }

size_t pgemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t N, int64_t K)
{
    return (size_t)(round_up(M * K) + pool_ranges(ctx, panels(N), 1) * K * P) * sizeof(float);
}

/* ---- many rows ----------------------------------------------------------------------------------- */

/* Rows go in blocks of nearly the same height. */
static int64_t block_count(const pgemm_call *c) { return (c->M + PGEMM_ROWS - 1) / PGEMM_ROWS; }
static int64_t block_row(const pgemm_call *c, int64_t i) { return c->M * i / block_count(c); }

/* X as the inner part reads it: for every block (K, rows). Rows as they lie are a power of two apart and would push
 * each other out of the first cache. */
static void turn_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pgemm_call *c = arg;
    int64_t K = c->weight.K;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = block_row(c, i), rows = block_row(c, i + 1) - row;
        pgemm_turn(c->x + row * K, K, (int)rows, c->scratch + row * K);
    }
}

/* All rows by one panel. The first two blocks fetch half of the next panel each. */
static void panel_rows(const pgemm_call *c, int64_t p, const float *panel, const float *next)
{
    int64_t N = c->weight.N, K = c->weight.K, column = p * P;
    for (int64_t i = 0; i < block_count(c); i++) {
        int64_t row = block_row(c, i), end = block_row(c, i + 1);
        pgemm_multiply(&(pgemm_block){ .x = c->scratch + row * K,
                                       .panel = panel,
                                       .bias = c->bias ? c->bias + column : NULL,
                                       .res = c->res ? c->res + row * N + column : NULL,
                                       .next = i < 2 ? next + i * K * 16 : next,
                                       .y = c->y + row * N + column,
                                       .K = K,
                                       .ldy = N,
                                       .rows = (int)(end - row),
                                       .columns = (int)min64(P, N - column) });
    }
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pgemm_call *c = arg;
    int64_t size = c->weight.K * P;
    for (int64_t p = begin; p < end; p++) {
        float *own = c->scratch + round_up(c->M * c->weight.K) + thread * size;
        const float *panel = c->packed ? c->packed + p * size : own;
        if (!c->packed) pack_panel(&c->weight, p, own);
        panel_rows(c, p, panel, c->packed && p + 1 < end ? panel + size : panel);
    }
}

void pgemm_run(cloob_ctx *ctx, const pgemm_call *c)
{
    void *arg = (void *)(uintptr_t)c;
    pool_for(ctx, block_count(c), 1, turn_range, arg);
    pool_for(ctx, panels(c->weight.N), 1, run_range, arg);
}

/* ---- few rows ------------------------------------------------------------------------------------ */

static float start_of(const pgemm_call *c, int64_t m, int64_t n)
{
    return (c->bias ? c->bias[n] : 0.0f) + (c->res ? c->res[m * c->weight.N + n] : 0.0f);
}

CPU_CLONES static void few_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pgemm_call *c = arg;
    int64_t K = c->weight.K;
    (void)thread;
    for (int64_t n = begin; n < end; n++)
        for (int64_t m = 0; m < c->M; m++) {
            const float *w = c->weight.w + n * K, *x = c->x + m * K;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < K; k++) sum += w[k] * x[k];
            c->y[m * c->weight.N + n] = sum + start_of(c, m, n);
        }
}

/* Columns of a transposed weight: rows of it are added up. */
CPU_CLONES static void few_columns_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pgemm_call *c = arg;
    int64_t K = c->weight.K, N = c->weight.N;
    (void)thread;
    for (int64_t m = 0; m < c->M; m++) {
        float *y = c->y + m * N;
        for (int64_t n = begin; n < end; n++) y[n] = start_of(c, m, n);
        for (int64_t k = 0; k < K; k++) {
            float x = c->x[m * K + k];
            const float *w = c->weight.w + k * N;
            for (int64_t n = begin; n < end; n++) y[n] += x * w[n];
        }
    }
}

void pgemm_few(cloob_ctx *ctx, const pgemm_call *c)
{
    bool t = c->weight.transposed;
    pool_for(ctx, c->weight.N, t ? 64 : 1 + 16384 / c->weight.K, t ? few_columns_range : few_range,
             (void *)(uintptr_t)c);
}
