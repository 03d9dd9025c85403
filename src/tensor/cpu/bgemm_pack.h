/* Factors of a bf16 GEMM into tiles (bgemm_kernel.h). */
#ifndef TENSOR_CPU_BGEMM_PACK_H
#define TENSOR_CPU_BGEMM_PACK_H

#include "tensor/cpu/bgemm.h"

/* A stretch of a factor: `edge` is its side that is not K (rows of op(A), columns of op(B)). */
typedef struct bgemm_part {
    int64_t edge0, edges, k0, ks; /* ks: at most the kernel's steps, in elements */
} bgemm_part;

/* Block i of 16 edges goes to out + i next, its tiles along K one after the other. transposed: the view's rows are
 * K. */
void bgemm_pack_a(const bgemm_kernel *kernel, const bgemm_view *v, bool transposed, const bgemm_part *part,
                  int64_t next, uint16_t *out);
/* transposed: the view's columns are K. */
void bgemm_pack_part_b(const bgemm_kernel *kernel, const bgemm_view *v, bool transposed, const bgemm_part *part,
                       int64_t next, uint16_t *out);

#endif
