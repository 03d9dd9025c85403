/* A bf16 GEMM (tensor/cpu/bgemm.h) as an op: scratch is planned, and weights are packed before the
 * multiplication, once when they are frozen. */
#ifndef NN_CPU_GEMM_BF16_H
#define NN_CPU_GEMM_BF16_H

#include "nn/cpu/cpu.h"
#include "tensor/cpu/bgemm.h"

/* x holds sizes and kinds; x->packed says that B is packed. Sets scratch_bytes and, for frozen weights, state. */
cloob_status gemm_bf16_prepare(const op_env *env, op_args *a, const bgemm_call *x);
void gemm_bf16_run(const op_env *env, const op_args *a, bgemm_call *x);
void gemm_bf16_release(op_args *a);

#endif
