/* Tiles go through three phases: patches to points (V), a GEMM at every point (M), points to outputs. Where there are
 * many tiles each thread takes chunks of them through all three, in its own cache; where there are few, threads share
 * every phase. */
#include "nn/cpu/conv_winograd.h"

#include <stdlib.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "nn/cpu/cpu.h"
#include "tensor/cpu/winograd/tile.h"

enum { V = WINOGRAD_LANES, P = WINOGRAD_COLUMNS, LINE = 16 }; /* LINE: floats of a cache line */

struct conv_winograd {
    const winograd_tile *tile;
    winograd_grid grid;
    int64_t N, C, O;
    int64_t chunk; /* tiles that go through all phases together, at most */
    bool gradient; /* of the inputs: weights are turned around */
    float *weight; /* (points, O / 16, C, 16), when they are frozen; else they are in scratch */
};

/* ---- preparing ----------------------------------------------------------------------------------- */

enum { FEW_TILES = 12, CHUNK_BYTES = 1 << 20, CHUNK_LEAST = 24 };

/* Points are a line more than their tiles apart: at distances of 4096 bytes they would push each other out of the first
 * cache. */
static int64_t stride_of(int64_t tiles, int64_t channels) { return tiles * channels + LINE; }

static int64_t scratch_of(const conv_winograd *c, int64_t tiles)
{
    return c->tile->points * (stride_of(tiles, c->C) + stride_of(tiles, c->O));
}

static int64_t weight_floats(const conv_winograd *c) { return c->tile->points * c->O * c->C; }

/* As many tiles as leave V and M near, and enough of them for a panel of weights that comes from far. */
static int64_t chunk_of(const winograd_tile *t, int64_t C, int64_t O)
{
    int64_t fit = CHUNK_BYTES / (t->points * (C + O) * (int64_t)sizeof(float));
    return (fit < CHUNK_LEAST ? CHUNK_LEAST : fit) / WINOGRAD_ROWS * WINOGRAD_ROWS;
}

static bool in_chunks(const op_env *env, const conv_winograd *c)
{
    return c->N * c->grid.per_image >= 2 * env->ctx->threads * c->chunk;
}

const winograd_tile *conv_winograd_tile(const op_env *env, const tensor *x, const tensor *y)
{
    if (x->dim[3] % P || y->dim[3] % P) return NULL;
    for (int size = 4; size >= 2; size -= 2) {
        winograd_grid g = winograd_grid_of(size, x->dim[1], x->dim[2]);
        if (g.per_image * (env->invariant ? 1 : x->dim[0]) >= FEW_TILES) return winograd_tile_of(size);
    }
    return NULL;
}

cloob_status conv_winograd_create(const op_env *env, op_args *a, bool gradient, conv_winograd **out)
{
    const tensor *x = &a->in[0], *y = &a->out[0];
    const winograd_tile *t = conv_winograd_tile(env, x, y);
    *out = NULL;
    if (!t) return CLOOB_OK;
    conv_winograd *c = malloc(sizeof *c);
    if (!c) return ctx_no_memory(env->ctx, sizeof *c, "a convolution");
    *c = (conv_winograd){ .tile = t, .N = x->dim[0], .C = x->dim[3], .O = y->dim[3] };
    c->gradient = gradient;
    c->grid = winograd_grid_of(t->size, x->dim[1], x->dim[2]);
    c->chunk = chunk_of(t, c->C, c->O);
    int64_t floats =
        in_chunks(env, c) ? env->ctx->threads * scratch_of(c, c->chunk) : scratch_of(c, c->N * c->grid.per_image);
    if (!env->frozen_weights) floats += weight_floats(c);
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
    const float *w; /* (O, 3, 3, C); of a gradient (C, 3, 3, O) */
    float *out;
    float G[WINOGRAD_EDGE][3];
} weight_job;

/* w (9, P): the kernels from input channel k to the outputs of a panel. The gradient of a convolution is a convolution
 * by kernels turned around, from its outputs to its inputs. */
