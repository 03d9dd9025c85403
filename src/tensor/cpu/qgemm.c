/* Packing, quantising rows, and the walk over panels and rows. */
#include "tensor/cpu/qgemm.h"

#include <math.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/clones.h"

enum {
    P = QGEMM_COLUMNS,
    R = QGEMM_ROWS,
    G = QGEMM_GROUP,
    QUADS = G / 4,
    DEPTH = 24,      /* groups at a time: a panel of 14 KB stays in the first cache */
    CHUNK = 144,     /* rows that are multiplied by a panel before the next, fewer where K is large: */
    CHUNK_KB = 256,  /* their X stays in the second cache */
    LARGEST = 32700, /* that a sum of a half may reach; the rest is for rounding of the bounds */
    ALIGN = 64
};

static int64_t panels_of(int64_t N) { return (N + P - 1) / P; }
static int64_t groups_of(int64_t K) { return (K + G - 1) / G; }
static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- weights ------------------------------------------------------------------------------------- */

/* Scales (N), then how long a half of a group of X may be (groups), then the panels. */
static size_t scales_bytes(int64_t N) { return round_up((size_t)(panels_of(N) * P) * sizeof(float)); }
static size_t limits_bytes(int64_t K) { return round_up((size_t)groups_of(K) * sizeof(float)); }
static size_t panel_bytes(int64_t K) { return (size_t)(groups_of(K) * QGEMM_GROUP_BYTES); }

size_t qgemm_packed_bytes(int64_t N, int64_t K)
{
    return scales_bytes(N) + limits_bytes(K) + (size_t)panels_of(N) * panel_bytes(K);
}

static const float *packed_scales(const void *packed) { return packed; }
static const float *packed_limits(const void *packed, int64_t N)
{
    return (const float *)(const void *)((const char *)packed + scales_bytes(N));
}
static size_t panel_offset(int64_t N, int64_t K, int64_t p)
{
    return scales_bytes(N) + limits_bytes(K) + (size_t)p * panel_bytes(K);
}
static const int8_t *packed_panel(const void *packed, int64_t N, int64_t K, int64_t p)
{
    return (const int8_t *)packed + panel_offset(N, K, p);
}

/* The weight of element k of a group and a column of the panel. */
static const int8_t *group_weights(const int8_t *group) { return group + P * 2 * sizeof(int16_t); }
static int64_t weight_at(int64_t k, int64_t column) { return (k / 4 * P + column) * 4 + k % 4; }

typedef struct pack_job {
    const float *w;
    int64_t N, K;
    void *packed;
} pack_job;

/* 32 elements of x from k on, zeros after the last. room: for those. */
static const float *group_of(const float *x, int64_t K, int64_t k, float room[G])
{
    if (k + G <= K) return x + k;
    memset(room, 0, G * sizeof *room);
    memcpy(room, x + k, (size_t)(K - k) * sizeof *room);
    return room;
}

static void pack_group(const float *x, float scale, int8_t *group, int64_t column)
{
    int8_t whole[G] = { 0 };
    int32_t half[2] = { 0 };
    int16_t sum[2];
    if (scale > 0) igemm_round_row(x, G, scale, whole);
    for (int k = 0; k < G; k += 4) {
        memcpy(group + P * sizeof sum + weight_at(k, column), whole + k, 4);
        half[0] += whole[k] + whole[k + 1];
        half[1] += whole[k + 2] + whole[k + 3];
    }
    for (int h = 0; h < 2; h++) sum[h] = (int16_t)-half[h];
    memcpy(group + (size_t)column * sizeof sum, sum, sizeof sum);
}

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    float *scale = j->packed, room[G];
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        int8_t *panel = (int8_t *)j->packed + panel_offset(j->N, j->K, p);
        memset(panel, 0, panel_bytes(j->K));
        memset(scale + p * P, 0, P * sizeof *scale);
        for (int64_t n = p * P; n < min64((p + 1) * P, j->N); n++) {
            const float *row = j->w + n * j->K;
            scale[n] = igemm_row_top(row, j->K) / 127.0f;
            for (int64_t g = 0; g < groups_of(j->K); g++)
                pack_group(group_of(row, j->K, g * G, room), scale[n], panel + g * QGEMM_GROUP_BYTES, n % P);
        }
    }
}

