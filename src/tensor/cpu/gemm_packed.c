/* The frame of all packed GEMMs: tasks of row and column blocks of C, stretches of K, packing, and the epilogue. */
#include "tensor/cpu/gemm_kernels.h"

#include <assert.h>
#include <string.h>

#include "core/arith.h"
#include "core/pool.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/clones.h"

enum {
    ALIGN = 64,
    PACK = 8,        /* blocks of rows that a thread packs at a time, */
    PIECE = 1 << 20, /* and multiplications that it takes, at least */
    FETCH_AHEAD = 2, /* blocks */
    /* A GEMM with few tasks and a long K (gradients of weights) is summed in parts. Their number depends on sizes
     * alone. */
    WANTED_TASKS = 32,
    MIN_STRETCHES = 4,
    ENOUGH_ROWS = 48
};

typedef struct layout {
    int64_t rows, blocks, panels, steps;       /* rows of a block; of the GEMM */
    int64_t task_blocks, task_panels;          /* of a task */
    int64_t row_tasks, col_tasks, parts;       /* the grid, and the parts of K */
    int64_t stretch, part_steps;               /* steps at a time, and per part */
    size_t a_whole, a_bytes, b_bytes, c_bytes; /* A packed before; of one thread: A, B, sums */
} layout;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t bytes) { return ceil_div(bytes, ALIGN) * ALIGN; }

/* Size of pieces when n is cut into as few equal ones of at most `max` as possible. */
static int64_t even_piece(int64_t n, int64_t max) { return n ? ceil_div(n, ceil_div(n, max)) : 1; }

static int64_t steps_of(const gemm_kernel *k, int64_t K) { return ceil_div(K, k->step); }
static int64_t a_block(const gemm_kernel *k, int64_t K) { return round_up(k->a_head + steps_of(k, K) * k->a_step); }
static int64_t b_panel(const gemm_kernel *k, int64_t K) { return round_up(k->b_head + steps_of(k, K) * k->b_step); }

static int64_t parts_of(const layout *l, bool summed)
{
    int64_t tasks = l->row_tasks * l->col_tasks, stretches = ceil_div(l->steps, l->stretch);
    if (!summed || tasks >= WANTED_TASKS || stretches < 2 * MIN_STRETCHES) return 1;
    return min64(ceil_div(WANTED_TASKS, tasks), stretches / MIN_STRETCHES);
}

/* Rows of a block at most. */
static int64_t most_rows(const gemm_kernel *k, const gemm_call *x) { return k->even && !x->ta ? k->even : k->rows; }

/* Steps of a stretch at most. A table of pointers takes no space in the caches, so there K is summed in one pass. */
static int64_t most_steps(const gemm_kernel *k, const gemm_call *x, bool packed)
{
    return !k->depth || (k->points && packed && !x->ta) ? steps_of(k, x->K) : k->depth;
}

/* The blocks of rows and panels of a task at most. Where tasks pack both A and B, a square one packs least. */
static void largest_task(const gemm_kernel *k, const gemm_call *x, bool packed, int64_t *blocks, int64_t *panels)
{
    bool square = !k->a_whole && !packed, once = !k->depth || steps_of(k, x->K) <= k->depth;
    int64_t rows = square ? 2 * k->chunk : k->chunk;
    if (k->chunk_bytes) rows = min64(rows, k->chunk_bytes * k->rows / a_block(k, x->K));
    *blocks = rows < k->rows ? 1 : rows / most_rows(k, x);
    *panels = k->a_whole && once ? 1 : square ? k->panels / 2 : k->panels;
}

/* The number of row tasks, a multiple of the threads, that gives the busiest thread the fewest rows. 0: tasks would
 * have too few rows to reuse a panel of B from the near caches. */
static int64_t even_row_tasks(const layout *l, const gemm_kernel *k, const gemm_call *x, int64_t most, int threads)
{
    int64_t best = 0, least = INT64_MAX;
    for (int64_t tasks = threads; tasks <= most && x->M >= ENOUGH_ROWS * tasks; tasks += threads) {
        int64_t rows = ceil_div(x->M, tasks);
        int64_t load = tasks / threads * (k->even ? rows : ceil_div(rows, k->rows) * k->rows);
        if (tasks >= l->row_tasks && load <= least) best = tasks, least = load;
    }
    return best;
}

