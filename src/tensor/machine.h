/* What a run was computed on, for its params.txt: equal bytes are promised for equal lines
 * (docs/reference/determinism.md). */
#ifndef TENSOR_MACHINE_H
#define TENSOR_MACHINE_H

#include "core/sbuf.h"

/* Appends "key: value" lines: processor, libc, and the versions of OpenBLAS and oneDNN where they are linked. */
void machine_describe(sbuf *s);

#endif
