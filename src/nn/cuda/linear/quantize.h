/* bf16 tensors rounded to 8 bits under a scale of their own, which follows their largest element (delayed scaling).
 *
 * A tensor is multiplied by a power of two that leaves its largest element of the steps before at most half of the
 * format's largest number; what has grown beyond that since is clamped. The first rounding looks at the tensor
 * itself. */
#ifndef NN_CUDA_LINEAR_QUANTIZE_H
#define NN_CUDA_LINEAR_QUANTIZE_H

#include "nn/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quant_format { QUANT_E4M3, QUANT_E5M2 } quant_format;

/* In device memory, zero at first. */
typedef struct quant_scale {
    float inverse;    /* what the 8-bit numbers are to be multiplied by */
    float max;        /* largest element, of the steps before; fades by 5 % a step */
    unsigned current; /* bits of the largest element of this step */
    unsigned blocks;  /* that have finished */
} quant_scale;

/* to (rows, cols) bytes = from (rows, cols) bf16, or with `turned` to (cols, rows). cols, and turned rows too, are
 * multiples of 16. fresh: the scale is taken from the tensor first. */
cloob_status quantize_cuda(const op_env *env, const char *op, void *to, const void *from, int64_t rows, int64_t cols,
                           bool turned, quant_format format, quant_scale *scale, bool fresh);

#ifdef __cplusplus
}
#endif
#endif
