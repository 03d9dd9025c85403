/* A build without NCCL. */
#include "dist/comm_impl.h"

cloob_status comm_nccl_open(cloob_ctx *ctx, comm *c)
{
    (void)c;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "this build has no NCCL; several GPUs need a build with CUDA and nccl.h");
}
