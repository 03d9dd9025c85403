/* Training views of JPEG files made on a GPU: nvJPEG decodes, kernels crop, resize and mirror.
 *
 * The view is that of transform.h (same crop, same filter, same rounding), and RGB comes out of the decoded planes as
 * libjpeg makes it (ycc.h). What may differ from the CPU's view is the inverse DCT: that of the hardware decoders is
 * libjpeg's to the bit, that of nvJPEG's kernels is not; docs/reference/images.md says by how much. Files that are no
 * plain JPEGs
 * (io/image/jpeg_layout.h), that are large, or whose colours are jittered stay with the CPU. */
#ifndef DATA_VIEW_DEVICE_VIEW_H
#define DATA_VIEW_DEVICE_VIEW_H

#include "data/view/transform.h"
#include "data/view/ycc.h"
#include "io/image/jpeg_layout.h"
#include "tensor/device.h"

/* One file and what is to be made of it. */
typedef struct view_job {
    const uint8_t *bytes; /* the caller's, until device_view_run returns */
    jpeg_layout layout;
    image_box box;
    bool flip;
    uint8_t *out; /* device memory, (size, size, 3) */
    bool done;    /* false after a run: nvJPEG does not decode it */
} view_job;

/* Device memory that a device_view takes, beside nvJPEG's own. */
enum { DEVICE_VIEW_BYTES = 96 << 20 };

/* Sets all of the job but out. False: this is one for the CPU. */
bool view_job_plan(const void *bytes, size_t size, const image_limits *limits, const transform_options *o, uint64_t key,
                   view_job *job);

/* What a run makes of a job whose planes these are, in plain C. out: (size, size, 3). */
cloob_status view_job_define(cloob_ctx *ctx, const ycc_planes *planes, const view_job *job, const transform_options *o,
                             uint8_t *out);

/* --- a GPU's decoder; any number of threads share it ----------------------------------------------------- */

typedef struct device_decoder device_decoder;

/* Without nvJPEG, on a device that is no GPU, in a build without CUDA: CLOOB_ERR_UNSUPPORTED and one line. The device
 * outlives it. */
cloob_status device_decoder_create(cloob_ctx *ctx, device *dev, device_decoder **out);
void device_decoder_destroy(device_decoder *d);           /* NULL is fine */
const char *device_decoder_name(const device_decoder *d); /* "nvJPEG 13.2, hardware decoders" */
device *device_decoder_device(const device_decoder *d);
bool device_decoder_exact(const device_decoder *d); /* undamaged files become the CPU's views, to the bit */

/* --- one thread's stream and buffers --------------------------------------------------------------------- */

typedef struct device_view device_view;

cloob_status device_view_create(cloob_ctx *ctx, device_decoder *d, const transform_options *o, device_view **out);
void device_view_destroy(device_view *v); /* NULL is fine */

/* Makes the views of n jobs; they are there when it returns. A file that nvJPEG refuses is no failure: see `done`. */
cloob_status device_view_run(cloob_ctx *ctx, device_view *v, view_job *jobs, int n);

/* Copies views that the CPU made to where jobs have theirs; done when it returns. */
cloob_status device_view_put(cloob_ctx *ctx, device_view *v, uint8_t *const *out, const uint8_t *views, int n);

#endif
