/* A machine that is not x86-64 has the plain loop alone. */
#include "tensor/cpu/qgemm.h"

igemm_multiply_fn *igemm_kernel(int i) { return i == 0 ? igemm_multiply_plain : NULL; }

igemm_multiply_fn *igemm_best(void) { return igemm_multiply_plain; }

const qgemm_kernel *qgemm_best(void) { return &qgemm_kernel_plain; }

bool qgemm_usable(void) { return false; }