/* The square of the longest half of a group in one panel. */
CPU_CLONES static int32_t longest_half(const int8_t *weights)
{
    int32_t square[P * 2] = { 0 }, longest = 0;
    for (int q = 0; q < QUADS; q++)
        for (int i = 0; i < P * 2; i++) {
            int32_t a = weights[(q * P * 2 + i) * 2], b = weights[(q * P * 2 + i) * 2 + 1];
            square[i] += a * a + b * b;
        }
    for (int i = 0; i < P * 2; i++) longest = square[i] > longest ? square[i] : longest;
    return longest;
}

static void limit_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    float *limit = (float *)(void *)((char *)j->packed + scales_bytes(j->N));
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        int32_t longest = 1;
        for (int64_t p = 0; p < panels_of(j->N); p++) {
            const int8_t *group = packed_panel(j->packed, j->N, j->K, p) + g * QGEMM_GROUP_BYTES;
            int32_t here = longest_half(group_weights(group));
            longest = here > longest ? here : longest;
        }
        /* Rounding lengthens a half of 16 elements by at most 2. */
        limit[g] = LARGEST / sqrtf((float)longest) - 2;
    }
}

void qgemm_pack_floats(cloob_ctx *ctx, const float *w, int64_t N, int64_t K, void *packed)
{
    pack_job j = { w, N, K, packed };
    pool_for(ctx, panels_of(N), 1, pack_range, &j);
    pool_for(ctx, groups_of(K), 1, limit_range, &j);
}

/* ---- activations --------------------------------------------------------------------------------- */

/* The scale of a group. Not finite where an element is not. */
static float group_scale(const float x[G], float limit)
{
    float high = 0, low = 0, square[8] = { 0 };
    for (int i = 0; i < G; i++) {
        high = fmaxf(high, x[i]), low = fminf(low, x[i]);
        square[i % 8] += x[i] * x[i];
    }
    for (int i = 0; i < 4; i++) square[i] += square[i + 4];
    return qgemm_scale(high - low, square[0] + square[1], square[2] + square[3], limit);
}

float qgemm_scale(float range, float left, float right, float limit)
{
    float by_range = range / (float)QGEMM_STEPS, by_length = sqrtf(left > right ? left : right) / limit;
    if (!(left + right < INFINITY)) return left + right;
    return by_range > by_length ? by_range : by_length;
}

/* A scale this small is that of zeros; its inverse would not be a number. */
float qgemm_inverse(float scale) { return scale > 1e-30f ? 1 / scale : 0; }

/* Without an inverse x may be anything. */
static int32_t whole(float x, float inverse) { return inverse > 0 ? (int32_t)rintf(x * inverse) : 0; }

static void quantise_plain(const float *x, int64_t groups, const float *limit, uint8_t *to, qgemm_row *row)
{
    for (int64_t g = 0; g < groups; g++, x += G) {
        float scale = group_scale(x, limit[g]), inverse = qgemm_inverse(scale);
        int32_t least = 0;
        for (int k = 0; k < G; k++) least = whole(x[k], inverse) < least ? whole(x[k], inverse) : least;
        for (int k = 0; k < G; k++) to[(g * QUADS + k / 4) * R * 4 + k % 4] = (uint8_t)(whole(x[k], inverse) - least);
        row[g * R] = (qgemm_row){ scale, { (int16_t)-least, (int16_t)-least } };
    }
}

/* One row into its places of a block. */
static void quantise_row(const float *x, int64_t K, const float *limit, uint8_t *to, qgemm_row *row)
{
    int64_t groups = K / G;
    float room[G];
    qgemm_quantise_fn *quantise = qgemm_best()->quantise;
    quantise(x, groups, limit, to, row);
    if (K % G) quantise(group_of(x, K, groups * G, room), 1, limit + groups, to + groups * G * R, row + groups * R);
}

