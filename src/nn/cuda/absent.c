/* A build without CUDA has no kernels there. */
#include "nn/op.h"

const op_kernel op_kernels_cuda[OP_COUNT] = { { .run = NULL } };
