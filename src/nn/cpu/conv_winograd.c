/* Tiles go through three phases: patches to points (V), a GEMM at every point (M), points to outputs. Where there are
 * many tiles each thread takes chunks of them through all three, in its own cache; where there are few, threads share
 * every phase. */
#include "nn/cpu/conv_winograd.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "nn/cpu/cpu.h"
#include "tensor/cpu/winograd_tile.h"

enum { V = WINOGRAD_LANES, P = WINOGRAD_COLUMNS, LINE = 16 }; /* LINE: floats of a cache line */

struct conv_winograd {
    const winograd_tile *tile;
    int64_t N, H, W, C, O;
    int64_t across, per_image; /* tiles of a row, of an image */
    int64_t chunk;             /* tiles that go through all phases together, at most */
    float *weight;             /* (points, O / 16, C, 16) */
    bool ready;
};

/* ---- preparing ----------------------------------------------------------------------------------- */

enum { FEW_TILES = 12, CHUNK_BYTES = 1 << 20, CHUNK_LEAST = 24 };

static int64_t tiles_of(const winograd_tile *t, int64_t H, int64_t W)
{
    return (H + t->size - 1) / t->size * ((W + t->size - 1) / t->size);
}

/* Points lie a line more than their tiles apart: at distances of 4096 bytes they would push each other out of the first
 * cache. */
static int64_t stride_of(int64_t tiles, int64_t channels) { return tiles * channels + LINE; }

static int64_t scratch_of(const conv_winograd *c, int64_t tiles)
{
    return c->tile->points * (stride_of(tiles, c->C) + stride_of(tiles, c->O));
}

/* As many tiles as leave V and M near, and enough of them for a panel of weights that comes from far. */
static int64_t chunk_of(const winograd_tile *t, int64_t C, int64_t O)
{
    int64_t fit = CHUNK_BYTES / (t->points * (C + O) * (int64_t)sizeof(float));
    return (fit < CHUNK_LEAST ? CHUNK_LEAST : fit) / WINOGRAD_ROWS * WINOGRAD_ROWS;
}

static bool in_chunks(const op_env *env, const conv_winograd *c)
{
    return c->N * c->per_image >= 2 * env->ctx->threads * c->chunk;
}

/* Tiles of 4 x 4 unless they are few: their weights are four times those of the convolution, and reading them is what
 * takes the time then; of 2 x 2, with weights 16 / 9 times as large, there are more. NULL: too few even of those. */
static const winograd_tile *best_tile(const op_env *env, const tensor *x)
{
    for (int size = 4; size >= 2; size -= 2) {
        const winograd_tile *t = winograd_tile_of(size);
        int64_t tiles = t ? tiles_of(t, x->dim[1], x->dim[2]) * (env->invariant ? 1 : x->dim[0]) : 0;
        if (tiles >= FEW_TILES) return t;
    }
    return NULL;
}

cloob_status conv_winograd_create(const op_env *env, op_args *a, conv_winograd **out)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    const winograd_tile *t = best_tile(env, x);
    *out = NULL;
    if (!t || x->block != V || y->block != V || y->dim[3] % P) return CLOOB_OK;
    int64_t each = tiles_of(t, x->dim[1], x->dim[2]);
    conv_winograd *c = malloc(sizeof *c);
    if (!c) return ctx_no_memory(env->ctx, sizeof *c, "a convolution");
    *c = (conv_winograd){ .tile = t, x->dim[0], x->dim[1], x->dim[2], x->dim[3], y->dim[3] };
    c->across = (c->W + t->size - 1) / t->size;
    c->per_image = each;
    c->chunk = chunk_of(t, c->C, c->O);
    int64_t floats = in_chunks(env, c) ? env->ctx->threads * scratch_of(c, c->chunk) : scratch_of(c, c->N * each);
    a->scratch_bytes = (size_t)floats * sizeof(float);
    *out = c;
    return CLOOB_OK;
}

void conv_winograd_destroy(conv_winograd *c)
{
    if (c) free(c->weight);
    free(c);
}

/* ---- weights ------------------------------------------------------------------------------------- */

typedef struct weight_job {
    const conv_winograd *c;
    const float *w; /* (O, 3, 3, C) */
    float G[WINOGRAD_EDGE][3];
} weight_job;

/* u (edge, edge) = G w G^T of one pair of channels; w: 9 elements C apart. */
static void transform(const weight_job *j, const float *w, float u[WINOGRAD_EDGE][WINOGRAD_EDGE])
{
    int64_t C = j->c->C;
    for (int a = 0; a < j->c->tile->edge; a++) {
        float half[3];
        for (int x = 0; x < 3; x++)
            half[x] = j->G[a][0] * w[x * C] + j->G[a][1] * w[(3 + x) * C] + j->G[a][2] * w[(6 + x) * C];
        for (int b = 0; b < j->c->tile->edge; b++)
            u[a][b] = half[0] * j->G[b][0] + half[1] * j->G[b][1] + half[2] * j->G[b][2];
    }
}

/* Panels of 16 outputs, V input channels at a time. */
static void weight_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const weight_job *j = arg;
    const conv_winograd *c = j->c;
    int edge = c->tile->edge;
    float u[WINOGRAD_EDGE][WINOGRAD_EDGE];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = i / (c->C / V), first = i % (c->C / V) * V;
        for (int64_t k = first; k < first + V; k++)
            for (int64_t o = 0; o < P; o++) {
                transform(j, j->w + (panel * P + o) * 9 * c->C + k, u);
                for (int p = 0; p < edge * edge; p++)
                    c->weight[((p * (c->O / P) + panel) * c->C + k) * P + o] = u[p / edge][p % edge];
            }
    }
}

