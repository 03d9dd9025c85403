/* What the kernels of GEMM_BF16 share: packing (gemm_bf16.c), tiles, and their rows of the table.
 *
 *     A tile   [16 rows][32 k]                  one row is 64 bytes
 *     B tile   [16 pairs of k][16 columns][2]   pairs of k are side by side, as vdpbf16ps and tdpbf16ps want them
 *
 * each 1 KiB. A step of K has one tile of A, or two for a kernel of 32 rows, and two of B: 32 columns. */
#ifndef TENSOR_CPU_GEMM_BF16_H
#define TENSOR_CPU_GEMM_BF16_H

#include "tensor/cpu/gemm_packed.h"

enum { BF16_EDGE = 16, BF16_STEP = 32, BF16_COLS = 32, BF16_TILE = 512 /* elements */ };

gemm_pack_fn gemm_bf16_pack_a, gemm_bf16_pack_b;
void gemm_bf16_transpose_plain(uint32_t *to, const uint32_t *from);

/* Tasks of 128 x 512: their C, A and B fit the second cache. */
#define GEMM_BF16_KERNEL(name_, rows_, depth_, transpose_)                                                             \
    .name = name_, .kind = GEMM_BF16, .rows = rows_, .cols = BF16_COLS, .step = BF16_STEP,                             \
    .a_step = rows_ * BF16_STEP * (int)sizeof(uint16_t), .b_step = BF16_COLS * BF16_STEP * (int)sizeof(uint16_t),      \
    .chunk = 128, .panels = 16, .depth = depth_, .pack_a = gemm_bf16_pack_a, .pack_b = gemm_bf16_pack_b,               \
    .transpose_pairs = transpose_

#endif
