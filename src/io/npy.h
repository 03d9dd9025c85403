/* The beginning of a NumPy .npy file of one matrix (version 1.0, little-endian float32, C order). */
#ifndef IO_NPY_H
#define IO_NPY_H

#include "core/sbuf.h"

#include <stdint.h>

/* The matrix's numbers follow. Its length does not depend on the shape. */
void npy_put_beginning(sbuf *s, int64_t rows, int64_t columns);

#endif
