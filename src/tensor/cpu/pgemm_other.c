/* A machine that is not x86-64 has the plain loop alone. */
#include "tensor/cpu/pgemm.h"

const pgemm_kernel *pgemm_best(void) { return &pgemm_plain; }
