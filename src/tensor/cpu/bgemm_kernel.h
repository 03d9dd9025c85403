/* The inner part of a bf16 GEMM, one version per kind of machine, and the tiles that all of them read.
 *
 *     A tile   [16 rows][32 k]             one row is 64 bytes
 *     B tile   [16 pairs of k][16 columns][2]   pairs of k stand side by side, as vdpbf16ps and tdpbf16ps want them
 *     C tile   [16 rows][16 columns] float
 *
 * each 1 KiB. Along K tiles follow each other: a block of 16 rows of A is `steps` tiles, and so is a block of 16
 * columns of B. What is beyond the edges of a factor is 0. */
#ifndef TENSOR_CPU_BGEMM_KERNEL_H
#define TENSOR_CPU_BGEMM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two bf16 elements at once. */
typedef uint32_t bgemm_pair __attribute__((may_alias));

enum { BGEMM_EDGE = 16, BGEMM_STEP = 32, BGEMM_TILE = 512 /* bf16 elements */, BGEMM_TILE_C = 256 /* floats */ };

/* A block of C: rows x cols tiles, C tile (i, j) at c + (i cols + j) BGEMM_TILE_C. `fresh`: C starts at 0, else it is
 * added to. A block i of rows starts at a + i steps BGEMM_TILE, block j of columns at b + j b_next. */
typedef struct bgemm_block {
    float *c;
    const uint16_t *a, *b;
    int64_t rows, cols, steps, b_next;
    bool fresh;
} bgemm_block;

/* What becomes of a C tile: to = alpha c + bias + res, then relu, in bf16. */
typedef struct bgemm_finish {
    uint16_t *to;
    const float *c, *bias; /* bias: of the tile's 16 columns, or NULL */
    const uint16_t *res;   /* NULL, or laid out like `to`, and may be it */
    int64_t ld;
    float alpha;
    bool relu;
} bgemm_finish;

typedef struct bgemm_kernel {
    const char *name;
    int64_t steps;                     /* of K at a time, so that what is used again stays in the first cache */
    void (*begin)(void), (*end)(void); /* around blocks, on the thread that multiplies; may be NULL */
    void (*multiply)(const bgemm_block *block);
    /* to[j][i] = from[i][j] of 16 x 16 pairs */
    void (*transpose)(bgemm_pair *to, const bgemm_pair *from);
    void (*finish)(const bgemm_finish *f); /* a whole tile; NULL: the caller's own loop */
} bgemm_kernel;

extern const bgemm_kernel bgemm_plain;
#ifdef __x86_64__
extern const bgemm_kernel bgemm_avx2, bgemm_avx512, bgemm_amx;
#endif

/* Whether this machine and system can run it. For AMX the system is asked for permission, which holds for the
 * process. */
bool bgemm_usable(const bgemm_kernel *kernel);

/* The fastest usable one: AMX, AVX512-BF16, AVX2, plain. */
const bgemm_kernel *bgemm_best(void);

#endif
