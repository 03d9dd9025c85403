/* The names of compute precisions, and what each means. */
#ifndef TENSOR_PRECISION_H
#define TENSOR_PRECISION_H

#include "core/ctx.h"

typedef struct precision {
    const char *name;
    cloob_dtype compute; /* activations and the copy of the weights that is multiplied */
    bool fp8;            /* GEMMs of transformers in 8 bits: in training, on a GPU from Ada on */
    bool int8;           /* weights of transformers in 8 bits: in inference, on a CPU */
    bool fp8_rows;       /* both factors of these GEMMs in 8 bits: in inference, on a GPU from Hopper on */
} precision;

/* By its name; NULL is fp32. Refuses unknown names, and those that only serve training unless `training`, or
 * inference if so. */
cloob_status precision_find(cloob_ctx *ctx, const char *name, bool training, precision *out);

#endif
