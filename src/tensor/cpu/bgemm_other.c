/* A machine that is not x86-64 has the plain kernel alone. */
#include "tensor/cpu/bgemm_kernel.h"

bool bgemm_usable(const bgemm_kernel *kernel) { return kernel == &bgemm_plain; }

const bgemm_kernel *bgemm_best(void) { return &bgemm_plain; }