CPU_INLINE void take_kernels(const weight_job *j, int64_t panel, int64_t k, float w[9][P])
{
    const conv_winograd *c = j->c;
    for (int i = 0; i < 9; i++)
        for (int64_t o = 0; o < P; o++)
            w[i][o] =
                c->gradient ? j->w[(k * 9 + 8 - i) * c->O + panel * P + o] : j->w[((panel * P + o) * 9 + i) * c->C + k];
}

/* G w G^T: point p to out + p step. */
CPU_INLINE void transform(const weight_job *j, const float w[9][P], float *out, int64_t step)
{
    int edge = j->c->tile->edge;
    for (int a = 0; a < edge; a++) {
        float half[3][P];
        for (int x = 0; x < 3; x++)
            for (int o = 0; o < P; o++)
                half[x][o] = j->G[a][0] * w[x][o] + j->G[a][1] * w[3 + x][o] + j->G[a][2] * w[6 + x][o];
        for (int b = 0; b < edge; b++)
            for (int o = 0; o < P; o++)
                out[(a * edge + b) * step + o] =
                    half[0][o] * j->G[b][0] + half[1][o] * j->G[b][1] + half[2][o] * j->G[b][2];
    }
}

/* Items are panels of outputs times V input channels. */
CPU_CLONES static void weight_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const weight_job *j = arg;
    const conv_winograd *c = j->c;
    float w[9][P];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = i / (c->C / V), first = i % (c->C / V) * V;
        for (int64_t k = first; k < first + V; k++) {
            take_kernels(j, panel, k, w);
            transform(j, (const float(*)[P])w, j->out + (panel * c->C + k) * P, c->O * c->C);
        }
    }
}

static void take_weights(const op_env *env, const op_args *a, const conv_winograd *c, float *out)
{
    weight_job j = { .c = c, .w = a->in[1].data, .out = out };
    winograd_kernel_points(c->tile->size, j.G);
    pool_for(env->ctx, c->O / P * (c->C / V), 4, weight_range, &j);
}

/* Weights in *out: frozen ones are transformed once, into memory of the handle. */
static cloob_status bring_weights(const op_env *env, const op_args *a, conv_winograd *c, const float **out)
{
    if (!env->frozen_weights) {
        take_weights(env, a, c, a->scratch);
        *out = a->scratch;
        return CLOOB_OK;
    }
    if (!c->weight) {
        size_t bytes = (size_t)weight_floats(c) * sizeof(float);
        c->weight = aligned_alloc(64, bytes);
        if (!c->weight) return ctx_no_memory(env->ctx, bytes, "a convolution's weights");
        take_weights(env, a, c, c->weight);
    }
    *out = c->weight;
    return CLOOB_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Some tiles of all images, on their way through the phases. */
typedef struct walk {
    const conv_winograd *c;
    const float *x, *weight, *bias;
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
            winograd_place at = winograd_grid_place(&c->grid, c->C, w->first + from + r, &n);
            for (int64_t k = 0; k < c->C / V; k++)
                c->tile->in(w->x + n * c->grid.H * c->grid.W * c->C + k * V, &at,
                            w->v + from * c->C + (k * rows + r) * V, stride);
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
        const float *panel = w->weight + i * size, *v = w->v + i / panels * stride_of(w->tiles, c->C);
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
        winograd_place at = winograd_grid_place(&c->grid, c->O, w->first + i, &n);
        for (int64_t o = 0; o < c->O; o += V)
            c->tile->out(w->m + (o / P * w->tiles + i) * P + o % P, stride, w->bias ? w->bias + o : NULL, w->relu, &at,
                         w->y + n * c->grid.H * c->grid.W * c->O + o);
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
               .bias = c->gradient ? NULL : a->in[2].data,
               .y = a->out[0].data,
               .scratch = (float *)a->scratch + (env->frozen_weights ? 0 : weight_floats(c)),
               .relu = !c->gradient && a->attr.relu,
               .all = op_live_places(env, &a->out[0]) * c->grid.per_image };
    CLOOB_TRY(bring_weights(env, a, c, &w.weight));
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
