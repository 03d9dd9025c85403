/* What a run was computed on, for its params.txt: equal bytes are promised for equal lines
 * (docs/reference/determinism.md). */
#ifndef TENSOR_MACHINE_H
#define TENSOR_MACHINE_H

#include "core/sbuf.h"
#include "tensor/device.h"

/* Appends "key: value" lines: processor, instruction set, compiler, libc, the versions of OpenBLAS, oneDNN and the
 * image libraries where they are linked, and what the device adds. */
void machine_describe(sbuf *s, device *d);

/* A GPU adds its generation, the versions of driver and libraries, and a hash of the algorithms that timing chose so
 * far: call it when the step is there. Does nothing in a build without CUDA. */
void machine_describe_cuda(sbuf *s, device *d);

#endif
