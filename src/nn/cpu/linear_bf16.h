/* GEMMs in bf16: what linear.c calls for them. */
#ifndef NN_CPU_LINEAR_BF16_H
#define NN_CPU_LINEAR_BF16_H

#include "nn/cpu/cpu.h"

cpu_run linear_bf16, linear_dx_bf16, linear_dw_bf16, heads_project_bf16, heads_collect_bf16, heads_dw_bf16;

#endif
