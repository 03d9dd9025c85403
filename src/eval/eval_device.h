/* Which GPU, if any, an evaluation uses. */
#ifndef EVAL_EVAL_DEVICE_H
#define EVAL_EVAL_DEVICE_H

#include "tensor/device.h"

/* *out is a GPU, or NULL for the CPU. name: NULL, "cpu" and "ref" are the CPU; "auto" takes a GPU where there
 * is one and the work (floating point operations) outweighs starting it; "cuda" and "cuda:1" take it or fail.
 * The caller closes it. */
cloob_status eval_device_open(cloob_ctx *ctx, const char *name, double flops, device **out);

#endif
