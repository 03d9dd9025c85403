/* Cuts C into tasks of row and column blocks, and K into stretches that stay in the caches. */
#include "tensor/cpu/bgemm.h"

#include <assert.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/bgemm_pack.h"
#include "tensor/cpu/clones.h"

/* Tiles of C per task. A packed B is only read, so a task with it is wide; else both factors are packed for each task
 * and a square one packs least. Either way C, A and B of a task fit the second cache. */
enum { WIDE_ROWS = 8, WIDE_COLS = 32, SQUARE = 16, PANEL = 2 };
/* A GEMM with few tiles of C and a long K (gradients of weights) is summed in parts. Their number depends on sizes
 * alone. */
enum { WANTED_TASKS = 32, MIN_STRETCHES = 4 };

typedef struct layout {
    int64_t row_tiles, col_tiles, steps;    /* of the GEMM */
    int64_t task_rows, task_cols;           /* tiles per task */
    int64_t row_tasks, col_tasks, parts;    /* the grid, and the parts of K */
    int64_t stretch, part_steps;            /* steps at a time, and per part */
    size_t a_bytes, b_bytes, c_bytes, each; /* of one thread's scratch */
} layout;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Size of pieces when n is cut into as few equal ones of at most `max` as possible. */
static int64_t even_piece(int64_t n, int64_t max) { return n ? ceil_div(n, ceil_div(n, max)) : 1; }

static int64_t parts_of(const layout *l, bool summed)
{
    int64_t tasks = l->row_tasks * l->col_tasks, stretches = ceil_div(l->steps, l->stretch);
    if (!summed || tasks >= WANTED_TASKS || stretches < 2 * MIN_STRETCHES) return 1;
    return min64(ceil_div(WANTED_TASKS, tasks), stretches / MIN_STRETCHES);
}

static layout layout_of(const bgemm_kernel *kernel, const bgemm_call *x)
{
    bool wide = x->packed;
    layout l = { .row_tiles = ceil_div(x->M, BGEMM_EDGE),
                 .col_tiles = ceil_div(x->N, BGEMM_EDGE),
                 .steps = ceil_div(x->K, BGEMM_STEP) };
    l.task_rows = even_piece(l.row_tiles, wide ? WIDE_ROWS : SQUARE);
    l.task_cols = even_piece(l.col_tiles, wide ? WIDE_COLS : SQUARE);
    l.row_tasks = ceil_div(l.row_tiles, l.task_rows);
    l.col_tasks = ceil_div(l.col_tiles, l.task_cols);
    l.stretch = even_piece(l.steps, kernel->steps);
    /* parts are for a C of floats without an epilogue */
    l.parts = parts_of(&l, x->c_float && !x->bias && !x->res && !x->relu);
    l.part_steps = ceil_div(ceil_div(l.steps, l.parts), l.stretch) * l.stretch;
    l.parts = ceil_div(l.steps, l.part_steps);
    size_t tile = BGEMM_TILE * sizeof(uint16_t);
    l.a_bytes = (size_t)(l.task_rows * l.stretch) * tile;
    l.b_bytes = wide ? 0 : (size_t)(l.task_cols * l.stretch) * tile;
    l.c_bytes = (size_t)(l.task_rows * l.task_cols) * BGEMM_TILE_C * sizeof(float);
    l.each = l.a_bytes + l.b_bytes + l.c_bytes;
    return l;
}

static int64_t tasks_of(const layout *l) { return l->row_tasks * l->col_tasks * l->parts; }

static size_t sums_bytes(const layout *l, const bgemm_call *x)
{
    return l->parts > 1 ? (size_t)(l->parts * x->M * x->N) * sizeof(float) : 0;
}

size_t bgemm_scratch(const cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *x)
{
    layout l = layout_of(kernel, x);
    return (size_t)pool_ranges(ctx, tasks_of(&l), 1) * l.each + sums_bytes(&l, x) + 64;
}

/* ---- what happens to sums ------------------------------------------------------------------------ */

typedef struct job {
    const bgemm_kernel *kernel;
    const bgemm_call *x;
    layout l;
    char *scratch;
    float *sums; /* parts x M x N, when there are parts */
} job;

