/* The gradient of a 3 x 3 convolution's weights by Winograd's algorithm:
 *
 *     dw = G^T [sum over tiles of (B^T d B) .* (A dy A^T)] G
 *
 * Tiles go in chunks through two phases: patches of x and tiles of dy to points (V and D), then U += V^T D at every
 * point, which is a GEMM with one tile for a step. */
#include "core/arith.h"
#include "core/pool.h"
#include "nn/cpu/conv_winograd.h"
#include "nn/cpu/cpu.h"

enum { V = WINOGRAD_LANES, P = WINOGRAD_COLUMNS, LINE = 16, CHUNK_BYTES = 8 << 20, CHUNK_LEAST = 48 };

typedef struct walk {
    const winograd_tile *tile;
    winograd_grid grid;
    int64_t C, O, all, chunk;
    const float *x, *dy;
    float *dw, *v, *d, *u; /* V (points, tiles, C + LINE), D (points, O / 16, tiles, 16), U (points, O / 16, C, 16) */
    float G[WINOGRAD_EDGE][3];
    int64_t first, tiles; /* those in V and D */
} walk;

/* A line more than the channels, so that tiles do not meet in the same few lines of the first cache. */
static int64_t line_of(const walk *w) { return w->C + LINE; }
static int64_t v_stride(const walk *w) { return w->chunk * line_of(w) + LINE; }
static int64_t d_stride(const walk *w) { return w->chunk * w->O + LINE; }

static walk walk_of(const op_env *env, const op_args *a)
{
    const tensor *dy = &a->in[0], *x = &a->in[1];
    walk w = { .tile = conv_winograd_tile(env, x, dy), .C = x->dim[3], .O = dy->dim[3] };
    if (!w.tile) return w;
    w.grid = winograd_grid_of(w.tile->size, x->dim[1], x->dim[2]);
    w.all = x->dim[0] * w.grid.per_image;
    int64_t fit = CHUNK_BYTES / (w.tile->points * (w.C + w.O) * (int64_t)sizeof(float));
    w.chunk = min64(w.all, fit < CHUNK_LEAST ? CHUNK_LEAST : fit);
    w.x = x->data, w.dy = dy->data, w.dw = a->out[0].data;
    w.v = a->scratch;
    w.d = w.v + w.tile->points * v_stride(&w);
    w.u = w.d + w.tile->points * d_stride(&w);
    winograd_kernel_points(w.tile->size, w.G);
    return w;
}

bool conv_winograd_dw_prepare(const op_env *env, op_args *a)
{
    walk w = walk_of(env, a);
    if (!w.tile) return false;
    a->scratch_bytes = (size_t)(w.tile->points * (v_stride(&w) + d_stride(&w) + w.C * w.O)) * sizeof(float);
    return true;
}

/* Items are tiles of a chunk. */
static void points_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    int64_t plane = w->grid.H * w->grid.W, n;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        winograd_place at = winograd_grid_place(&w->grid, w->C, w->first + i, &n);
        for (int64_t c = 0; c < w->C; c += V)
            w->tile->in(w->x + n * plane * w->C + c, &at, w->v + i * line_of(w) + c, v_stride(w));
        at.pixel = w->O;
        for (int64_t o = 0; o < w->O; o += V)
            w->tile->back(w->dy + n * plane * w->O + o, &at, w->d + (o / P * w->tiles + i) * P + o % P, d_stride(w));
    }
}

/* Items are points times panels of outputs. */
static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    int64_t panels = w->O / P, blocks = (w->C + WINOGRAD_ROWS - 1) / WINOGRAD_ROWS;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t c = w->C * b / blocks, rows = w->C * (b + 1) / blocks - c;
            w->tile->sum(&(winograd_sum){ .v = w->v + i / panels * v_stride(w) + c,
                                          .d = w->d + i / panels * d_stride(w) + i % panels * w->tiles * P,
                                          .u = w->u + (i * w->C + c) * P,
                                          .tiles = w->tiles,
                                          .ldv = line_of(w),
                                          .rows = (int)rows,
                                          .first = w->first == 0 });
        }
}

/* dw (9, P) = G^T u G for one input channel and a panel of outputs; u: point p at p step. */
CPU_INLINE void gather(const walk *w, const float *u, int64_t step, float dw[9][P])
{
    int edge = w->tile->edge;
    float half[3][WINOGRAD_EDGE][P] = { 0 };
    for (int b = 0; b < edge; b++)
        for (int a = 0; a < edge; a++)
            for (int i = 0; i < 3; i++)
                for (int o = 0; o < P; o++) half[i][b][o] += w->G[a][i] * u[(a * edge + b) * step + o];
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            for (int o = 0; o < P; o++) {
                float sum = 0;
                for (int b = 0; b < edge; b++) sum += half[i][b][o] * w->G[b][k];
                dw[i * 3 + k][o] = sum;
            }
}

/* Items are panels of outputs times V input channels, which are written side by side. */
CPU_CLONES static void out_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const walk *w = arg;
    float dw[V][9][P];
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        int64_t panel = item / (w->C / V), first = item % (w->C / V) * V;
        for (int64_t k = 0; k < V; k++) gather(w, w->u + (panel * w->C + first + k) * P, w->C * w->O, dw[k]);
        for (int64_t o = 0; o < P; o++)
            for (int64_t i = 0; i < 9; i++)
                for (int64_t k = 0; k < V; k++) w->dw[((panel * P + o) * 9 + i) * w->C + first + k] = dw[k][i][o];
    }
}

bool conv_winograd_dw_run(const op_env *env, const op_args *a)
{
    walk w = walk_of(env, a);
    if (!w.tile) return false;
    int64_t chunks = (w.all + w.chunk - 1) / w.chunk;
    for (int64_t i = 0; i < chunks; i++) {
        w.first = w.all * i / chunks;
        w.tiles = w.all * (i + 1) / chunks - w.first;
        pool_share(env->ctx, w.tiles, 2, points_range, &w);
        pool_share(env->ctx, w.tile->points * (w.O / P), 2, sum_range, &w);
    }
    pool_share(env->ctx, w.O / P * (w.C / V), 4, out_range, &w);
    return true;
}
