/* Kernels of packed GEMMs: what the frame (gemm_packed.c) needs of one, and what the kernels of a kind share. The table
 * is in gemm_kernels.c, the fastest of a kind first. One file per kind packs for all of its kernels and has the plain
 * one (gemm_f32.c, gemm_bf16.c, gemm_i8.c, gemm_i8_groups.c); each instruction set has a file with its micro-kernels.
 *
 * A new kernel is a row of the table and a function `multiply`; a new layout of A or B is a packing function. Scales of
 * rows and columns, bias, residual and relu are the frame's, in one place for all kernels. */
#ifndef TENSOR_CPU_GEMM_KERNELS_H
#define TENSOR_CPU_GEMM_KERNELS_H

#include "tensor/cpu/gemm_packed.h"

typedef struct group_block group_block; /* below */
typedef struct u8_group u8_group;

/* `rows` rows of packed A by a packed panel of B, over `steps` steps of K. */
typedef struct gemm_block {
    const void *a, *b;
    const void *next; /* these steps of the next panel, to be prefetched, or NULL */
    int64_t steps;
    int rows, cols;   /* that are needed, at most the kernel's. f32 writes these alone, others up to the kernel's */
    int index, count; /* of the blocks that meet this panel, which share its prefetching */
    bool first;       /* sums begin here; else they are added to */
    void *sum;        /* (rows, cols), rows ld elements apart: float, or int32_t for GEMM_I8 */
    int64_t ld;
} gemm_block;

/* A part of a factor. `edge` is the side that is not K: rows of op(A), columns of op(B). */
typedef struct gemm_part {
    int64_t edge0, edges, k0, ks;
    int64_t each; /* edges of a block of rows or of a panel */
} gemm_part;

/* Packs a part: block i of rows, or panel i, goes to out + i next. edge0 is a multiple of `each`, k0 of the kernel's
 * step. What is beyond the edges and the end of K becomes 0. */
typedef void gemm_pack_fn(const gemm_kernel *kernel, const gemm_call *x, const gemm_part *part, int64_t next,
                          void *out);

/* How a block of sums becomes C: times the scales, plus bias and residual, then relu. */
typedef struct gemm_finish {
    const gemm_call *x;
    const float *rows, *columns; /* scales, or NULL */
    bool whole;                  /* sums are int32_t */
} gemm_finish;

/* sum: (rows, ld) becomes rows m .. and columns n .. of C. Sums and scales beyond the edge are there. */
typedef void gemm_finish_fn(const gemm_finish *f, const float *sum, int64_t ld, int64_t m, int rows, int64_t n,
                            int cols);

struct gemm_kernel {
    const char *name;
    gemm_kind kind;
    bool (*usable)(void); /* NULL: always */
    int rows, cols, step; /* of a block, of a panel, elements of K per step */
    int even;             /* not 0: blocks of an A that is not transposed have even heights, at most this */
    bool points;          /* packed A is a table of pointers (gemm_points) */
    int a_step, b_step;   /* packed bytes of a block, and of a panel, per step */
    int a_head, b_head;   /* bytes before them: a scale (float) for each row, for each column */
    int b_shared;         /* packed bytes per step in front of all panels, filled by pack_shared */
    int64_t chunk;        /* rows of a task, */
    int64_t chunk_bytes;  /* and bytes of their packed A, at most; 0: any */
    int64_t depth;        /* steps of a stretch; 0: all of K */
    int64_t panels;       /* of a task, at most */
    bool a_whole;         /* A is packed whole before the tasks, which have one panel where there is one stretch; else A
                           * is packed by each task */
    void (*begin)(void), (*end)(void); /* around blocks, on the thread that multiplies; may be NULL */
    gemm_pack_fn *pack_a, *pack_b;
    void (*pack_shared)(const gemm_kernel *kernel, const gemm_call *x, int64_t step, void *packed);
    void (*multiply)(const gemm_block *b);
    gemm_finish_fn *finish; /* of a C in bf16; NULL: the frame's */
    union {                 /* what the packing functions of a kind need of an instruction set */
        /* f32: to[k ld_to + r] = from[r ld + k] for r < rows, at most half a panel's columns or a block's rows. With
         * zeros for up to half a panel of r where ld_to has the space. */
        void (*transpose_f32)(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to);
        /* bf16: to[j][i] = from[i][j] of 16 x 16 pairs of elements */
        void (*transpose_pairs)(uint32_t *to, const uint32_t *from);
        /* int8 in groups: x (groups, 32) becomes row r of blocks; limit: (groups) */
        void (*round_groups)(const float *x, int64_t groups, const float *limit, int r, group_block *to);
        /* u8: x (groups, 64) */
        void (*round_u8)(const uint16_t *x, int64_t groups, u8_group *to);
    };
};

/* Where the parts of a packed B are. */
const void *gemm_packed_panel(const gemm_kernel *kernel, const void *packed, int64_t K, int64_t p);

