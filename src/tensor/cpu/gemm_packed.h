/* Matrix multiplication with packed factors, over the context's threads.
 *
 *     C (M, N) = alpha op(A) op(B) + bias + residual, then relu;   op(A): (M, K), op(B): (K, N), row-major
 *
 * One frame (gemm_packed.c) cuts C into tasks and K into stretches that stay in the caches, packs A, and B unless it
 * was packed before, and calls a micro-kernel for blocks of a few rows of A by panels of a few columns of B. Kernels
 * are listed in gemm_kernels.c, the fastest of a kind first: one file per element type packs for all of its kernels
 * and has the plain one, and each instruction set has a file with its micro-kernels. gemm.h has the GEMMs by BLAS.
 *
 * Each element of C is one sum along K, in an order that depends on M, N, K and the kernel, not on the number of
 * threads. Unless C is float and comes from bf16, where a long K may be summed in parts, the order depends on K and the
 * kernel alone: a row has the same bytes in any batch.
 *
 * Nothing here fails: memory is the caller's, sizes are asserted. */
#ifndef TENSOR_CPU_GEMM_PACKED_H
#define TENSOR_CPU_GEMM_PACKED_H

#include "core/ctx.h"

typedef enum gemm_kind {
    GEMM_F32,      /* float by float */
    GEMM_BF16,     /* bf16 by bf16, sums in float */
    GEMM_I8,       /* float, rounded to 13 bits with a scale per row, by int8 (gemm_i8.c); exact sums */
    GEMM_I8_GROUPS /* float, rounded to 7 bits with a scale per row and 32 elements, by int8 (gemm_i8_groups.c) */
} gemm_kind;

typedef struct gemm_kernel gemm_kernel;
typedef struct group_block group_block; /* gemm_i8_groups.h */

/* ---- a call ---------------------------------------------------------------------------------------- */

/* Images (n, H, W, pixel) whose first C channels are read by a convolution kernel of k x k from a grid of Gh x Gw
 * positions. Row (n, i, j), column (u, v, c) of the matrix is channel c at ((i mul + u sign + off) / div, (j mul + v
 * sign + off) / div), and 0 where that is outside or the division leaves a remainder. Forward: mul = stride, sign = 1,
 * off = -pad, div = 1; for the gradient of the input: mul = 1, sign = -1, off = pad, div = stride. */
typedef struct gemm_patches {
    int64_t H, W, pixel, C, Gh, Gw, k, mul, sign, off, div;
} gemm_patches;

/* A factor: a matrix in memory, or (bf16) the patches of images as rows of a matrix, which are gathered while they are
 * packed, so that a convolution is a GEMM and no patch matrix is stored. Row r of a matrix starts at r ld, or (bf16)
 * with inner > 0 at (r % inner) ld + (r / inner) outer. */
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
    int64_t M, N, K; /* K > 0 */
    gemm_view a, b; /* a is (M, K), or with ta, bf16 alone, (K, M); b is (K, N), or with tb, which int8 wants, (N, K) */
    bool ta, tb;
    const void
        *packed; /* gemm_pack's output, which b is then not read for; NULL, not for int8: B is packed on the way */
    void *c;     /* bf16 with c_bf16, else float; must not overlap the factors; overwritten */
    bool c_bf16;
    int64_t ldc;
    float alpha;       /* 0 counts as 1 */
    const float *bias; /* (N) or NULL */
    const void *res;   /* NULL, or of C's type and shape, and may be c */
    bool relu;
} gemm_call;

/* The fastest kernel of a kind that this machine can run, and whether it is better than the plain one. */
const gemm_kernel *gemm_best(gemm_kind kind);
bool gemm_is_fast(gemm_kind kind);
/* Whether GEMM_I8_GROUPS is the faster of the two int8 kinds: AVX2 without VNNI. */
bool gemm_prefers_groups(void);
/* Kernel i of the table, or NULL after the last; only kernels with gemm_usable may run. For tests and benchmarks. */
const gemm_kernel *gemm_kernel_at(int i);
bool gemm_usable(const gemm_kernel *kernel);

/* op(B) for calls that use it more than once. out: 64-aligned, gemm_packed_bytes long. */
size_t gemm_packed_bytes(const gemm_kernel *kernel, int64_t N, int64_t K);
void gemm_pack(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *out);

/* Bytes of scratch that gemm_run needs, with a packed B or without; of x only sizes and flags are read. */
size_t gemm_scratch(const cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, bool packed);
void gemm_run(cloob_ctx *ctx, const gemm_kernel *kernel, const gemm_call *x, void *scratch);

/* GEMM_F32 for fewer than GEMM_FEW rows, which are bound by memory: from B as it is, on any machine, without scratch;
 * sums are in another order. Ignores alpha and relu. */
enum { GEMM_FEW = 4 };
void gemm_f32_few(cloob_ctx *ctx, const gemm_call *x);

/* ---- kernels ----------------------------------------------------------------------------------------- */

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
} gemm_part;

/* Packs a part: block i of rows, or panel i, goes to out + i next. edge0 is a multiple of the kernel's rows or cols, k0
 * of its step. What is beyond the edges and the end of K becomes 0. */
typedef void gemm_pack_fn(const gemm_kernel *kernel, const gemm_call *x, const gemm_part *part, int64_t next,
                          void *out);

struct gemm_kernel {
    const char *name;
    gemm_kind kind;
    bool (*usable)(void); /* NULL: always */
    int rows, cols, step; /* of a block, of a panel, elements of K per step */
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
    union { /* what the packing functions of a kind need of an instruction set */
        /* f32: to[k ld_to + r] = from[r ld + k] for r < rows, at most half a panel's columns or a block's rows. With
         * zeros for up to half a panel of r where ld_to has the space. */
        void (*transpose_f32)(const float *from, int64_t ld, int rows, int64_t K, float *to, int64_t ld_to);
        /* bf16: to[j][i] = from[i][j] of 16 x 16 pairs of elements */
        void (*transpose_pairs)(uint32_t *to, const uint32_t *from);
        /* int8 in groups (gemm_i8_groups.h): x (groups, 32) becomes row r of blocks; limit: (groups) */
        void (*round_groups)(const float *x, int64_t groups, const float *limit, int r, group_block *to);
    };
};

/* Where the parts of a packed B are. */
const void *gemm_packed_panel(const gemm_kernel *kernel, const void *packed, int64_t K, int64_t p);

extern const gemm_kernel gemm_f32_plain, gemm_bf16_plain, gemm_i8_plain, gemm_i8_groups_plain;
#ifdef __x86_64__
extern const gemm_kernel gemm_f32_avx512, gemm_f32_avx2, gemm_bf16_amx, gemm_bf16_avx512, gemm_bf16_avx2,
    gemm_i8_avx512_vnni, gemm_i8_avx_vnni, gemm_i8_avx2, gemm_i8_groups_avx2;
#endif

#endif
