/* One matrix as a NumPy .npy file (version 1.0, little-endian float32, C order). */
#ifndef IO_NPY_H
#define IO_NPY_H

#include "core/ctx.h"

/* data: (rows, columns). Written beside and renamed. */
cloob_status npy_write(cloob_ctx *ctx, const char *path, const float *data, int64_t rows, int64_t columns);

#endif
