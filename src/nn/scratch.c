/* How much scratch to plan for on a GPU before any library is queried.
 *
 * cuDNN may take 256 MiB for a convolution (tensor/cuda/dnn.c), cuBLASLt 32 MiB for a GEMM
 * (tensor/cuda/gemm.c); in addition, kernels store partial sums and small copies, some of which grow with the
 * batch as a fraction of an operand. */
#include "nn/op.h"

enum { MiB = 1 << 20, CONVOLUTION = 256 * MiB, PRODUCT = 32 * MiB, SUMS = 32 * MiB };

static size_t largest_operand(const op_args *a)
{
    size_t max = 0;
    for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
        const tensor *t = k < OP_INPUTS ? &a->in[k] : &a->out[k - OP_INPUTS];
        size_t bytes = op_has(t) ? tensor_bytes(t) : 0;
        if (bytes > max) max = bytes;
    }
    return max;
}

size_t op_scratch_bound(op_id op, const op_args *a)
{
    bool convolution = op == OP_CONV2D || op == OP_CONV2D_DX || op == OP_CONV2D_DW;
    bool windows =
        convolution && a->attr.pad == 0 && a->attr.stride > 1; /* patches are copied out as rows of a matrix */
    if (convolution) return CONVOLUTION + SUMS + (windows ? largest_operand(a) : 0);
    if (a->attr.fp8 && op == OP_LINEAR) return PRODUCT + SUMS + largest_operand(a);
    if (op == OP_LAYERNORM) return 0; /* it checks its width, no scratch */
    if (op == OP_EMBED_BWD) return SUMS + largest_operand(a) / 8;
    return op_find_kernel(BACKEND_CUDA, op) && op_kernels_cuda[op].prepare ? PRODUCT + SUMS : 0;
}
