/* The weights of one axis of a resize, in fixed point. */
#ifndef DATA_VIEW_RESIZE_AXIS_H
#define DATA_VIEW_RESIZE_AXIS_H

#include "data/view/resize.h"
#include "data/view/resize_weights.h"

extern const resize_kernels resize_vnni, resize_avx2; /* in x86-64 builds */

/* Outputs [begin, begin + n) of `out`, when [from, to) of `in` pixels becomes `out` pixels. The arrays live
 * in b. */
cloob_status resize_axis_build(cloob_ctx *ctx, resize_axis *a, resize_buffer *b, resize_filter filter, int64_t in,
                               float from, float to, int64_t out, int64_t begin, int64_t n);

#endif