/* If there are few tasks, makes them equal for all threads: of fewer rows first, then of fewer columns. No sum depends
 * on this. */
static void share_tasks(layout *l, const gemm_kernel *k, const gemm_call *x, int threads)
{
    int64_t tasks = l->row_tasks * l->col_tasks, round = 2 * threads;
    if (l->parts > 1 || tasks >= 4 * round) return;
    int64_t row_tasks = even_row_tasks(l, k, x, 4 * round, threads);
    if (row_tasks) {
        int64_t rows = ceil_div(x->M, row_tasks);
        if (k->even && !x->ta) l->rows = even_piece(rows, k->even);
        l->task_blocks = ceil_div(rows, l->rows);
        l->blocks = ceil_div(x->M, l->rows);
        l->row_tasks = ceil_div(l->blocks, l->task_blocks);
        tasks = l->row_tasks * l->col_tasks;
    }
    l->task_panels = ceil_div(l->panels, ceil_div(ceil_div(tasks, round) * round, l->row_tasks));
    l->col_tasks = ceil_div(l->panels, l->task_panels);
}

/* A C in 8 bits has groups of 64 columns, which are rounded as soon as they are complete. */
static int64_t panels_at_once(const gemm_kernel *k, const gemm_call *x)
{
    return x->c_rounded ? U8_GROUP / k->cols : 1;
}

static layout layout_of(const cloob_ctx *ctx, const gemm_kernel *k, const gemm_call *x, bool packed)
{
    int64_t most_blocks, most_panels;
    layout l = { .rows = k->even && !x->ta ? even_piece(x->M, k->even) : k->rows,
                 .panels = ceil_div(x->N, k->cols),
                 .steps = steps_of(k, x->K) };
    l.blocks = ceil_div(x->M, l.rows);
    largest_task(k, x, packed, &most_blocks, &most_panels);
    l.task_blocks = even_piece(l.blocks, most_blocks);
    l.task_panels = even_piece(l.panels, most_panels);
    l.row_tasks = ceil_div(l.blocks, l.task_blocks);
    l.col_tasks = ceil_div(l.panels, l.task_panels);
    l.stretch = even_piece(l.steps, most_steps(k, x, packed));
    /* parts are for a C of floats without an epilogue, from bf16 or a transposed A */
    l.parts = parts_of(&l, (k->kind == GEMM_BF16 || x->ta) && !x->c_bf16 && !x->bias && !x->res && !x->relu);
    l.part_steps = ceil_div(ceil_div(l.steps, l.parts), l.stretch) * l.stretch;
    l.parts = ceil_div(l.steps, l.part_steps);
    if (!k->a_whole && ctx->threads > 1) share_tasks(&l, k, x, ctx->threads);
    l.task_panels = ceil_div(l.task_panels, panels_at_once(k, x)) * panels_at_once(k, x);
    l.col_tasks = ceil_div(l.panels, l.task_panels);
    /* Fewer rows never need more: a call may have fewer than were planned for. */
    int64_t blocks = min64(l.blocks, most_blocks), panels = min64(l.panels, most_panels);
    bool once = l.stretch == l.steps; /* sums of one block at a time */
    l.a_whole = !k->a_whole ? 0 : (size_t)(l.blocks * a_block(k, x->K));
    l.a_bytes = k->a_whole ? 0 : (size_t)round_up(blocks * l.stretch * k->a_step);
    l.b_bytes = packed ? 0 : (size_t)round_up(panels * l.stretch * k->b_step);
    l.c_bytes = (size_t)((once ? 1 : blocks * panels) * k->rows * k->cols) * sizeof(float);
    return l;
}

static size_t thread_bytes(const layout *l) { return l->a_bytes + l->b_bytes + (size_t)round_up((int64_t)l->c_bytes); }
static int64_t tasks_of(const layout *l) { return l->row_tasks * l->col_tasks * l->parts; }