extern const gemm_kernel gemm_f32_plain, gemm_bf16_plain, gemm_i8_plain, gemm_i8_groups_plain, gemm_u8_plain;
#ifdef __x86_64__
extern const gemm_kernel gemm_f32_avx512, gemm_f32_avx2, gemm_bf16_amx, gemm_bf16_avx512, gemm_bf16_avx2, gemm_i8_avx2,
    gemm_i8_groups_avx2, gemm_u8_amx, gemm_u8_avx512_vnni, gemm_u8_avx_vnni;
#elif defined(__aarch64__)
extern const gemm_kernel gemm_f32_neon;
#endif

/* A block of packed A as a table: `rows` pointers per step, to what the rows hold in this step. Where A has it in one
 * place the pointer leads there and nothing is copied, neither a matrix nor the pixels that a convolution reads; else
 * the block has space for it behind the table. */
static inline const void **gemm_points(const gemm_kernel *k, void *block, int64_t step)
{
    return (const void **)block + step * k->rows;
}

/* A block's share of these steps of the next panel, `bytes` per step, for the second cache. */
static inline __attribute__((always_inline)) void gemm_fetch(const gemm_block *b, int64_t step, int bytes)
{
    if (!b->next) return;
    const char *next = (const char *)b->next + step * bytes;
    for (int at = bytes / 64 * b->index / b->count, end = bytes / 64 * (b->index + 1) / b->count; at < end; at++)
        __builtin_prefetch(next + 64 * at, 0, 2);
}

gemm_finish_fn gemm_finish_avx512; /* gemm_bf16_avx512.c */

/* ---- f32 ------------------------------------------------------------------------------------------- */

/* Packed A is (K, rows) per block, packed B (K, cols) per panel. */
gemm_pack_fn gemm_f32_pack_a, gemm_f32_pack_b;

enum { GEMM_F32_MOST = 16 }; /* rows of a block, and half of a panel's columns, at most */

/* Tasks of up to 120 x 512. A panel of 768 steps of K streams from the second cache at the speed of the
 * multiplications; in shorter stretches sums go to memory and back more often: measured slower. */
#define GEMM_F32_KERNEL(name_, rows_, cols_, transpose_)                                                               \
    .name = name_, .kind = GEMM_F32, .rows = rows_, .cols = cols_, .step = 1, .a_step = rows_ * (int)sizeof(float),    \
    .b_step = cols_ * (int)sizeof(float), .chunk = 120 / rows_ * rows_, .depth = 768, .panels = 512 / cols_,           \
    .pack_a = gemm_f32_pack_a, .pack_b = gemm_f32_pack_b, .transpose_f32 = transpose_

/* ---- bf16 ------------------------------------------------------------------------------------------ */

/* A tile is [16 rows][32 k], one row 64 bytes; a B tile [16 pairs of k][16 columns][2], pairs of k side by side as
 * vdpbf16ps and tdpbf16ps want them; each 1 KiB. A step of K has one tile of A, or two for a kernel of 32 rows, and two
 * of B: 32 columns. */
enum { BF16_EDGE = 16, BF16_STEP = 32, BF16_COLS = 32, BF16_TILE = 512 /* elements */ };

gemm_pack_fn gemm_bf16_pack_a, gemm_bf16_point_a, gemm_bf16_pack_b;
void gemm_bf16_transpose_plain(uint32_t *to, const uint32_t *from);

/* Tasks of 128 x 512: their C, A and B fit the second cache. */
#define GEMM_BF16_KERNEL(name_, rows_, depth_, transpose_)                                                             \
    .name = name_, .kind = GEMM_BF16, .rows = rows_, .cols = BF16_COLS, .step = BF16_STEP,                             \
    .a_step = rows_ * BF16_STEP * (int)sizeof(uint16_t), .b_step = BF16_COLS * BF16_STEP * (int)sizeof(uint16_t),      \
    .chunk = 128, .panels = 16, .depth = depth_, .pack_a = gemm_bf16_pack_a, .pack_b = gemm_bf16_pack_b,               \
    .transpose_pairs = transpose_

/* ---- int8, a scale per row ------------------------------------------------------------------------- */

enum { I8_COLS = 16 };

gemm_pack_fn gemm_i8_pack_a, gemm_i8_pack_b;

/* What a row of floats needs, here and in gemm_i8_groups.c: its largest magnitude, and n elements divided by scale,
 * rounded. */
float gemm_i8_row_top(const float *x, int64_t K);
void gemm_i8_round_row(const float *x, int64_t n, float scale, int8_t *to);

/* The largest whole number that an element of A becomes. */
int32_t gemm_i8_top(int64_t K);

/* A: a scale for each row, then (pairs of k, rows, 2) int16. B: a scale for each column, then (pairs, columns, 2) int8.
 * 144 rows stay in the second cache, 384 pairs of a panel in the first. */