static cloob_status take_weights(const op_env *env, const op_args *a, conv_winograd *c)
{
    size_t bytes = (size_t)(c->tile->points * c->O * c->C) * sizeof(float);
    weight_job j = { .c = c, .w = a->in[1].data };
    if (!c->weight) c->weight = aligned_alloc(64, bytes);
    if (!c->weight) return ctx_no_memory(env->ctx, bytes, "a convolution's weights");
    winograd_kernel_points(c->tile->size, j.G);
    pool_for(env->ctx, c->O / P * (c->C / V), 4, weight_range, &j);
    c->ready = true;
    return CLOOB_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Some tiles of all images, on their way through the phases. */
typedef struct walk {
    const conv_winograd *c;
    const float *x, *bias;
    float *y, *scratch;
    bool relu;
    int64_t all;          /* tiles of all images */
    int64_t first, tiles; /* those in V and M */
    float *v, *m;
} walk;

static void place(walk *w, int64_t first, int64_t tiles, float *scratch)
{
    w->first = first, w->tiles = tiles;
    w->v = scratch;
    w->m = scratch + w->c->tile->points * stride_of(tiles, w->c->C);
}

/* Tiles go in blocks of nearly the same height. */
static int64_t blocks_of(const walk *w) { return (w->tiles + WINOGRAD_ROWS - 1) / WINOGRAD_ROWS; }
static int64_t block_tile(const walk *w, int64_t i) { return w->tiles * i / blocks_of(w); }

/* Which image and where in it; *n: the image. */
static winograd_place place_of(const walk *w, int64_t tile, int64_t *n)
{
    const conv_winograd *c = w->c;
    int64_t all = w->first + tile, t = all % c->per_image;
    *n = all / c->per_image;
    return (winograd_place){ c->H, c->W, t / c->across * c->tile->size, t % c->across * c->tile->size };
}

/* Items are blocks of tiles. */
static void in_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    const conv_winograd *c = w->c;
    int64_t stride = stride_of(w->tiles, c->C), n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = block_tile(w, i), rows = block_tile(w, i + 1) - from;
        for (int64_t r = 0; r < rows; r++) {
            winograd_place at = place_of(w, from + r, &n);
            for (int64_t k = 0; k < c->C / V; k++)
                c->tile->in(w->x + (n * (c->C / V) + k) * c->H * c->W * V, &at, w->v + from * c->C + (k * rows + r) * V,
                            stride);
        }
    }
}

/* Items are points times panels. The first blocks fetch a part of the next panel each. */
static void multiply_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    const conv_winograd *c = w->c;
    int64_t panels = c->O / P, blocks = blocks_of(w), size = c->C * P;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *panel = c->weight + i * size, *v = w->v + i / panels * stride_of(w->tiles, c->C);
        float *m = w->m + i / panels * stride_of(w->tiles, c->O) + i % panels * w->tiles * P;
        for (int64_t b = 0; b < blocks; b++) {
            int64_t from = block_tile(w, b), rows = block_tile(w, b + 1) - from;
            bool fetch = b == 0 && i + 1 < c->tile->points * panels;
            c->tile->multiply(&(winograd_block){ .v = v + from * c->C,
                                                 .panel = panel,
                                                 .next = fetch ? panel + size : NULL,
                                                 .m = m + from * P,
                                                 .C = c->C,
                                                 .rows = (int)rows });
        }
    }
}

/* Items are tiles. */
static void out_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    const conv_winograd *c = w->c;
    int64_t stride = stride_of(w->tiles, c->O), n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        winograd_place at = place_of(w, i, &n);
        for (int64_t o = 0; o < c->O; o += V)
            c->tile->out(w->m + (o / P * w->tiles + i) * P + o % P, stride, w->bias ? w->bias + o : NULL, w->relu, &at,
                         w->y + (n * c->O + o) * c->H * c->W);
    }
}

/* Items are chunks. */
static void chunk_range(void *arg, int64_t begin, int64_t end, int thread)
{
    walk w = *(const walk *)arg;
    const conv_winograd *c = w.c;
    int64_t chunks = (w.all + c->chunk - 1) / c->chunk;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = w.all * i / chunks;
        place(&w, first, w.all * (i + 1) / chunks - first, w.scratch + thread * scratch_of(c, c->chunk));
        in_range(&w, 0, blocks_of(&w), 0);
        multiply_range(&w, 0, c->tile->points * (c->O / P), 0);
        out_range(&w, 0, w.tiles, 0);
    }
}

cloob_status conv_winograd_run(const op_env *env, const op_args *a, conv_winograd *c)
{
    walk w = { .c = c,
               .x = a->in[0].data,
               .bias = a->in[2].data,
               .y = a->out[0].data,
               .scratch = a->scratch,
               .relu = a->attr.relu,
               .all = op_live_places(env, &a->out[0]) * c->per_image };
    if (!c->ready) CLOOB_TRY(take_weights(env, a, c));
    if (in_chunks(env, c)) {
        pool_share(env->ctx, (w.all + c->chunk - 1) / c->chunk, 1, chunk_range, &w);
        return CLOOB_OK;
    }
    place(&w, 0, w.all, w.scratch);
    pool_share(env->ctx, blocks_of(&w), 1, in_range, &w);
    pool_share(env->ctx, c->tile->points * (c->O / P), 4, multiply_range, &w);
    pool_share(env->ctx, w.tiles, 2, out_range, &w);
    return CLOOB_OK;
}