size_t gemm_scratch(const cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, bool packed)
{
    layout l = layout_of(ctx, kernel, x, packed);
    size_t parts = l.parts > 1 ? (size_t)(l.parts * x->M * x->N) * sizeof(float) : 0;
    return ALIGN + l.a_whole + (size_t)pool_ranges(ctx, tasks_of(&l), 1) * thread_bytes(&l) + parts;
}

/* ---- the epilogue ---------------------------------------------------------------------------------- */

/* Eight elements at a time, as vectors: left to itself the compiler takes them one by one. */
enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(32), may_alias));
typedef int32_t whole_lanes __attribute__((vector_size(32), may_alias));
typedef uint32_t bit_lanes __attribute__((vector_size(32), may_alias));
typedef uint16_t half_lanes __attribute__((vector_size(16), may_alias));

/* bf16_down of every lane. */
CPU_INLINE void round_lanes(const lanes *from, half_lanes *to)
{
    bit_lanes u = (bit_lanes)*from, rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16, nan = u >> 16 | 0x40u;
    bit_lanes is_nan = (bit_lanes)((u & 0x7FFFFFFFu) > 0x7F800000u);
    *to = __builtin_convertvector((nan & is_nan) | (rounded & ~is_nan), half_lanes);
}

/* Elements of a row of C from element `at` on. whole, bf16 and more (a residual or relu) are constants where it is
 * called, and so is count, but at the edge. */
CPU_INLINE void finish_lanes(const gemm_call *x, const float *sum, const lanes *scale, const lanes *bias, int64_t at,
                             const size_t count, const bool whole, const bool bf16, const bool more)
{
    lanes v, res = { 0 };
    half_lanes half = { 0 };
    memcpy(&v, sum, sizeof v);
    if (whole) v = __builtin_convertvector((whole_lanes)v, lanes);
    v = v * *scale + *bias;
    if (more && x->res && bf16) {
        memcpy(&half, (const uint16_t *)x->res + at, count * sizeof(uint16_t));
        v += (lanes)(__builtin_convertvector(half, bit_lanes) << 16);
    } else if (more && x->res) {
        memcpy(&res, (const float *)x->res + at, count * sizeof(float));
        v += res;
    }
    if (more && x->relu) v = (lanes)((whole_lanes)v & ~(v < 0)); /* a NaN stays one */
    if (bf16) {
        round_lanes(&v, &half);
        memcpy((uint16_t *)x->c + at, &half, count * sizeof(uint16_t));
    } else memcpy((float *)x->c + at, &v, count * sizeof(float));
}

/* Columns n .. n + count of a block. -0 is what changes no number that it is added to. */
CPU_INLINE void finish_columns(const gemm_finish *f, const float *sum, int64_t ld, int64_t m, int rows, int64_t n,
                               const size_t count, const bool whole, const bool bf16, const bool more)
{
    const gemm_call *x = f->x;
    float alpha = x->alpha != 0 ? x->alpha : 1;
    lanes bias = -(lanes){ 0 }, columns = (lanes){ 0 } + 1;
    if (x->bias) memcpy(&bias, x->bias + n, count * sizeof(float));
    if (f->columns) memcpy(&columns, f->columns, sizeof columns);
    for (int r = 0; r < rows; r++, sum += ld) {
        lanes scale = (f->rows ? f->rows[r] : alpha) * columns;
        finish_lanes(x, sum, &scale, &bias, (m + r) * x->ldc + n, count, whole, bf16, more);
    }
}

CPU_CLONES static void finish_block(const gemm_finish *block, const float *sum, int64_t ld, int64_t m, int rows,
                                    int64_t n, int cols)
{
    gemm_finish f = *block;
    bool more = f.x->res || f.x->relu;
    for (int j = 0; j < cols; j += LANES, n += LANES, sum += LANES) {
        if (cols - j < LANES) finish_columns(&f, sum, ld, m, rows, n, (size_t)(cols - j), f.whole, f.x->c_bf16, more);
        else if (f.whole) finish_columns(&f, sum, ld, m, rows, n, LANES, true, false, more);
        else if (f.x->c_bf16 && more) finish_columns(&f, sum, ld, m, rows, n, LANES, false, true, true);
        else if (f.x->c_bf16) finish_columns(&f, sum, ld, m, rows, n, LANES, false, true, false);
        else if (more) finish_columns(&f, sum, ld, m, rows, n, LANES, false, false, true);
        else finish_columns(&f, sum, ld, m, rows, n, LANES, false, false, false);
        if (f.columns) f.columns += LANES;
    }
}

