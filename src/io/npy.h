/* NumPy's .npy: the beginning of a file of one matrix, and small arrays read from memory. */
#ifndef IO_NPY_H
#define IO_NPY_H

#include <stdint.h>

#include "core/ctx.h"
#include "core/sbuf.h"

/* Version 1.0, little-endian float32, C order. The matrix's numbers follow. Its length does not depend on the shape. */
void npy_put_beginning(sbuf *s, int64_t rows, int64_t columns);

/* The numbers of an array of one dimension or none, of booleans, integers or floats (versions 1 to 3, little-endian),
 * into out (room). *n: how many there are; more than room, other shapes and types, and damaged files are refused. name
 * is for messages. */
cloob_status npy_numbers(cloob_ctx *ctx, const void *data, size_t size, const char *name, double *out, int64_t room,
                         int64_t *n);

#endif
