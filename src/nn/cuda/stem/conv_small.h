/* 3 x 3 convolutions with few channels (a ResNet's stem and first blocks) on tensor cores, with a box of the image and
 * the weights in shared memory. bf16 images, F32 sums in a fixed order. Each shape has kernels with several tile sizes;
 * the fastest is found by timing and stored in the tune cache.
 *
 * As for cuDNN's plans (tensor/cuda/dnn.h), forward overwrites y, DNN_DX x, DNN_DW w. */
#ifndef NN_CUDA_STEM_CONV_SMALL_H
#define NN_CUDA_STEM_CONV_SMALL_H

#include "tensor/cuda/dnn.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "nn/op.h"

typedef struct small_plan small_plan;

/* What a kernel computes in addition to the convolution: a sum of these. */
enum {
    SMALL_STATS = 1, /* forward: sums of y - pivot, and of its square, over all positions */
    SMALL_BYTES = 2, /* x is (N,H,W,3) bytes, which the kernel converts as image_input does */
    SMALL_APPLY = 4  /* forward: batch norm and ReLU are applied to x first */
};

typedef struct small_data {
    void *x, *w, *y;
    void *workspace;       /* SMALL_STATS: partial sums (small_plan_parts, 2, O) F32, added in order */
    const float *pivot;    /* SMALL_STATS: (O) */
    float mean[3], std[3]; /* SMALL_BYTES */
    const float *norm[4];  /* SMALL_APPLY: mean, rstd, gain, bias of x's channels */
} small_data;

/* shape: as for cuDNN; c: channels of w, (O,3,3,c); channels of x from c on count as 0. w is bf16, but F32 for DNN_DW,
 * whatever w_dtype is. For SMALL_BYTES, shape.C is the number of channels that image_input would write. *out is NULL
 * with CLOOB_OK if no kernel supports the shape. */
cloob_status small_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with,
                               small_plan **out);
void small_plan_destroy(small_plan *p); /* NULL is fine */

/* The same for a kernel that replaces several ops: *out is also NULL if separate calls, which take *ms, are faster, or
 * if kernel_choices.fused_gemm forbids fusion. *ms becomes the time of the choice. */
cloob_status small_plan_better(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, float *ms,
                               small_plan **out);

/* The shape of a convolution; w_dtype is the type of y. */
dnn_shape conv_shape(dnn_kind kind, const tensor *x, const tensor *w, const tensor *y, const op_attr *attr);

/* For tests and benchmarks: the i-th kernel that supports the shape, without timing; *out is NULL past the last. And a
 * smaller grid for a plan, so that a block processes more tiles. */
cloob_status small_plan_nth(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int with, int i,
                            small_plan **out);
void small_plan_narrow(small_plan *p, int blocks);

size_t small_plan_workspace(const small_plan *p);
int small_plan_parts(const small_plan *p);
float small_plan_ms(const small_plan *p);
const char *small_plan_name(const small_plan *p);

cloob_status small_run(cloob_ctx *ctx, device *d, const small_plan *p, void *stream, const small_data *data);

/* ---- kernels ------------------------------------------------------------------------------------- */

typedef struct small_call {
    dnn_shape shape;
    int64_t c;
    int blocks; /* of the grid, at most the number of tiles */
    small_data data;
    cudaStream_t stream;
} small_call;

typedef struct small_kernel {
    const char *name; /* static; the index in the list is part of the cached choice */
    dnn_kind kind;
    int with; /* SMALL_STATS and so on */
    int C, O, stride;
    int tile_rows;                            /* output rows of a tile; it has SMALL_TILE columns */
    cudaError_t (*ready)(int *blocks_per_sm); /* loads the kernel and returns how many blocks fit */
    size_t block_bytes;                       /* workspace per block */
    cudaError_t (*run)(const small_call *c);
} small_kernel;

enum { SMALL_TILE = 16 };

/* Lists that end with a NULL name. */
extern const small_kernel small_forward_kernels[], small_dw_kernels[], small_first_kernels[];

#ifdef __cplusplus
}
#endif
#endif
