/* Training views of JPEG files on a GPU: nvJPEG decodes, kernels crop, resize and mirror.
 *
 * The view equals transform.h's (same crop, filter and rounding), and RGB is computed from the decoded planes as in
 * libjpeg (ycc.h). Only the inverse DCT may differ from the CPU's view: the hardware decoders give libjpeg's bits,
 * nvJPEG's kernels do not (docs/reference/images.md has the differences). The CPU handles files that are not plain
 * JPEGs (io/image/image.h), large files, and colour jitter. */
#ifndef DATA_VIEW_DEVICE_VIEW_H
#define DATA_VIEW_DEVICE_VIEW_H

#include "data/view/transform.h"
#include "data/view/ycc.h"
#include "io/image/image.h"
#include "tensor/device.h"

/* One file and its view. */
typedef struct view_job {
    const uint8_t *bytes; /* the caller's, until device_view_run returns */
    jpeg_layout layout;
    image_box box;
    bool flip;
    uint8_t *out; /* device memory, (size, size, 3) */
    bool done;    /* false after a run: nvJPEG does not decode it */
} view_job;

/* Device memory of a device_view, in addition to nvJPEG's. */
enum { DEVICE_VIEW_BYTES = 96 << 20 };

/* Sets all of the job but out. False: the CPU must make this view. */
bool view_job_plan(const void *bytes, size_t size, const image_limits *limits, const transform_options *o, uint64_t key,
                   view_job *job);

/* The view of a job with these planes, in plain C: the definition. out: (size, size, 3). */
cloob_status view_job_define(cloob_ctx *ctx, const ycc_planes *planes, const view_job *job, const transform_options *o,
                             uint8_t *out);

/* --- a GPU's decoder; any number of threads share it ----------------------------------------------------- */

typedef struct device_decoder device_decoder;

/* CLOOB_ERR_UNSUPPORTED without nvJPEG, without CUDA, or on a device that is not a GPU. The device outlives it. */
cloob_status device_decoder_create(cloob_ctx *ctx, device *dev, device_decoder **out);
void device_decoder_destroy(device_decoder *d);           /* NULL is fine */
const char *device_decoder_name(const device_decoder *d); /* "nvJPEG 13.2, hardware decoders" */
device *device_decoder_device(const device_decoder *d);
bool device_decoder_exact(const device_decoder *d); /* undamaged files become the CPU's views, to the bit */

/* --- one thread's stream and buffers --------------------------------------------------------------------- */

typedef struct device_view device_view;

cloob_status device_view_create(cloob_ctx *ctx, device_decoder *d, const transform_options *o, device_view **out);
void device_view_destroy(device_view *v); /* NULL is fine */

/* Makes the views of n jobs; complete when it returns. A file that nvJPEG refuses is not an error: see `done`. */
cloob_status device_view_run(cloob_ctx *ctx, device_view *v, view_job *jobs, int n);

/* Copies views from the CPU to the jobs' device memory; complete when it returns. */
cloob_status device_view_put(cloob_ctx *ctx, device_view *v, uint8_t *const *out, const uint8_t *views, int n);

#endif
