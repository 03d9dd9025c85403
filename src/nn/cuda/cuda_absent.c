/* A build without CUDA has no kernels there. */
#include "nn/group.h"

const op_kernel op_kernels_cuda[OP_COUNT] = { { .run = NULL } };
const group_table group_kernels_cuda = { .kernel = NULL };