/* ---- the walk ------------------------------------------------------------------------------------ */

typedef struct walk {
    const igemm_call *c;
    int64_t panels, groups, blocks, chunks;
    uint8_t *x;
    qgemm_row *row;
    float *own; /* the sums of a chunk, per thread */
} walk;

static int64_t blocks_of(int64_t M) { return (M + R - 1) / R; }
static size_t x_bytes(int64_t M, int64_t K) { return (size_t)(blocks_of(M) * R * groups_of(K) * G); }
static size_t row_bytes(int64_t M, int64_t K)
{
    return round_up((size_t)(blocks_of(M) * R * groups_of(K)) * sizeof(qgemm_row));
}
enum { OWN = CHUNK * P };

size_t qgemm_scratch(const cloob_ctx *ctx, int64_t M, int64_t K)
{
    return round_up(x_bytes(M, K)) + row_bytes(M, K) + (size_t)ctx->threads * OWN * sizeof(float);
}

static int64_t block_row(const walk *w, int64_t i) { return w->c->M * i / w->blocks; }
static int64_t chunk_block(const walk *w, int64_t i) { return w->blocks * i / w->chunks; }

static void quantise_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    const float *limit = packed_limits(w->c->packed, w->c->N);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = block_row(w, i), rows = block_row(w, i + 1) - first;
        for (int64_t r = 0; r < R; r++) { /* the kernel takes two rows at a time: the last one may be there twice */
            const float *x = w->c->x + (first + min64(r, rows - 1)) * w->c->K;
            if (r < rows + rows % 2)
                quantise_row(x, w->c->K, limit, w->x + i * R * w->groups * G + r * 4, w->row + i * R * w->groups + r);
        }
    }
}

/* Sums of some rows by one panel become elements of Y. */
CPU_CLONES static void finish(const igemm_call *c, const float *sum, int64_t row, int64_t rows, int64_t column)
{
    const float *scale = packed_scales(c->packed) + column;
    int64_t n = min64(P, c->N - column);
    for (int64_t r = 0; r < rows; r++) {
        float *y = c->y + (row + r) * c->N + column;
        const float *res = c->res ? c->res + (row + r) * c->N + column : NULL;
        for (int64_t i = 0; i < n; i++) {
            float v = sum[r * P + i] * scale[i];
            if (c->bias) v = v + c->bias[column + i];
            y[i] = res ? v + res[i] : v;
        }
    }
}

/* Part i of n of a panel comes into the second cache. */
static void fetch(const int8_t *panel, size_t bytes, int64_t i, int64_t n)
{
    for (size_t at = bytes * (size_t)i / (size_t)n / ALIGN * ALIGN; at < bytes * (size_t)(i + 1) / (size_t)n;
         at += ALIGN)
        __builtin_prefetch(panel + at, 0, 2);
}

/* Sums of a block stand at R rows of their own, so that a kernel may write more rows than there are. A block is
 * finished as soon as its sums are: stores to Y wait for memory while the next block is multiplied. */
