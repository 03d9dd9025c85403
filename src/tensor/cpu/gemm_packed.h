/* Matrix multiplication with packed factors, over the context's threads.
 *
 *     C (M, N) = alpha op(A) op(B) + bias + residual, then relu;   op(A): (M, K), op(B): (K, N), row-major
 *
 * One frame (gemm_packed.c) cuts C into tasks and K into stretches that stay in the caches, packs A, and B unless it
 * was packed before, and calls a micro-kernel for blocks of a few rows of A by panels of a few columns of B.
 *
 * Each element of C is one sum along K, in an order that depends on M, N, K and the kernel, not on the number of
 * threads. The order depends on K and the kernel alone, so that a row has the same bytes in any batch, unless A is
 * transposed or C is float and comes from bf16: then a long K may be summed in parts.
 *
 * Nothing here fails: memory is the caller's, sizes are asserted. */
#ifndef TENSOR_CPU_GEMM_PACKED_H
#define TENSOR_CPU_GEMM_PACKED_H

#include "core/ctx.h"

typedef enum gemm_kind {
    GEMM_F32,       /* float by float */
    GEMM_BF16,      /* bf16 by bf16, sums in float */
    GEMM_I8,        /* float, rounded to 13 bits with a scale per row, by int8 (gemm_i8.c); exact sums */
    GEMM_I8_GROUPS, /* float, rounded to 7 bits with a scale per row and 32 elements, by int8 (gemm_i8_groups.c) */
    GEMM_U8         /* bf16, rounded to 8 bits with a scale per row and 64 elements, by int8 (gemm_u8.c) */
} gemm_kind;

typedef struct gemm_kernel gemm_kernel; /* gemm_kernels.h */

/* Images (n, H, W, pixel) whose first C channels are read by a convolution kernel of k x k from a grid of Gh x Gw
 * positions. Row (n, i, j), column (u, v, c) of the matrix is channel c at ((i mul + u sign + off) / div, (j mul + v
 * sign + off) / div), and 0 where that is outside or the division leaves a remainder. Forward: mul = stride, sign = 1,
 * off = -pad, div = 1; for the gradient of the input: mul = 1, sign = -1, off = pad, div = stride. */
typedef struct gemm_patches {
    int64_t H, W, pixel, C, Gh, Gw, k, mul, sign, off, div;
} gemm_patches;

/* A factor: a matrix in memory, or (f32, bf16, u8) the patches of images as rows of a matrix, which are gathered while
 * they are packed, so that a convolution is a GEMM and no patch matrix is stored. Row r of a matrix starts at r ld, or
 * with inner > 0 (f32, bf16) at (r % inner) ld + (r / inner) outer. */
typedef struct gemm_view {
    const void *data;
    int64_t rows, cols, ld, inner, outer;
    const gemm_patches *patches; /* NULL: a matrix */
} gemm_view;

static inline gemm_view gemm_matrix(const void *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (gemm_view){ data, rows, cols, ld, 0, 0, NULL };
}

typedef struct gemm_call {
    int64_t M, N, K;     /* K > 0 */
    gemm_view a, b;      /* (M, K), (K, N) */
    bool ta, tb;         /* a is (K, M), in f32 and bf16; b is (N, K), as it must be for int8 */
    const void *rounded; /* GEMM_U8: A in 8 bits, its data is not read; NULL: A is rounded by each task */
    const void *packed;  /* gemm_pack's output: b is not read. NULL, not for int8: B is packed on the way */
    void *c;             /* bf16 with c_bf16, else float; must not overlap the factors; overwritten */
    void *c_rounded;     /* GEMM_U8: C in 8 bits as well, or, with c and res NULL, alone; N is a multiple of 64 */
    bool c_bf16;
    int64_t ldc;
    float alpha;       /* 0 counts as 1; GEMM_I8 ignores it */
    const float *bias; /* (N) or NULL */
    const void *res;   /* NULL, or of C's type and shape, and may be c */
    bool relu;
} gemm_call;

/* The fastest kernel of a kind that this machine can run, and whether it is better than the plain one. */
const gemm_kernel *gemm_best(gemm_kind kind);
bool gemm_is_fast(gemm_kind kind);
/* Kernel i of the table, or NULL after the last; only kernels with gemm_usable may run. For tests and benchmarks. */
const gemm_kernel *gemm_kernel_at(int i);
bool gemm_usable(const gemm_kernel *kernel);

/* op(B) for calls that use it more than once. out: 64-aligned, gemm_packed_bytes long. */
size_t gemm_packed_bytes(const gemm_kernel *kernel, int64_t N, int64_t K);
void gemm_pack(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *out);

enum { GEMM_U8_GROUP = 64 };

/* GEMM_U8: A in 8 bits, rounded once for all calls that read it: rows of groups of 64 elements (the last one may have
 * fewer). Bytes: 0 where a group would span pixels. A GEMM has the same bytes with it and without. out: 8-aligned. */
size_t gemm_u8_rounded_bytes(const gemm_view *a);
void gemm_u8_round(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_view *a, void *out);
/* `groups` whole groups of bf16 on the calling thread. They become groups `first` .. of out. */
void gemm_u8_round_groups(const uint16_t *x, int64_t groups, void *out, int64_t first);

/* Bytes of scratch that gemm_packed_run needs, with a packed B or without; of x only sizes and flags are read. */
size_t gemm_scratch(const cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, bool packed);
void gemm_packed_run(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *scratch);

/* GEMM_F32 for fewer than GEMM_FEW rows, which are bound by memory: from B as it is, on any machine, without scratch;
 * sums are in another order. Ignores alpha and relu. */
enum { GEMM_FEW = 4 };
void gemm_f32_few(cloob_ctx *ctx, const gemm_call *x);

#endif
