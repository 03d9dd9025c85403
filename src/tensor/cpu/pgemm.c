/* Packing, the walk over panels and rows, and GEMM of few rows. */
#include "tensor/cpu/pgemm.h"

#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"

bool pgemm_usable(void) { return pgemm_best() != &pgemm_plain; }

static int64_t panels(const pgemm_kernel *k, int64_t N) { return (N + k->columns - 1) / k->columns; }

size_t pgemm_packed_bytes(int64_t N, int64_t K)
{
    const pgemm_kernel *k = pgemm_best();
    return (size_t)(panels(k, N) * K * k->columns) * sizeof(float);
}

/* ---- packing ------------------------------------------------------------------------------------- */

/* Panel p: (K, P), zeros beyond the last column. */
CPU_CLONES static void pack_panel(const pgemm_weight *w, int64_t p, int64_t P, float *to)
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
    int64_t P = pgemm_best()->columns;
    (void)thread;
    for (int64_t p = begin; p < end; p++) pack_panel(j->w, p, P, j->packed + p * j->w->K * P);
}

void pgemm_pack(cloob_ctx *ctx, const pgemm_weight *w, float *packed)
{
    pack_job j = { w, packed };
    pool_for(ctx, panels(pgemm_best(), w->N), 1, pack_range, &j);
}

static int64_t round_up(int64_t floats) { return (floats + 63) / 64 * 64; }

size_t pgemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t N, int64_t K)
{
    (void)N;
    return (size_t)(round_up(M * K) + ctx->threads * K * pgemm_best()->columns) * sizeof(float);
}

/* ---- many rows ----------------------------------------------------------------------------------- */

typedef struct walk {
    const pgemm_call *c;
    const pgemm_kernel *kernel;
    int64_t M, N, K, panels, blocks, chunks;
    int64_t height, taller; /* rows of a block; of the first `taller` of them, one more */
} walk;

/* Rows go in blocks of nearly the same height, blocks in chunks of nearly the same number. */
static int64_t block_row(const walk *w, int64_t i) { return i * w->height + min64(i, w->taller); }
static int64_t chunk_block(const walk *w, int64_t i) { return w->blocks * i / w->chunks; }

/* X as the inner part reads it: for every block (K, rows). Rows as they lie are a power of two apart and would push
 * each other out of the first cache. */
static void turn_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = block_row(w, i), rows = block_row(w, i + 1) - row;
        w->kernel->turn(w->c->x + row * w->K, w->K, (int)rows, w->c->scratch + row * w->K);
    }
}

/* What a block's sums begin with has left the near caches since it was written: it is fetched while the block before is
 * multiplied. */
static void fetch_block(const pgemm_call *c, int64_t N, int64_t row, int64_t rows, int64_t column, bool first)
{
    const float *from = first ? c->res : c->y;
    for (int64_t r = row; from && r < row + rows; r++) __builtin_prefetch(from + r * N + column);
}

/* Some blocks by one panel, over steps k0 .. k1. The first ones fetch a part of the next panel each. */
static void panel_rows(const walk *w, int64_t first, int64_t last, int64_t p, int64_t k0, int64_t k1,
                       const float *panel, const float *next)
{
    const pgemm_call *c = w->c;
    int64_t N = w->N, P = w->kernel->columns, column = p * P, lines = P * (int64_t)sizeof *next / 64;
    bool sparse = last - first >= lines * w->kernel->sparse;
    int64_t steps = sparse ? w->kernel->sparse : 1, part = (k1 - k0) / steps * 16;
    for (int64_t i = first; i < last; i++) {
        int64_t row = block_row(w, i), rows = block_row(w, i + 1) - row;
        if (i + 1 < last) fetch_block(c, N, row + rows, block_row(w, i + 2) - row - rows, column, k0 == 0);
        w->kernel->multiply(
            &(pgemm_block){ .x = c->scratch + row * w->K + k0 * rows,
                            .panel = panel + k0 * P,
                            .bias = c->bias ? c->bias + column : NULL,
                            .res = c->res ? c->res + row * N + column : NULL,
                            .next = i - first < lines * steps ? next + k0 * P + (i - first) * part : NULL,
                            .y = c->y + row * N + column,
                            .K = k1 - k0,
                            .ldy = N,
                            .rows = (int)rows,
                            .columns = (int)min64(P, N - column),
                            .first = k0 == 0,
                            .sparse = sparse });
    }
}

/* Blocks first .. last by panels p0 .. p1, packed before. */
static void by_packed(const walk *w, int64_t first, int64_t last, int64_t p0, int64_t p1)
{
    int64_t depth = w->kernel->depth ? w->kernel->depth : w->K, size = w->K * w->kernel->columns;
    for (int64_t k = 0; k < w->K || k == 0; k += depth)
        for (int64_t p = p0; p < p1; p++) {
            const float *panel = w->c->packed + p * size;
            panel_rows(w, first, last, p, k, min64(k + depth, w->K), panel, p + 1 < w->panels ? panel + size : panel);
        }
}

/* The same, each panel packed into `own` on the way. */
static void by_weight(const walk *w, int64_t first, int64_t last, int64_t p0, int64_t p1, float *own)
{
    int64_t depth = w->kernel->depth ? w->kernel->depth : w->K;
    for (int64_t p = p0; p < p1; p++) {
        pack_panel(&w->c->weight, p, w->kernel->columns, own);
        for (int64_t k = 0; k < w->K || k == 0; k += depth)
            panel_rows(w, first, last, p, k, min64(k + depth, w->K), own, own);
    }
}

/* A range of all chunks times panels: it may begin and end within a chunk. */
static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    float *own = w->c->scratch + round_up(w->M * w->K) + thread * w->K * w->kernel->columns;
    while (begin < end) {
        int64_t chunk = begin / w->panels, p = begin % w->panels, p1 = min64(w->panels, p + end - begin);
        int64_t first = chunk_block(w, chunk), last = chunk_block(w, chunk + 1);
        if (w->c->packed) by_packed(w, first, last, p, p1);
        else by_weight(w, first, last, p, p1, own);
        begin += p1 - p;
    }
}

enum { TURN = 8, PIECE = 1 << 20 }; /* blocks that are turned, products that are taken, by a thread at a time */

/* Panels of a piece. */
static int64_t piece(const walk *w)
{
    int64_t each = w->M / w->chunks * w->kernel->columns * (w->K + 1);
    return each < PIECE ? PIECE / each : 1;
}

void pgemm_run(cloob_ctx *ctx, const pgemm_call *c)
{
    const pgemm_kernel *k = pgemm_best();
    walk w = { .c = c, .kernel = k, .M = c->M, .N = c->weight.N, .K = c->weight.K, .panels = panels(k, c->weight.N) };
    if (c->M < 1) return;
    w.blocks = (c->M + k->rows - 1) / k->rows;
    w.chunks = (c->M + k->chunk - 1) / k->chunk;
    w.height = c->M / w.blocks;
    w.taller = c->M % w.blocks;
    pool_share(ctx, w.blocks, TURN, turn_range, &w);
    pool_share(ctx, w.chunks * w.panels, piece(&w), run_range, &w);
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