#define GEMM_I8_KERNEL(name_, rows_)                                                                                   \
    .name = name_, .kind = GEMM_I8, .rows = rows_, .cols = I8_COLS, .step = 2,                                         \
    .a_step = rows_ * 2 * (int)sizeof(int16_t), .b_step = I8_COLS * 2, .a_head = rows_ * (int)sizeof(float),           \
    .b_head = I8_COLS * (int)sizeof(float), .chunk = 144, .depth = 384, .panels = 1, .a_whole = true,                  \
    .pack_a = gemm_i8_pack_a, .pack_b = gemm_i8_pack_b

/* ---- int8, a scale per group ----------------------------------------------------------------------- */

enum {
    GROUP_SIZE = 32, /* elements that share a scale, in quads of four */
    GROUP_ROWS = 6,
    GROUP_COLS = 16,
    GROUP_RANGE = 126 /* steps between the largest and the smallest element; rounding adds at most one */
};

/* What a row's group is multiplied by, and what was added to its elements, twice for one load. */
typedef struct group_row {
    float scale;
    int16_t zero[2];
} group_row;

/* A block of rows, per group. The kernels take two rows at a time: of an odd number the last one is there twice. */
struct group_block {
    uint8_t x[GROUP_SIZE / 4][GROUP_ROWS][4]; /* elements plus zero point */
    group_row row[GROUP_ROWS];
};

/* A panel, per group. */
typedef struct group_panel {
    int16_t sum[GROUP_COLS][2]; /* of both halves of the weights, negated */
    int8_t w[GROUP_SIZE / 4][GROUP_COLS][4];
} group_panel;

gemm_pack_fn gemm_i8_groups_pack_a, gemm_i8_groups_pack_b;
void gemm_i8_groups_pack_shared(const gemm_kernel *kernel, const gemm_call *x, int64_t step, void *packed);

/* A group's scale by the distance between its largest and smallest element, the squared lengths of its halves and their
 * limit; and 1 / scale or 0. */
float gemm_group_scale(float range, float left, float right, float limit);
float gemm_group_inverse(float scale);

/* 24 groups of a panel, 14 KB, stay in the first cache, 320 KB of packed A in the second. */
#define GEMM_I8_GROUPS_KERNEL(name_, round_)                                                                           \
    .name = name_, .kind = GEMM_I8_GROUPS, .rows = GROUP_ROWS, .cols = GROUP_COLS, .step = GROUP_SIZE,                 \
    .a_step = (int)sizeof(group_block), .b_step = (int)sizeof(group_panel), .b_head = GROUP_COLS * (int)sizeof(float), \
    .b_shared = (int)sizeof(float), .chunk = 144, .chunk_bytes = 320 << 10, .depth = 24, .panels = 1, .a_whole = true, \
    .pack_a = gemm_i8_groups_pack_a, .pack_b = gemm_i8_groups_pack_b, .pack_shared = gemm_i8_groups_pack_shared,       \
    .round_groups = round_

/* ---- bytes by bytes, a scale per group ------------------------------------------------------------- */

enum { U8_GROUP = GEMM_U8_GROUP, U8_ROWS = 6, U8_TALL = 32 /* rows at most */, U8_COLS = 32, U8_ZERO = 128 };

/* A group of a row: elements plus zero, which is 0, or U8_ZERO where there are negative elements. */
struct u8_group {
    uint8_t x[U8_GROUP];
    float scale;
    int32_t zero;
};

/* The same group of the rows of a block, copied, for kernels that read rows at one distance. */
typedef struct u8_rows {
    uint8_t x[U8_TALL][U8_GROUP];
    float scale[U8_TALL];
    int32_t zero[U8_TALL];
} u8_rows;

/* A panel, per group. */
typedef struct u8_panel {
    int32_t shift[U8_COLS]; /* -U8_ZERO times the sum of the weights */
    int8_t w[U8_GROUP / 4][U8_COLS][4];
} u8_panel;

gemm_pack_fn gemm_u8_pack_a, gemm_u8_pack_rows, gemm_u8_pack_b;

/* The scale of a group whose largest magnitude has the bits `top`, and its inverse, 0 where all elements count as
 * zeros. NaN and 0 where an element is not finite. */
static inline float gemm_u8_scale(uint32_t top, bool negative, float *inverse)
{
    union {
        uint32_t u;
        float f;
    } largest = { top }, nan = { 0x7FC00000u };
    bool finite = top < 0x7F800000u;
    *inverse = finite && largest.f > 1e-30f ? (negative ? 127.0f : 255.0f) / largest.f : 0;
    return finite ? largest.f * (negative ? 1 / 127.0f : 1 / 255.0f) : nan.f;
}

/* Tasks of 120 x 512. */
#define GEMM_U8_KERNEL(name_, round_)                                                                                  \
    .name = name_, .kind = GEMM_U8, .rows = U8_ROWS, .cols = U8_COLS, .step = U8_GROUP, .points = true,                \
    .a_step = U8_ROWS * (int)(sizeof(void *) + sizeof(u8_group)), .b_step = (int)sizeof(u8_panel),                     \
    .b_head = U8_COLS * (int)sizeof(float), .chunk = 120, .panels = 16, .pack_a = gemm_u8_pack_a,                      \
    .pack_b = gemm_u8_pack_b, .round_u8 = round_

#endif
