/* What the kernels of GEMM_F32 share: packing (gemm_f32.c) and their rows of the table. */
#ifndef TENSOR_CPU_GEMM_F32_H
#define TENSOR_CPU_GEMM_F32_H

#include "tensor/cpu/gemm_packed.h"

gemm_pack_fn gemm_f32_pack_a, gemm_f32_pack_b;

#define GEMM_F32_KERNEL(name_, rows_, cols_, chunk_, depth_, transpose_)                                               \
    .name = name_, .kind = GEMM_F32, .rows = rows_, .cols = cols_, .step = 1, .a_step = rows_ * (int)sizeof(float),    \
    .b_step = cols_ * (int)sizeof(float), .chunk = chunk_, .depth = depth_, .panels = 4, .a_whole = true,              \
    .pack_a = gemm_f32_pack_a, .pack_b = gemm_f32_pack_b, .transpose_f32 = transpose_

#endif
