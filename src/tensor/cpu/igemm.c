/* Packing, quantising rows, and the walk over panels and rows. */
#include "tensor/cpu/igemm.h"

#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"

enum {
    P = IGEMM_COLUMNS,
    CHUNK = 144, /* rows that are multiplied by a panel before the next: their X stays in the second cache */
    DEPTH = 384, /* pairs of k at a time: a panel of 24 KB stays in the first */
    ALIGN = 64
};

static int64_t panels_of(int64_t N) { return (N + P - 1) / P; }
static int64_t pairs_of(int64_t K) { return (K + 1) / 2; }
static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

int32_t igemm_top(int64_t K)
{
    int64_t top = INT32_MAX / 127 / (K > 0 ? K : 1);
    return (int32_t)(top < 4095 ? top : 4095);
}

/* ---- weights ------------------------------------------------------------------------------------- */

/* Scales first, then panels of (pairs, P, 2) int8. */
static size_t scales_bytes(int64_t N) { return round_up((size_t)(panels_of(N) * P) * sizeof(float)); }
static size_t panel_bytes(int64_t K) { return (size_t)(pairs_of(K) * P * 2); }

size_t igemm_packed_bytes(int64_t N, int64_t K)
{
    return scales_bytes(N) + round_up((size_t)panels_of(N) * panel_bytes(K));
}

static const float *packed_scales(const void *packed) { return packed; }
static const int8_t *packed_panel(const void *packed, int64_t N, int64_t K, int64_t p)
{
    return (const int8_t *)packed + scales_bytes(N) + (size_t)p * panel_bytes(K);
}

typedef struct pack_job {
    const int8_t *w;
    const float *floats;
    const char *scale;
    int64_t N, K;
    void *packed;
} pack_job;

CPU_CLONES float igemm_row_top(const float *x, int64_t K)
{
    float top = 0;
#pragma omp simd reduction(max : top)
    for (int64_t k = 0; k < K; k++) {
        float a = x[k] < 0 ? -x[k] : x[k];
        top = a > top ? a : top;
    }
    return top;
}

CPU_CLONES void igemm_round_row(const float *x, int64_t n, float scale, int8_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (int8_t)(int32_t)rintf(x[i] / scale);
}

/* Elements k to k + n of column `column` of a panel; k is even. */
static void put_weights(const int8_t *w, int64_t k, int64_t n, int8_t *panel, int64_t column)
{
    for (int64_t i = 0; i < n; i++) panel[((k + i) / 2 * P + column) * 2 + i % 2] = w[i];
}

/* Row n of the weight into its column of a panel. */
static void pack_row(const pack_job *j, int64_t n, int8_t *panel, float *scale)
{
    enum { SOME = 256 };
    int8_t whole[SOME];
    if (!j->floats) {
        memcpy(scale, j->scale + (size_t)n * sizeof *scale, sizeof *scale);
        put_weights(j->w + n * j->K, 0, j->K, panel, n % P);
        return;
    }
    const float *row = j->floats + n * j->K;
    *scale = igemm_row_top(row, j->K) / 127.0f;
    if (!(*scale > 0)) return; /* the panel is zero */
    for (int64_t k = 0; k < j->K; k += SOME) {
        int64_t some = min64(SOME, j->K - k);
        igemm_round_row(row + k, some, *scale, whole);
        put_weights(whole, k, some, panel, n % P);
    }
}

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    float *scale = j->packed;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        int8_t *panel = (int8_t *)j->packed + scales_bytes(j->N) + (size_t)p * panel_bytes(j->K);
        memset(panel, 0, panel_bytes(j->K));
        memset(scale + p * P, 0, P * sizeof *scale);
        for (int64_t n = p * P; n < min64((p + 1) * P, j->N); n++) pack_row(j, n, panel, scale + n);
    }
}