/* A row of a tile, 16 elements or fewer at the edge. */
CPU_INLINE void finish_row(const bgemm_call *x, const float *from, int64_t m, int64_t n, int64_t count, float alpha)
{
    int64_t at = m * x->ldc + n;
    for (int64_t j = 0; j < count; j++) {
        float v = alpha * from[j];
        if (x->bias) v += x->bias[n + j];
        if (x->res) v += bf16_up(x->res[at + j]);
        if (x->relu && v < 0) v = 0;
        if (x->c_float) ((float *)x->c)[at + j] = v;
        else ((uint16_t *)x->c)[at + j] = bf16_down(v);
    }
}

CPU_CLONES static void finish_tile(const bgemm_call *x, const float *c, int64_t m, int64_t n, float alpha)
{
    int64_t rows = min64(BGEMM_EDGE, x->M - m), cols = min64(BGEMM_EDGE, x->N - n);
    for (int64_t i = 0; i < rows; i++) {
        if (cols == BGEMM_EDGE) finish_row(x, c + i * BGEMM_EDGE, m + i, n, BGEMM_EDGE, alpha);
        else finish_row(x, c + i * BGEMM_EDGE, m + i, n, cols, alpha);
    }
}

static void finish_panel(const bgemm_kernel *kernel, const bgemm_call *x, const float *c, int64_t m0, int64_t m1,
                         int64_t n0, int64_t n1)
{
    float alpha = x->alpha != 0.0f ? x->alpha : 1.0f;
    for (int64_t m = m0; m < m1; m += BGEMM_EDGE)
        for (int64_t n = n0; n < n1; n += BGEMM_EDGE, c += BGEMM_TILE_C) {
            bool whole = m + BGEMM_EDGE <= x->M && n + BGEMM_EDGE <= x->N;
            int64_t at = m * x->ldc + n;
            if (!whole || x->c_float || !kernel->finish) finish_tile(x, c, m, n, alpha);
            else
                kernel->finish(&(bgemm_finish){ (uint16_t *)x->c + at, c, x->bias ? x->bias + n : NULL,
                                                x->res ? x->res + at : NULL, x->ldc, alpha, x->relu });
        }
}

/* ---- tasks --------------------------------------------------------------------------------------- */

/* One stretch of K. C is worked on in panels of PANEL columns of tiles: after the last stretch a panel is finished
 * while it is in the first cache, and where the first stretch is the last all panels share one place. */
static void add_stretch(const job *j, const bgemm_call *x, char *room, bgemm_part rows, bgemm_part cols, bool first,
                        bool last)
{
    const layout *l = &j->l;
    uint16_t *a = (uint16_t *)(void *)room, *b = (uint16_t *)(void *)(room + l->a_bytes);
    float *c = (float *)(void *)(room + l->a_bytes + l->b_bytes);
    int64_t steps = ceil_div(rows.ks, BGEMM_STEP), tiles = ceil_div(cols.edges, BGEMM_EDGE);
    bgemm_block block = {
        .a = a, .rows = ceil_div(rows.edges, BGEMM_EDGE), .steps = steps, .b_next = steps * BGEMM_TILE, .fresh = first
    };
    bgemm_pack_a(j->kernel, &x->a, x->ta, &rows, steps * BGEMM_TILE, a);
    if (x->packed) block.b_next = l->steps * BGEMM_TILE;
    else bgemm_pack_part_b(j->kernel, &x->b, x->tb, &cols, block.b_next, b);
    const uint16_t *b0 =
        x->packed ? x->b_packed + (cols.edge0 / BGEMM_EDGE * l->steps + cols.k0 / BGEMM_STEP) * BGEMM_TILE : b;
    for (int64_t t = 0; t < tiles; t += PANEL) {
        int64_t n0 = cols.edge0 + t * BGEMM_EDGE, n1 = min64(cols.edge0 + cols.edges, n0 + PANEL * BGEMM_EDGE);
        block.b = b0 + t * block.b_next;
        block.cols = min64(PANEL, tiles - t);
        block.c = first && last ? c : c + t * block.rows * BGEMM_TILE_C;
        j->kernel->multiply(&block);
        if (last) finish_panel(j->kernel, x, block.c, rows.edge0, rows.edge0 + rows.edges, n0, n1);
    }
}

