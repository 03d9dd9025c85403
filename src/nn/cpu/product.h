/* A bf16 product (tensor/cpu/bgemm.h) as an op: scratch is planned, and a factor of weights is packed before the
 * product, once when the weights are frozen. */
#ifndef NN_CPU_PRODUCT_H
#define NN_CPU_PRODUCT_H

#include "nn/cpu/cpu.h"
#include "tensor/cpu/bgemm.h"

/* x holds sizes and kinds; x->packed says that B is packed. Sets scratch_bytes and, for frozen weights, state. */
cloob_status product_prepare(const op_env *env, op_args *a, const bgemm_call *x);
void product_run(const op_env *env, const op_args *a, bgemm_call *x);
void product_release(op_args *a);

#endif
