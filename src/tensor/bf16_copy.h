/* Blocks of F32 rounded to bf16, where they lie.
 *
 * to, from: n elements of the device's memory, apart. To nearest, ties to even, on every device; a NaN stays one. On a
 * GPU the work is queued on its stream. */
#ifndef TENSOR_BF16_COPY_H
#define TENSOR_BF16_COPY_H

#ifdef __cplusplus
extern "C" {
#endif
#include "tensor/device.h"

cloob_status bf16_copy(cloob_ctx *ctx, device *d, uint16_t *to, const float *from, int64_t n);
cloob_status bf16_copy_cuda(cloob_ctx *ctx, device *d, uint16_t *to, const float *from, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
