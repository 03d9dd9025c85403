/* Convolutions 3 x 3 with few channels (a ResNet's stem), by kernels of our own: a box of the image with
 * its border in shared memory, weights beside it, products on tensor cores. bf16 images, F32 sums; every
 * sum has one order. Several sizes of tile per shape; the fastest is found by timing and kept in the tune
 * cache.
 *
 * Like cuDNN's plans (tensor/cuda/dnn.h): forward overwrites y, DNN_DX x, DNN_DW w. */
#ifndef NN_CUDA_CONV_SMALL_H
#define NN_CUDA_CONV_SMALL_H

#include "tensor/cuda/dnn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct small_plan small_plan;

/* shape as for cuDNN; c: channels of w, (O,3,3,c), those of x from c on count as 0. w is bf16, but F32 for
 * DNN_DW whatever w_dtype says. *out is NULL with CLOOB_OK when no kernel takes the shape. */
cloob_status small_plan_create(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, small_plan **out);
void small_plan_destroy(small_plan *p); /* NULL is fine */

/* For tests and benchmarks: the i-th kernel that takes the shape, not timed; *out is NULL past the last. And
 * a plan's grid made narrower, so that a block walks over more tiles. */
cloob_status small_plan_nth(cloob_ctx *ctx, device *d, const dnn_shape *shape, int64_t c, int i, small_plan **out);
void small_plan_narrow(small_plan *p, int blocks);

size_t small_plan_workspace(const small_plan *p);
float small_plan_ms(const small_plan *p);
const char *small_plan_name(const small_plan *p);

cloob_status small_run(cloob_ctx *ctx, device *d, const small_plan *p, void *stream, void *x, void *w, void *y,
                       void *workspace);

/* ---- what the kernels' files offer to conv_small.c --------------------------------------------------- */

typedef struct small_call {
    dnn_shape shape;
    int64_t c;
    int blocks; /* the grid is at most this */
    void *x, *w, *y, *workspace;
    cudaStream_t stream;
} small_call;

typedef struct small_kernel {
    const char *name; /* lasts; part of the cached choice by its place in the list */
    dnn_kind kind;
    int C, O, stride;
    cudaError_t (*ready)(int *blocks_per_sm); /* loads the kernel and says how many blocks fit */
    size_t block_bytes;                       /* workspace a block wants */
    cudaError_t (*run)(const small_call *c);
} small_kernel;

/* Lists that end with a NULL name. */
extern const small_kernel small_forward_kernels[], small_dw_kernels[], small_first_kernels[];

#ifdef __cplusplus
}
#endif
#endif
