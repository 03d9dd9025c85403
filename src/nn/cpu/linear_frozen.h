/* F32 GEMMs of inference, with weights that do not change. */
#ifndef NN_CPU_LINEAR_FROZEN_H
#define NN_CPU_LINEAR_FROZEN_H

#include "nn/op.h"

cloob_status linear_frozen_prepare(const op_env *env, op_args *a);
/* False where it was not prepared for: the caller multiplies otherwise. */
bool linear_frozen(const op_env *env, const op_args *a);
void linear_frozen_release(op_args *a);

#endif