void igemm_pack(cloob_ctx *ctx, const int8_t *w, const void *scale, int64_t N, int64_t K, void *packed)
{
    pack_job j = { w, NULL, scale, N, K, packed };
    pool_for(ctx, panels_of(N), 1, pack_range, &j);
}

void igemm_pack_floats(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed)
{
    pack_job j = { NULL, w, NULL, N, K, packed };
    pool_for(ctx, panels_of(N), 1, pack_range, &j);
}

/* ---- activations --------------------------------------------------------------------------------- */

/* to[2 rows pair + half]: the elements of a block's rows side by side, in pairs. */
CPU_CLONES static void quantise(const float *x, int64_t K, float scale, int rows, int16_t *to)
{
    for (int64_t k = 0; k + 1 < K; k += 2) {
        to[k * rows] = (int16_t)(int32_t)rintf(x[k] * scale);
        to[k * rows + 1] = (int16_t)(int32_t)rintf(x[k + 1] * scale);
    }
    if (K % 2) to[(K - 1) * rows] = (int16_t)(int32_t)rintf(x[K - 1] * scale), to[(K - 1) * rows + 1] = 0;
}

/* ---- the walk ------------------------------------------------------------------------------------ */

typedef struct walk {
    const igemm_call *c;
    int64_t panels, pairs, blocks, chunks;
    float *scale; /* (M): of the rows of X */
    int16_t *x;
    char *own; /* per thread: a panel's stretch in 16 bits, and the sums of a chunk */
} walk;

static size_t own_bytes(void) { return DEPTH * P * 2 * sizeof(int16_t) + (CHUNK + IGEMM_ROWS) * P * sizeof(int32_t); }

size_t igemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t K)
{
    return round_up((size_t)M * sizeof(float)) + round_up((size_t)(M * pairs_of(K) * 2) * sizeof(int16_t)) +
           (size_t)ctx->threads * round_up(own_bytes());
}

static int64_t block_row(const walk *w, int64_t i) { return w->c->M * i / w->blocks; }
static int64_t chunk_block(const walk *w, int64_t i) { return w->blocks * i / w->chunks; }

static void quantise_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    int64_t K = w->c->K;
    float max = (float)igemm_top(K);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = block_row(w, i), rows = block_row(w, i + 1) - first;
        for (int64_t r = 0; r < rows; r++) {
            const float *x = w->c->x + (first + r) * K;
            float top = igemm_row_top(x, K);
            w->scale[first + r] = top / max;
            quantise(x, K, top > 0 ? max / top : 0, (int)rows, w->x + (first * w->pairs + r) * 2);
        }
    }
}

