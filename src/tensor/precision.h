/* The names of compute precisions, and what each means. */
#ifndef TENSOR_PRECISION_H
#define TENSOR_PRECISION_H

#include "tensor/device.h"

typedef struct precision {
    const char *name;
    cloob_dtype compute; /* activations and the copy of the weights that is multiplied */
    bool int8;           /* weights of transformers in 8 bits: in inference, on a CPU */
    bool fp8;            /* both factors of these GEMMs in 8 bits: in inference, on a GPU from Hopper on */
    bool half;           /* matrices rounded to F16 when the weights are read: in inference */
    bool automatic;      /* "auto", until precision_settle */
} precision;

/* By its name; NULL is fp32. Refuses unknown names, and with `training` those that only serve inference. */
cloob_status precision_find(cloob_ctx *ctx, const char *name, bool training, precision *out);

typedef struct precision_choice {
    const char *name, *why;
} precision_choice;

/* The meaning of "auto" on a device: the fastest precision of inference whose embeddings keep a mean cosine
 * of 0.999 with those of fp32 (docs/measurements/cpu.md), by the instructions that the kernels use. */
precision_choice precision_of_device(const device *dev);
/* Replaces "auto" by `stated`, the choice of the weights' metadata, or if that is NULL by the device's choice, and logs
 * it; other precisions stay. */
cloob_status precision_settle(cloob_ctx *ctx, const device *dev, const char *stated, precision *p);

#endif
