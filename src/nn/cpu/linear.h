/* What linear.c calls: F32 GEMMs of inference, with weights that do not change, and GEMMs in bf16. */
#ifndef NN_CPU_LINEAR_H
#define NN_CPU_LINEAR_H

#include "nn/op.h"
#include "nn/cpu/cpu.h"

cloob_status linear_frozen_prepare(const op_env *env, op_args *a);
/* False where it was not prepared for: the caller multiplies otherwise. */
bool linear_frozen(const op_env *env, const op_args *a);

cpu_run linear_bf16, linear_dx_bf16, linear_dw_bf16, heads_project_bf16, heads_collect_bf16, heads_dw_bf16;

#endif
