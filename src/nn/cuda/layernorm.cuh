/* What the two backward kernels of layer norm share: a warp to a row (layernorm.cu), and for the widths of transformers
 * in bf16 several warps to a row (layernorm_wide.cu). */
#ifndef NN_CUDA_LAYERNORM_CUH
#define NN_CUDA_LAYERNORM_CUH

#include "nn/cuda/common.cuh"

typedef struct bwd_in {
    const float *mean, *rstd, *gain, *bias;
    void *recomputed; /* layernorm of x; NULL: not written */
    int kinds;        /* of partial sums: gain's, bias's, and, 3, those of dx, which only layernorm_wide.cu writes */
    int64_t R;
    int C;
} bwd_in;

bool layernorm_wide_takes(const tensor *x);
unsigned layernorm_wide_blocks(const device *d, const tensor *x, bool sums); /* how many partial sums are written */
void layernorm_wide_launch(const op_env *env, const op_args *a, const bwd_in &in);

#endif
