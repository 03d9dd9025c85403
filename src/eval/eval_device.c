#include "eval/eval_device.h"

#include <string.h>

static const double WORTH_A_GPU = 2e11; /* a second of two cores; a GPU takes as long to start */

cloob_status eval_device_open(cloob_ctx *ctx, const char *name, double flops, device **out)
{
    *out = NULL;
    if (!name || strcmp(name, "cpu") == 0 || strcmp(name, "ref") == 0) return CLOOB_OK;
    if (strcmp(name, "auto") == 0 && (flops < WORTH_A_GPU || device_cuda_count() == 0)) return CLOOB_OK;
    CLOOB_TRY(device_open(ctx, name, out));
    if ((*out)->backend == BACKEND_CUDA) return CLOOB_OK;
    device_close(*out);
    *out = NULL;
    return CLOOB_OK;
}