static void chunk_by_panel(const walk *w, int64_t first, int64_t last, int64_t p, float *sum)
{
    const igemm_call *c = w->c;
    const int8_t *panel = packed_panel(c->packed, c->N, c->K, p);
    const int8_t *next = packed_panel(c->packed, c->N, c->K, p + 1 < w->panels ? p + 1 : 0);
    qgemm_multiply_fn *multiply = qgemm_best()->multiply;
    memset(sum, 0, (size_t)((last - first) * R * P) * sizeof *sum);
    for (int64_t g = 0; g < w->groups; g += DEPTH)
        for (int64_t i = first; i < last; i++) {
            int64_t row = block_row(w, i), rows = block_row(w, i + 1) - row;
            qgemm_block b = { .x = w->x + (i * w->groups + g) * R * G,
                              .row = w->row + (i * w->groups + g) * R,
                              .panel = panel + g * QGEMM_GROUP_BYTES,
                              .sum = sum + (i - first) * R * P,
                              .groups = min64(DEPTH, w->groups - g),
                              .rows = (int)rows };
            fetch(next + g * QGEMM_GROUP_BYTES, (size_t)b.groups * QGEMM_GROUP_BYTES, i - first, last - first);
            multiply(&b);
            if (g + DEPTH >= w->groups) finish(c, b.sum, row, rows, p * P);
        }
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t chunk = i / w->panels;
        chunk_by_panel(w, chunk_block(w, chunk), chunk_block(w, chunk + 1), i % w->panels, w->own + thread * OWN);
    }
}

static int64_t chunks_of(const walk *w)
{
    int64_t rows = CHUNK_KB * 1024 / (w->groups * G);
    int64_t blocks = (rows < R ? R : rows > CHUNK ? CHUNK : rows) / R;
    return (w->blocks + blocks - 1) / blocks;
}

/* Blocks that are quantised, and panels that are multiplied by, at a time. */
enum { QUANTISE = 8, PIECE = 4 };

void qgemm_run(cloob_ctx *ctx, const igemm_call *c)
{
    if (c->M < 1 || c->N < 1) return;
    walk w = { .c = c, .panels = panels_of(c->N), .groups = groups_of(c->K), .blocks = blocks_of(c->M) };
    w.chunks = chunks_of(&w);
    w.x = c->scratch;
    w.row = (qgemm_row *)(void *)(w.x + round_up(x_bytes(c->M, c->K)));
    w.own = (float *)(void *)((char *)w.row + row_bytes(c->M, c->K));
    pool_share(ctx, w.blocks, QUANTISE, quantise_range, &w);
    pool_share(ctx, w.chunks * w.panels, PIECE, run_range, &w);
}

/* ---- the definition ------------------------------------------------------------------------------ */

static float element(const igemm_call *c, int64_t m, int64_t n)
{
    const int8_t *panel = packed_panel(c->packed, c->N, c->K, n / P);
    float sum = 0, room[G];
    for (int64_t g = 0; g < groups_of(c->K); g++) {
        const float *x = group_of(c->x + m * c->K, c->K, g * G, room);
        const int8_t *w = group_weights(panel + g * QGEMM_GROUP_BYTES);
        float scale = group_scale(x, packed_limits(c->packed, c->N)[g]), inverse = qgemm_inverse(scale);
        int32_t part = 0;
        for (int k = 0; k < G; k++) part += whole(x[k], inverse) * w[weight_at(k, n % P)];
        sum = fmaf((float)part, scale, sum);
    }
    float v = sum * packed_scales(c->packed)[n];
    if (c->bias) v = v + c->bias[n];
    return c->res ? v + c->res[m * c->N + n] : v;
}

void qgemm_plain(const igemm_call *c)
{
    for (int64_t m = 0; m < c->M; m++)
        for (int64_t n = 0; n < c->N; n++) c->y[m * c->N + n] = element(c, m, n);
}

static void multiply_plain(const qgemm_block *b)
{
    for (int64_t g = 0; g < b->groups; g++)
        for (int r = 0; r < b->rows; r++)
            for (int n = 0; n < P; n++) {
                const uint8_t *x = b->x + (g * QUADS * R + r) * 4;
                const int8_t *w = group_weights(b->panel + g * QGEMM_GROUP_BYTES);
                const qgemm_row *row = b->row + g * R + r;
                int32_t sum = 0;
                for (int k = 0; k < G; k++) sum += (x[k / 4 * R * 4 + k % 4] - row->zero[0]) * w[weight_at(k, n)];
                b->sum[r * P + n] = fmaf((float)sum, row->scale, b->sum[r * P + n]);
            }
}

const qgemm_kernel qgemm_kernel_plain = { quantise_plain, multiply_plain };
