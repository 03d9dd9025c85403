/* Launchers and the variables in which they say who we are. */
#include <stdlib.h>
#include <string.h>

#include "dist/comm.h"

typedef struct launcher {
    const char *name, *rank, *size, *local_rank;
} launcher;

/* In the order of trust: mpirun inside a Slurm job sets its own beside Slurm's. */
static const launcher launchers[] = {
    { "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK" },
    { "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK" },
    { "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID" },
};

/* -1 when absent, -2 when not a number. */
static int env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return -1;
    long v = strtol(text, &end, 10);
    return *end || v < 0 || v > 1 << 24 ? -2 : (int)v;
}

/* An interactive Slurm shell also has SLURM_PROCID; only a step started by srun has the launch node's
 * address. */
static bool applies(const launcher *l)
{
    if (env_number(l->rank) == -1 || env_number(l->size) == -1) return false;
    return strcmp(l->name, "srun") != 0 || getenv("SLURM_STEP_ID") != NULL;
}

cloob_status comm_env_read(cloob_ctx *ctx, comm_env *env)
{
    *env = (comm_env){ "", 0, 1, 0 };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if (!applies(l)) continue;
        *env = (comm_env){ l->name, env_number(l->rank), env_number(l->size), env_number(l->local_rank) };
        if (env->rank < 0 || env->size < 1 || env->rank >= env->size)
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s=%s, %s=%s: not a rank among a number of ranks", l->rank,
                            getenv(l->rank), l->size, getenv(l->size));
        if (env->local_rank < 0) env->local_rank = 0;
        return CLOOB_OK;
    }
    return CLOOB_OK;
}
