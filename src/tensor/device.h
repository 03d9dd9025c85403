/* Where tensors live and work is done: plain host memory (ref, cpu) or a GPU.
 *
 * A device is a small table of functions; other layers allocate memory and copy through it and never name
 * a vendor. Work on a GPU is queued on a stream; device_sync waits for it. */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include <stddef.h>

#include "core/sbuf.h"
#include "tensor/tensor.h"

typedef enum backend_kind { BACKEND_REF, BACKEND_CPU, BACKEND_CUDA, BACKENDS } backend_kind;

typedef struct device device;
struct device {
    backend_kind backend;
    int index;      /* which GPU */
    char name[128]; /* for people */
    void *stream;   /* the default queue; NULL on the host */
    void *state;    /* the backend's own */
    bool fp8;       /* has 8-bit floating-point GEMMs with a scale for each row */
    char runs[160]; /* a GPU: its generation and which kernels run on it */
    cloob_status (*alloc)(cloob_ctx *ctx, device *d, size_t bytes, const char *what,
                          void **out); /* zeroed, 256-aligned */
    void (*free)(device *d, void *p);
    cloob_status (*to_device)(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes);
    cloob_status (*to_host)(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes); /* waits */
    cloob_status (*copy)(cloob_ctx *ctx, device *d, void *to, const void *from, size_t bytes);
    cloob_status (*zero)(cloob_ctx *ctx, device *d, void *p, size_t bytes);
    cloob_status (*sync)(cloob_ctx *ctx, device *d);
    /* Total and free bytes as the system sees them now; 0 when unknown. */
    void (*memory)(device *d, size_t *total, size_t *available);
    void (*close)(device *d);

    /* A GPU's second stream, for concurrent work: `fork` makes it wait for `stream`, `join` makes `stream` wait for it.
     * And graph capture: work launched between record_begin and record_end is captured instead of run, and run by each
     * replay; *out is NULL with CLOOB_OK where some of it cannot be captured. All NULL on a host. */
    void *side;
    cloob_status (*fork)(cloob_ctx *ctx, device *d);
    cloob_status (*join)(cloob_ctx *ctx, device *d);
    cloob_status (*record_begin)(cloob_ctx *ctx, device *d);
    cloob_status (*record_end)(cloob_ctx *ctx, device *d, void **out);
    cloob_status (*replay)(cloob_ctx *ctx, device *d, void *recording);
    void (*forget)(device *d, void *recording);
};

/* name: "auto" (a GPU if there is one, else cpu), "cpu", "ref", "cuda", "cuda:1". The caller closes it. */
cloob_status device_open(cloob_ctx *ctx, const char *name, device **out);
void device_close(device *d); /* NULL is fine */

/* How many GPUs this build and machine can use. */
int device_cuda_count(void);
/* Opens GPU `index`; in a build without CUDA this fails with a message that says so. */
cloob_status device_open_cuda(cloob_ctx *ctx, int index, device **out);

/* How much memory a process on this host may still take: what the kernel calls available, or less where a
 * control group limits it. */

/* Both in bytes; 0 when the system does not say. root: where /proc and /sys are looked for, "" for the real
 * ones. */
void host_memory_read(const char *root, size_t *total, size_t *available);

/* Gives the whole pages of [data, data + bytes) back to the system if they lie inside the block, which was allocated as
 * one large piece; their content is lost. */
void host_memory_drop(const void *data, size_t bytes, const void *block, size_t block_bytes);

/* What a run was computed on, for its params.txt: equal bytes are promised for equal lines
 * (docs/reference/determinism.md). */

/* Appends "key: value" lines: processor, instruction set, compiler, libc, the versions of the
 * image libraries where they are linked, and what the device adds. */
void machine_describe(sbuf *s, device *d);

/* A GPU adds its generation, the versions of driver and libraries, and a hash of the algorithms that timing chose so
 * far: call it when the step is there. Does nothing in a build without CUDA. */
void machine_describe_cuda(sbuf *s, device *d);

#endif
