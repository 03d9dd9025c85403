/* A build without MPI: one process only. */
#include "dist/comm_impl.h"

cloob_status comm_mpi_open(cloob_ctx *ctx, const comm_env *env, comm *c)
{
    (void)c;
    if (env->size == 1) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                    "started by %s as rank %d of %d, but this build has no MPI: configure with -DCLOOB_WITH_MPI=ON",
                    env->launcher, env->rank, env->size);
}