/* ---- tasks ----------------------------------------------------------------------------------------- */

typedef struct job {
    const gemm_kernel *kernel;
    const gemm_call *x;
    layout l;
    char *a, *own; /* A where it is packed whole; the threads' scratch */
    float *sums;   /* parts x M x N, when there are parts */
} job;

/* One stretch of a task: `blocks` blocks of rows from block i0 on by `panels` panels from p0 on, over `steps` steps
 * from step s0 on. first, last: of the task's stretches. */
typedef struct stretch {
    const gemm_call *x; /* with C where this part of K goes */
    int64_t i0, blocks, p0, panels, s0, steps;
    bool first, last;
    char *a; /* the blocks, a_next apart, */
    char *b; /* and panels, b_next apart; at step s0 */
    int64_t a_next, b_next;
    float *c; /* sums */
} stretch;

static void pack_stretch(const job *j, stretch *s, char *room)
{
    const gemm_kernel *k = j->kernel;
    const gemm_call *x = s->x;
    int64_t k0 = s->s0 * k->step, ks = min64(x->K - k0, s->steps * k->step);
    char *b = room + j->l.a_bytes;
    s->c = (float *)(void *)(b + j->l.b_bytes);
    if (!k->a_whole) {
        int64_t each = j->l.rows, m = s->i0 * each;
        gemm_part rows = { m, min64(x->M - m, s->blocks * each), k0, ks, each };
        s->a = room, s->a_next = s->steps * k->a_step;
        k->pack_a(k, x, &rows, s->a_next, s->a);
    } else {
        s->a_next = a_block(k, x->K);
        s->a = j->a + s->i0 * s->a_next + k->a_head + s->s0 * k->a_step;
    }
    if (x->packed) {
        s->b_next = b_panel(k, x->K);
        s->b = (char *)(uintptr_t)gemm_packed_panel(k, x->packed, x->K, s->p0) + k->b_head + s->s0 * k->b_step;
    } else {
        gemm_part cols = { s->p0 * k->cols, min64(x->N - s->p0 * k->cols, s->panels * k->cols), k0, ks, k->cols };
        s->b = b, s->b_next = s->steps * k->b_step;
        k->pack_b(k, x, &cols, s->b_next, s->b);
    }
}

static void fetch_lines(const gemm_call *x, int64_t m, int rows, int64_t n, int cols)
{
    size_t element = x->c_bf16 ? sizeof(uint16_t) : sizeof(float), bytes = (size_t)cols * element;
    for (int r = 0; r < rows; r++)
        for (size_t at = (size_t)((m + r) * x->ldc + n) * element, end = at + bytes; at < end; at += ALIGN) {
            if (x->c) __builtin_prefetch((const char *)x->c + at, 1);
            if (x->res) __builtin_prefetch((const char *)x->res + at);
        }
}

/* Prefetches C and the residual some blocks ahead: with a short K, one block takes less time than reading a far
 * cache. */
static void fetch_ahead(const job *j, const stretch *s, int64_t p, int64_t i)
{
    const gemm_kernel *k = j->kernel;
    const gemm_call *x = s->x;
    i += min64(FETCH_AHEAD, s->blocks);
    if (i >= s->blocks) i -= s->blocks, p += panels_at_once(k, x);
    if (p >= s->panels) return;
    int64_t m = (s->i0 + i) * j->l.rows, n = (s->p0 + p) * k->cols;
    fetch_lines(x, m, (int)min64(j->l.rows, x->M - m), n, (int)min64(k->cols, x->N - n));
}

/* Where the epilogue writes: C, or, where C is wanted in 8 bits alone, a block of 64 columns that is rounded next. */
typedef struct target {
    gemm_call x;
    bool alone;
    uint16_t block[U8_TALL * U8_GROUP];
} target;

