/* Convolutions 3 x 3 with few channels (a ResNet's stem and first blocks): a box of the image with its border and
 * the weights in shared memory, products on tensor cores. bf16 images, F32 sums; every
 * sum has one order. Several sizes of tile per shape; the fastest is found by timing and kept in the tune
 * cache.
 *
 * Like cuDNN's plans (tensor/cuda/dnn.h): forward overwrites y, DNN_DX x, DNN_DW w. */
#ifndef NN_CUDA_STEM_CONV_SMALL_H
#define NN_CUDA_STEM_CONV_SMALL_H

#include "tensor/cuda/dnn.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "nn/op.h"

typedef struct small_plan small_plan;

/* What a kernel does beside the convolution: a sum of these. */
enum {
    SMALL_STATS = 1, /* forward: sums of y less a pivot, and of its square, over all positions */
    SMALL_BYTES = 2, /* x is (N,H,W,3) bytes; the kernel makes of them what image_input would have written */
    SMALL_APPLY = 4, /* forward: x goes through batch norm and relu first */
    SMALL_BWD = 8    /* dw: y is the gradient behind batch norm and relu and goes back through them first */
};

typedef struct small_data {
    void *x, *w, *y;
    void *workspace;       /* SMALL_STATS leaves its sums here: (small_plan_parts, 2, O) F32, to be added in order */
    const float *pivot;    /* SMALL_STATS: (O) */
    float mean[3], std[3]; /* SMALL_BYTES */
    const float *norm[4];  /* SMALL_APPLY: mean, rstd, gain, bias, of x's channels; SMALL_BWD: of y's */
    const void *before;    /* SMALL_BWD: what batch norm read, like y */
    const float *sums;     /* SMALL_BWD: (2, O), as bn_bwd_apply takes them, over `count` rows */
    float count;
} small_data;

/* shape as for cuDNN; c: channels of w, (O,3,3,c), those of x from c on count as 0. w is bf16, but F32 for
 * DNN_DW whatever w_dtype says. For SMALL_BYTES shape.C is that of the image as image_input would write it. *out is
 * NULL with CLOOB_OK when no kernel takes the shape. */
cloob_status small_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with,
                               small_plan **out);
void small_plan_destroy(small_plan *p); /* NULL is fine */

/* The same of a kernel that does the work of several ops: *out is also NULL where one after the other is better, by
 * their *ms, or by kernel_choices.fused_gemm. *ms becomes that of what was chosen. */
cloob_status small_plan_better(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, float *ms,
                               small_plan **out);

/* A convolution as cuDNN and our kernels name it; w_dtype is that of y. */
dnn_shape conv_shape(dnn_kind kind, const tensor *x, const tensor *w, const tensor *y, const op_attr *attr);

/* For tests and benchmarks: the i-th kernel that takes the shape, not timed; *out is NULL past the last. And
 * a plan's grid made narrower, so that a block walks over more tiles. */
cloob_status small_plan_nth(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, int i,
                            small_plan **out);
void small_plan_narrow(small_plan *p, int blocks);

size_t small_plan_workspace(const small_plan *p);
int small_plan_parts(const small_plan *p);
float small_plan_ms(const small_plan *p);
const char *small_plan_name(const small_plan *p);

cloob_status small_run(cloob_ctx *ctx, device *d, const small_plan *p, void *stream, const small_data *data);

/* ---- what the kernels' files offer to conv_small.c --------------------------------------------------- */

typedef struct small_call {
    dnn_shape shape;
    int64_t c;
    int blocks; /* of the grid, no more than there are tiles */
    small_data data;
    cudaStream_t stream;
} small_call;

typedef struct small_kernel {
    const char *name; /* lasts; part of the cached choice by its place in the list */
    dnn_kind kind;
    int with; /* SMALL_STATS and so on */
    int C, O, stride;
    int high;                                 /* rows of outputs in a tile; its columns are SMALL_TILE */
    cudaError_t (*ready)(int *blocks_per_sm); /* loads the kernel and says how many blocks fit */
    size_t block_bytes;                       /* workspace a block wants */
    cudaError_t (*run)(const small_call *c);
} small_kernel;

enum { SMALL_TILE = 16 };

/* Lists that end with a NULL name. */
extern const small_kernel small_forward_kernels[], small_dw_kernels[], small_first_kernels[];

#ifdef __cplusplus
}
#endif
#endif
