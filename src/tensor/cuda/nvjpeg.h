/* nvJPEG, NVIDIA's JPEG decoder, loaded at its first use. Toolkits often come without its header, so the types and
 * functions that are called are declared here, as in the library's binary interface. */
#ifndef TENSOR_CUDA_NVJPEG_H
#define TENSOR_CUDA_NVJPEG_H

#include "core/ctx.h"
#include "tensor/cuda/vendor.h"

enum { NVJPEG_OK = 0, NVJPEG_PLANES = 4 };

/* What decodes. Values are the library's. */
typedef enum nvjpeg_backend {
    NVJPEG_KERNELS = 2, /* the multiprocessors; fewer than about 50 images at a time are decoded on the CPU */
    NVJPEG_ENGINES = 3  /* the decoders in hardware that data-centre GPUs have */
} nvjpeg_backend;

enum { NVJPEG_YCC = 1 }; /* output: planes as they are stored, chroma at its own size */

typedef struct nvjpeg_library *nvjpeg_handle;
typedef struct nvjpeg_decoder *nvjpeg_state;

/* Where the planes of one image go, in device memory. */
typedef struct nvjpeg_image {
    unsigned char *plane[NVJPEG_PLANES];
    size_t pitch[NVJPEG_PLANES];
} nvjpeg_image;

/* All return NVJPEG_OK or an error. A handle serves all threads, a state one. Lists are in host memory. */
typedef struct nvjpeg_functions {
    int (*nvjpegCreateEx)(int backend, void *device_memory, void *pinned_memory, unsigned flags, nvjpeg_handle *out);
    int (*nvjpegDestroy)(nvjpeg_handle h);
    int (*nvjpegGetProperty)(int which, int *value); /* 0, 1, 2: major, minor, patch */
    int (*nvjpegJpegStateCreate)(nvjpeg_handle h, nvjpeg_state *out);
    int (*nvjpegJpegStateDestroy)(nvjpeg_state s);
    int (*nvjpegDecodeBatchedInitialize)(nvjpeg_handle h, nvjpeg_state s, int images, int threads, int output);
    int (*nvjpegDecodeBatched)(nvjpeg_handle h, nvjpeg_state s, const unsigned char *const *bytes, const size_t *sizes,
                               nvjpeg_image *to, cudaStream_t stream);
} nvjpeg_functions;

/* Written once by the first load that succeeds, read-only afterwards. */
extern nvjpeg_functions nvjpeg;

/* Fills nvjpeg. Where the library is missing: one line with the remedy. May be called from any thread. */
cloob_status nvjpeg_load(cloob_ctx *ctx);

#endif
