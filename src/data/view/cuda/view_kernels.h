/* From the planes of decoded JPEGs to views, on the GPU: RGB of the box, two passes, mirror. Pixel for pixel what
 * ycc.h and resize.h define. */
#ifndef DATA_VIEW_CUDA_VIEW_KERNELS_H
#define DATA_VIEW_CUDA_VIEW_KERNELS_H

#include "data/view/ycc.h"
#include "tensor/cuda/vendor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One axis of one image, in device memory; see resize_axis. */
typedef struct view_axis {
    int32_t in, taps;
    int32_t *first, *count; /* (size) */
    int32_t *k;             /* (size, taps) */
} view_axis;

/* One image. All pointers are device memory. */
typedef struct gpu_view {
    ycc_planes planes;
    int32_t top, left; /* of the box, which is axis[1].in x axis[0].in */
    view_axis axis[2]; /* across, down */
    uchar4 *rgb, *mid; /* scratch: (box height, box width), between the passes */
    uint8_t *out;      /* (size, size, 3) */
    int32_t flip;      /* mirrored, left to right */
} gpu_view;

/* Bytes of scratch, and the position of each part: sets the pointers of axes, rgb and mid, counted from `base`, which
 * is aligned to 256 as every part is. `in` of the axes is set. */
size_t gpu_view_carve(gpu_view *v, int size, int filter, uint8_t *base);

/* Queues the views of n images; `images` is device memory. */
cudaError_t gpu_views_run(const gpu_view *images, int n, int size, int filter, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