static void aim(target *t, const gemm_call *x, int64_t n)
{
    t->x = *x;
    t->alone = x->c_rounded && !x->c;
    if (!t->alone) return;
    assert(!x->res);
    t->x.c = t->block, t->x.ldc = U8_GROUP, t->x.bias = x->bias ? x->bias + n : NULL;
}

/* Rows m .. and the group that begins at column n. */
static void round_block(const gemm_kernel *k, const target *t, const gemm_call *x, int64_t m, int rows, int64_t n)
{
    u8_group *to = (u8_group *)x->c_rounded + (m * x->N + n) / U8_GROUP;
    for (int r = 0; r < rows; r++, to += x->N / U8_GROUP)
        k->round_u8(t->alone ? t->block + r * U8_GROUP : (const uint16_t *)x->c + (m + r) * x->ldc + n, 1, to);
}

/* Block `block->index` by panel p: sums, and with the last stretch what they become. */
static void multiply_block(const job *j, const stretch *s, int64_t p, gemm_block *block, const target *t, int64_t n)
{
    const gemm_kernel *k = j->kernel;
    const gemm_call *x = s->x;
    const char *b = s->b + p * s->b_next;
    int64_t m = (s->i0 + block->index) * j->l.rows, column = (s->p0 + p) * k->cols, at_once = panels_at_once(k, x);
    block->b = b;
    block->cols = (int)min64(k->cols, x->N - column);
    if (x->packed) block->next = s->p0 + p + at_once < j->l.panels ? b + at_once * s->b_next : b;
    block->sum = s->first && s->last ? s->c : s->c + (p * s->blocks + block->index) * k->rows * k->cols;
    if (s->last) fetch_ahead(j, s, p, block->index);
    k->multiply(block);
    if (!s->last) return;
    gemm_finish f = { .x = &t->x, .whole = k->kind == GEMM_I8 };
    if (k->a_head) f.rows = (const float *)(const void *)((const char *)block->a - s->s0 * k->a_step - k->a_head);
    if (k->b_head) f.columns = (const float *)(const void *)(b - s->s0 * k->b_step - k->b_head);
    (x->c_bf16 && k->finish ? k->finish : finish_block)(&f, block->sum, k->cols, t->alone ? 0 : m, block->rows,
                                                        t->alone ? column - n : column, block->cols);
}

/* Panels p .. p + panels_at_once of a stretch. */
static void multiply_panels(const job *j, const stretch *s, int64_t p)
{
    const gemm_call *x = s->x;
    int64_t n = (s->p0 + p) * j->kernel->cols, end = min64(s->panels, p + panels_at_once(j->kernel, x));
    target t;
    aim(&t, x, n);
    gemm_block block = { .steps = s->steps, .count = (int)s->blocks, .first = s->first, .ld = j->kernel->cols };
    for (int64_t i = 0; i < s->blocks; i++) {
        int64_t m = (s->i0 + i) * j->l.rows;
        block.a = s->a + i * s->a_next;
        block.rows = (int)min64(j->l.rows, x->M - m);
        block.index = (int)i;
        for (int64_t q = p; q < end; q++) multiply_block(j, s, q, &block, &t, n);
        if (x->c_rounded) round_block(j->kernel, &t, x, m, block.rows, n);
    }
}

static void run_task(const job *j, int64_t task, char *room)
{
    const layout *l = &j->l;
    gemm_call x = *j->x;
    int64_t part = task / (l->row_tasks * l->col_tasks), from = part * l->part_steps,
            to = min64(l->steps, from + l->part_steps);
    stretch s = { .x = &x,
                  .i0 = task / l->col_tasks % l->row_tasks * l->task_blocks,
                  .p0 = task % l->col_tasks * l->task_panels };
    s.blocks = min64(l->task_blocks, l->blocks - s.i0);
    s.panels = min64(l->task_panels, l->panels - s.p0);
    if (l->parts > 1) x.c = j->sums + part * x.M * x.N, x.ldc = x.N;
    for (s.s0 = from; s.s0 < to; s.s0 += l->stretch) {
        s.steps = min64(l->stretch, to - s.s0);
        s.first = s.s0 == from;
        s.last = s.s0 + l->stretch >= to;
        pack_stretch(j, &s, room);
        for (int64_t p = 0; p < s.panels; p += panels_at_once(j->kernel, &x)) multiply_panels(j, &s, p);
    }
}

