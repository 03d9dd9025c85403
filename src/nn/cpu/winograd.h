/* Weights of a 3 x 3 convolution as oneDNN's Winograd kernels take them. oneDNN makes them too, but in seconds where a
 * program should start in half of one. */
#ifndef NN_CPU_WINOGRAD_H
#define NN_CPU_WINOGRAD_H

#include "tensor/cpu/onednn.h"

/* out = G w G^T for every pair of channels, in the layout of md; w: (O, 3, 3, C). False, with nothing written, for a
 * layout that is not known here. */
bool winograd_weights(cloob_ctx *ctx, const dnnl_memory_desc_t *md, const float *w, float *out);

#endif