/* A stretch of a panel, int8 to int16. */
CPU_CLONES static void widen(const int8_t *from, int64_t n, int16_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

/* Whole sums of some rows by one panel become elements of Y. */
CPU_CLONES static void finish(const igemm_call *c, const int32_t *sum, const float *x_scale, int64_t row, int64_t rows,
                              int64_t column)
{
    const float *w_scale = packed_scales(c->packed) + column;
    int64_t n = min64(P, c->N - column);
    for (int64_t r = 0; r < rows; r++) {
        float *y = c->y + (row + r) * c->N + column, scale = x_scale[row + r];
        const float *res = c->res ? c->res + (row + r) * c->N + column : NULL;
        for (int64_t i = 0; i < n; i++) {
            float v = (float)sum[r * P + i] * (scale * w_scale[i]);
            if (c->bias) v = v + c->bias[column + i];
            y[i] = res ? v + res[i] : v;
        }
    }
}

static void chunk_by_panel(const walk *w, int64_t first, int64_t last, int64_t p, char *own)
{
    const igemm_call *c = w->c;
    int16_t *wide = (int16_t *)(void *)own;
    int32_t *sum = (int32_t *)(void *)(own + DEPTH * P * 2 * sizeof *wide);
    const int8_t *panel = packed_panel(c->packed, c->N, c->K, p);
    igemm_multiply_fn *multiply = igemm_best();
    int64_t begin = block_row(w, first);
    for (int64_t k = 0; k < w->pairs; k += DEPTH) {
        int64_t pairs = min64(DEPTH, w->pairs - k);
        widen(panel + k * P * 2, pairs * P * 2, wide);
        for (int64_t i = first; i < last; i++) {
            int64_t row = block_row(w, i), rows = block_row(w, i + 1) - row;
            multiply(&(igemm_block){ .x = w->x + (row * w->pairs + k * rows) * 2,
                                     .panel = wide,
                                     .sum = sum + (row - begin) * P,
                                     .pairs = pairs,
                                     .rows = (int)rows,
                                     .first = k == 0 });
        }
    }
    finish(c, sum, w->scale, begin, block_row(w, last) - begin, p * P);
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    char *own = w->own + (size_t)thread * round_up(own_bytes());
    for (int64_t i = begin; i < end; i++) {
        int64_t chunk = i / w->panels;
        chunk_by_panel(w, chunk_block(w, chunk), chunk_block(w, chunk + 1), i % w->panels, own);
    }
}

/* Blocks that are quantised, and panels that are multiplied by, at a time. */
enum { QUANTISE = 8, PIECE = 4 };

void igemm_run(cloob_ctx *ctx, const igemm_call *c)
{
    if (c->M < 1 || c->N < 1) return;
    walk w = { .c = c, .panels = panels_of(c->N), .pairs = pairs_of(c->K) };
    w.blocks = (c->M + IGEMM_ROWS - 1) / IGEMM_ROWS;
    w.chunks = (w.blocks * IGEMM_ROWS + CHUNK - 1) / CHUNK;
    w.scale = c->scratch;
    w.x = (int16_t *)(void *)((char *)c->scratch + round_up((size_t)c->M * sizeof *w.scale));
    w.own = (char *)w.x + round_up((size_t)(c->M * w.pairs * 2) * sizeof *w.x);
    pool_share(ctx, w.blocks, QUANTISE, quantise_range, &w);
    pool_share(ctx, w.chunks * w.panels, PIECE, run_range, &w);
}

/* ---- the definition ------------------------------------------------------------------------------ */

static int32_t whole(float x, float scale) { return (int32_t)rintf(x * scale); }

static float element(const igemm_call *c, int64_t m, int64_t n, float top)
{
    const float *x = c->x + m * c->K;
    const int8_t *panel = packed_panel(c->packed, c->N, c->K, n / P);
    float max = (float)igemm_top(c->K), to_whole = top > 0 ? max / top : 0;
    int32_t sum = 0;
    for (int64_t k = 0; k < c->K; k++) sum += whole(x[k], to_whole) * panel[(k / 2 * P + n % P) * 2 + k % 2];
    float v = (float)sum * (top / max * packed_scales(c->packed)[n]);
    if (c->bias) v = v + c->bias[n];
    return c->res ? v + c->res[m * c->N + n] : v;
}

void igemm_plain(const igemm_call *c)
{
    for (int64_t m = 0; m < c->M; m++) {
        float top = 0;
        for (int64_t k = 0; k < c->K; k++) top = fmaxf(top, fabsf(c->x[m * c->K + k]));
        for (int64_t n = 0; n < c->N; n++) c->y[m * c->N + n] = element(c, m, n, top);
    }
}

void igemm_multiply_plain(const igemm_block *b)
{
    for (int r = 0; r < b->rows; r++)
        for (int n = 0; n < P; n++) {
            int32_t sum = b->first ? 0 : b->sum[r * P + n];
            for (int64_t k = 0; k < b->pairs; k++) {
                const int16_t *x = b->x + (k * b->rows + r) * 2, *w = b->panel + (k * P + n) * 2;
                sum += x[0] * w[0] + x[1] * w[1];
            }
            b->sum[r * P + n] = sum;
        }
}