static void run_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    char *room = j->own + (size_t)thread * thread_bytes(&j->l);
    if (j->kernel->begin) j->kernel->begin();
    for (int64_t task = begin; task < end; task++) run_task(j, task, room);
    if (j->kernel->end) j->kernel->end();
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const gemm_kernel *k = j->kernel;
    int64_t next = a_block(k, j->x->K);
    gemm_part part = { begin * k->rows, min64(j->x->M, end * k->rows) - begin * k->rows, 0, j->x->K, k->rows };
    (void)thread;
    k->pack_a(k, j->x, &part, next, j->a + begin * next);
}

CPU_CLONES static void add_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const gemm_call *x = j->x;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        float *to = (float *)x->c + m * x->ldc;
        const float *from = j->sums + m * x->N;
        for (int64_t n = 0; n < x->N; n++) to[n] = from[n];
        for (int64_t part = 1; part < j->l.parts; part++)
            for (int64_t n = 0; n < x->N; n++) to[n] += from[part * x->M * x->N + n];
    }
}

void gemm_packed_run(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *scratch)
{
    job j = { .kernel = kernel, .x = x, .l = layout_of(ctx, kernel, x, x->packed != NULL) };
    assert(x->M >= 0 && x->N >= 0 && x->K > 0 && x->ldc >= x->N);
    if (x->M == 0 || x->N == 0) return;
    int64_t tasks = tasks_of(&j.l), each = x->M / j.l.row_tasks * j.l.task_panels * kernel->cols * (x->K + 1);
    j.a = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
    j.own = j.a + j.l.a_whole;
    j.sums = (float *)(void *)(j.own + (size_t)pool_ranges(ctx, tasks, 1) * thread_bytes(&j.l));
    if (j.l.a_whole) pool_share(ctx, j.l.blocks, PACK, pack_blocks, &j);
    pool_share(ctx, tasks, each < PIECE ? PIECE / each : 1, run_tasks, &j);
    if (j.l.parts > 1) pool_for(ctx, x->M, 1, add_parts, &j);
}

/* ---- a factor packed once -------------------------------------------------------------------------- */

static int64_t shared_bytes(const gemm_kernel *k, int64_t K) { return round_up(steps_of(k, K) * k->b_shared); }

size_t gemm_packed_bytes(const gemm_kernel *kernel, int64_t N, int64_t K)
{
    return (size_t)(shared_bytes(kernel, K) + ceil_div(N, kernel->cols) * b_panel(kernel, K));
}

const void *gemm_packed_panel(const gemm_kernel *kernel, const void *packed, int64_t K, int64_t p)
{
    return (const char *)packed + shared_bytes(kernel, K) + p * b_panel(kernel, K);
}

typedef struct pack_job {
    const gemm_kernel *kernel;
    const gemm_call *x;
    char *out;
} pack_job;

static void pack_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    const gemm_kernel *k = j->kernel;
    int64_t K = j->x->K, next = b_panel(k, K);
    gemm_part part = { begin * k->cols, min64(j->x->N, end * k->cols) - begin * k->cols, 0, K, k->cols };
    (void)thread;
    k->pack_b(k, j->x, &part, next, j->out + shared_bytes(k, K) + begin * next);
}

static void pack_shared(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    (void)thread;
    for (int64_t step = begin; step < end; step++) j->kernel->pack_shared(j->kernel, j->x, step, j->out);
}

void gemm_pack(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *out)
{
    pack_job j = { kernel, x, out };
    pool_for(ctx, ceil_div(x->N, kernel->cols), 1, pack_panels, &j);
    if (kernel->pack_shared) pool_for(ctx, steps_of(kernel, x->K), 1, pack_shared, &j);
}
