/* A convolution whose windows do not overlap, as a GEMM with packed weights: a vision transformer's first op. */
#ifndef NN_CPU_CONV_PATCHES_H
#define NN_CPU_CONV_PATCHES_H

#include "nn/op.h"

/* Whether it is one: frozen F32 weights, stride = kernel, no padding, plain layout. Decided by shapes alone. */
bool conv_patches_fit(const op_env *env, const op_args *a);
cloob_status conv_patches_prepare(const op_env *env, op_args *a);
cloob_status conv_patches(const op_env *env, const op_args *a);

#endif