static void run_task(const job *j, int64_t task, char *room)
{
    const layout *l = &j->l;
    bgemm_call x = *j->x;
    int64_t part = task / (l->row_tasks * l->col_tasks), i = task / l->col_tasks % l->row_tasks,
            k = task % l->col_tasks;
    int64_t m0 = i * l->task_rows * BGEMM_EDGE, m1 = min64(x.M, m0 + l->task_rows * BGEMM_EDGE);
    int64_t n0 = k * l->task_cols * BGEMM_EDGE, n1 = min64(x.N, n0 + l->task_cols * BGEMM_EDGE);
    int64_t from = part * l->part_steps * BGEMM_STEP, to = min64(x.K, from + l->part_steps * BGEMM_STEP),
            stretch = l->stretch * BGEMM_STEP;
    if (l->parts > 1) x.c = j->sums + part * x.M * x.N, x.ldc = x.N;
    for (int64_t k0 = from; k0 < to; k0 += stretch) {
        int64_t ks = min64(stretch, to - k0);
        add_stretch(j, &x, room, (bgemm_part){ m0, m1 - m0, k0, ks }, (bgemm_part){ n0, n1 - n0, k0, ks }, k0 == from,
                    k0 + stretch >= to);
    }
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    char *room = j->scratch + (size_t)thread * j->l.each;
    if (j->kernel->begin) j->kernel->begin();
    for (int64_t task = begin; task < end; task++) run_task(j, task, room);
    if (j->kernel->end) j->kernel->end();
}

CPU_CLONES static void add_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const bgemm_call *x = j->x;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        float *to = (float *)x->c + m * x->ldc;
        const float *from = j->sums + m * x->N;
        for (int64_t n = 0; n < x->N; n++) to[n] = from[n];
        for (int64_t part = 1; part < j->l.parts; part++)
            for (int64_t n = 0; n < x->N; n++) to[n] += from[part * x->M * x->N + n];
    }
}

void bgemm_run(cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *x, void *scratch)
{
    job j = { .kernel = kernel, .x = x, .l = layout_of(kernel, x) };
    assert(x->M >= 0 && x->N >= 0 && x->K > 0 && x->ldc >= x->N);
    if (x->M == 0 || x->N == 0) return;
    j.scratch = (char *)(((uintptr_t)scratch + 63) / 64 * 64); /* tiles fill cache lines */
    j.sums = (float *)(void *)(j.scratch + (size_t)pool_ranges(ctx, tasks_of(&j.l), 1) * j.l.each);
    pool_share(ctx, tasks_of(&j.l), 1, run_tasks, &j);
    if (j.l.parts > 1) pool_for(ctx, x->M, 1, add_parts, &j);
}

/* ---- a factor packed once ------------------------------------------------------------------------ */

size_t bgemm_packed_bytes(int64_t K, int64_t N)
{
    return (size_t)(ceil_div(K, BGEMM_STEP) * ceil_div(N, BGEMM_EDGE)) * BGEMM_TILE * sizeof(uint16_t);
}

typedef struct pack_job {
    const bgemm_kernel *kernel;
    const bgemm_call *x;
    uint16_t *out;
} pack_job;

static void pack_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    const bgemm_call *x = j->x;
    int64_t next = ceil_div(x->K, BGEMM_STEP) * BGEMM_TILE;
    bgemm_part part = { begin * BGEMM_EDGE, min64(x->N, end * BGEMM_EDGE) - begin * BGEMM_EDGE, 0, x->K };
    (void)thread;
    bgemm_pack_part_b(j->kernel, &x->b, x->tb, &part, next, j->out + begin * next);
}

void bgemm_pack_b(cloob_ctx *ctx, const bgemm_kernel *kernel, const bgemm_call *x, uint16_t *out)
{
    pack_job j = { kernel, x, out };
    pool_for(ctx, ceil_div(x->N, BGEMM_EDGE), 1, pack_columns, &j);
}
