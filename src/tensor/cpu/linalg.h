/* Dense symmetric matrices in double: eigenvalues, inverse. Row-major, (n, n). */
#ifndef TENSOR_CPU_LINALG_H
#define TENSOR_CPU_LINALG_H

#include "core/ctx.h"

/* All eigenvalues, largest first, into value (n). A is symmetric and is destroyed. CLOOB_ERR_NUMERIC when the
 * iteration does not end, which finite input does not cause; CLOOB_ERR_MEMORY. */
cloob_status linalg_eigenvalues(cloob_ctx *ctx, double *value, double *A, int64_t n);

/* A = A^-1 for a symmetric positive definite A; both triangles are read and written. CLOOB_ERR_NUMERIC when A is not
 * positive definite: A is then lost; CLOOB_ERR_MEMORY. */
cloob_status linalg_spd_inverse(cloob_ctx *ctx, double *A, int64_t n);

#endif
