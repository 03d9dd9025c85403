/* What the kernels of GEMM_I8_GROUPS share: packing (gemm_i8_groups.c) and their rows of the table. */
#ifndef TENSOR_CPU_GEMM_I8_GROUPS_H
#define TENSOR_CPU_GEMM_I8_GROUPS_H

#include "tensor/cpu/gemm_packed.h"

enum {
    GROUP = 32, /* elements that share a scale, in quads of four */
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
    uint8_t x[GROUP / 4][GROUP_ROWS][4]; /* elements plus zero point */
    group_row row[GROUP_ROWS];
};

/* A panel, per group. */
typedef struct group_panel {
    int16_t sum[GROUP_COLS][2]; /* of both halves of the weights, negated */
    int8_t w[GROUP / 4][GROUP_COLS][4];
} group_panel;

gemm_pack_fn gemm_i8_groups_pack_a, gemm_i8_groups_pack_b;
void gemm_i8_groups_pack_shared(const gemm_kernel *kernel, const gemm_call *x, int64_t step, void *packed);

/* A group's scale by the distance between its largest and smallest element, the squared lengths of its halves and their
 * limit; and 1 / scale or 0. */
float gemm_group_scale(float range, float left, float right, float limit);
float gemm_group_inverse(float scale);

/* 24 groups of a panel, 14 KB, stay in the first cache, 256 KB of A in the second. */
#define GEMM_I8_GROUPS_KERNEL(name_, round_)                                                                           \
    .name = name_, .kind = GEMM_I8_GROUPS, .rows = GROUP_ROWS, .cols = GROUP_COLS, .step = GROUP,                      \
    .a_step = (int)sizeof(group_block), .b_step = (int)sizeof(group_panel), .b_head = GROUP_COLS * (int)sizeof(float), \
    .b_shared = (int)sizeof(float), .chunk = 144, .chunk_bytes = 320 << 10, .depth = 24, .panels = 1, .a_whole = true, \
    .pack_a = gemm_i8_groups_pack_a, .pack_b = gemm_i8_groups_pack_b, .pack_shared = gemm_i8_groups_pack_shared,       \
    .round_groups = round_

#endif
