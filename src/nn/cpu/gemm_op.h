/* A packed GEMM (tensor/cpu/gemm_packed.h) as an op: scratch is planned, and a weight is packed before the
 * multiplication, once when it is frozen. */
#ifndef NN_CPU_GEMM_OP_H
#define NN_CPU_GEMM_OP_H

#include "nn/cpu/cpu.h"
#include "nn/op.h"
#include "tensor/cpu/gemm_packed.h"

/* x->b packed in the cache, for all executors of this weight; packs it where that has not happened. NULL when out of
 * memory or there is no cache. */
const void *gemm_op_cached(const op_env *env, const gemm_kernel *kernel, const gemm_call *x);

/* Scratch for a call with a packed B and for one without. */
size_t gemm_op_scratch(const op_env *env, const gemm_kernel *kernel, const gemm_call *x);

/* The operands of a forward call that may be in 8 bits: input 0 and output 0. */
void gemm_op_rounding(const op_args *a, gemm_call *x);

/* F32 or bf16, as input 0 is. x holds sizes and kinds when the call is prepared; weight: x->b is one. */
cloob_status gemm_op_prepare(const op_env *env, op_args *a, const gemm_call *x, bool weight);
cloob_status gemm_op_run(const op_env *env, const op_args *a, gemm_call *x, bool weight);

/* OP_LINEAR for so many rows (linear.c). */
gemm_call linear_call(const op_args *a, int64_t rows);

/* OP_LINEAR in F32 for inference, with weights that do not change (linear_frozen.c). */
cloob_status linear_frozen_prepare(const op_env *env, op_args *a);
/* False where it was not prepared for: the caller multiplies otherwise. */
bool linear_frozen(const op_env *env, const op_args *a);

#endif
