/* Life cycle, size one, and the dispatch to MPI or NCCL. */
#include <stdlib.h>
#include <string.h>

#include "core/shared_object.h"
#include "dist/comm_impl.h"
#include "tensor/tensor.h"

int comm_rank(const comm *c) { return c ? c->rank : 0; }
int comm_size(const comm *c) { return c ? c->size : 1; }
int comm_local_rank(const comm *c) { return c ? c->local_rank : 0; }

#ifndef CLOOB_MPI_PATH /* the build names a folder that the dynamic linker does not search */
#    define CLOOB_MPI_PATH NULL
#endif

static comm_mpi_open_fn *mpi_open;
static const shared_function mpi_functions[] = { { "cloob_mpi_open", (void **)&mpi_open }, { NULL, NULL } };
static shared_object mpi_library = { .file = { "libcloob-mpi.so", CLOOB_MPI_PATH },
                                     .functions = mpi_functions,
                                     .install = "MPI and the package cloob-mpi, or build cloob next to the MPI of this "
                                                "machine (docs/packaging.md)" };
SHARED_LISTED(mpi_library)

static cloob_status open_ranks(cloob_ctx *ctx, comm *c)
{
    comm_env env;
    CLOOB_TRY(comm_env_read(ctx, &env));
    c->local_rank = env.local_rank;
    if (env.size == 1) return CLOOB_OK;
    if (strcmp(env.launcher, "torchrun") == 0)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "started by torchrun as rank %d of %d: torchrun starts no MPI; use mpirun or srun", env.rank,
                        env.size);
    cloob_status status = shared_object_use(ctx, &mpi_library);
    if (status == CLOOB_OK) return mpi_open(ctx, CLOOB_VERSION, &env, c);
    return ctx_wrap(ctx, status, "started by %s as rank %d of %d", env.launcher, env.rank, env.size);
}

/* base NULL: the ranks of the environment. */
static cloob_status create(cloob_ctx *ctx, comm *base, comm **out)
{
    comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return ctx_no_memory(ctx, sizeof *c, "a communicator");
    c->size = 1, c->timeout = 600;
    if (base) c->base = base, c->rank = base->rank, c->size = base->size, c->local_rank = base->local_rank;
    cloob_status status = base ? comm_nccl_open(ctx, c) : open_ranks(ctx, c);
    if (status != CLOOB_OK) free(c);
    else *out = c;
    return status;
}

cloob_status comm_create(cloob_ctx *ctx, comm **out) { return create(ctx, NULL, out); }
cloob_status comm_create_nccl(cloob_ctx *ctx, comm *base, comm **out) { return create(ctx, base, out); }

void comm_destroy(comm *c)
{
    if (!c) return;
    if (c->ops) c->ops->destroy(c);
    free(c);
}

void comm_set_stream(comm *c, void *stream)
{
    if (c) c->stream = stream;
}

static bool alone(const comm *c) { return !c || !c->ops; }

cloob_status comm_all_gather(cloob_ctx *ctx, comm *c, const void *send, void *recv, const int64_t *count,
                             cloob_dtype dtype)
{
    if (!alone(c)) return c->ops->all_gather(ctx, c, send, recv, count, dtype);
    if (send != recv) memcpy(recv, send, (size_t)count[0] * dtype_size(dtype));
    return CLOOB_OK;
}

cloob_status comm_reduce_scatter(cloob_ctx *ctx, comm *c, void *send, void *recv, const int64_t *count,
                                 cloob_dtype dtype)
{
    if (!alone(c)) return c->ops->reduce_scatter(ctx, c, send, recv, count, dtype);
    if (send != recv) memcpy(recv, send, (size_t)count[0] * dtype_size(dtype));
    return CLOOB_OK;
}

cloob_status comm_all_reduce(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype)
{
    if (c && __atomic_load_n(&c->stuck, __ATOMIC_ACQUIRE)) return comm_name_stuck(ctx, c);
    comm_request request;
    CLOOB_TRY(comm_all_reduce_begin(ctx, c, data, count, dtype, c ? c->stream : NULL, &request));
    return comm_all_reduce_wait(ctx, c, &request);
}

cloob_status comm_all_reduce_begin(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, void *after,
                                   comm_request *request)
{
    *request = (comm_request){ NULL, after };
    return alone(c) ? CLOOB_OK : c->ops->begin(ctx, c, data, count, dtype, after, request);
}

cloob_status comm_all_reduce_wait(cloob_ctx *ctx, comm *c, comm_request *request)
{
    return alone(c) || !request->handle ? CLOOB_OK : c->ops->wait(ctx, c, request);
}

cloob_status comm_broadcast(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, int root)
{
    return alone(c) ? CLOOB_OK : c->ops->broadcast(ctx, c, data, count, dtype, root);
}

cloob_status comm_barrier(cloob_ctx *ctx, comm *c) { return alone(c) ? CLOOB_OK : c->ops->barrier(ctx, c); }

static comm *host_side(comm *c) { return c && c->base ? c->base : c; }

void comm_set_timeout(comm *c, double seconds)
{
    if (c) host_side(c)->timeout = seconds;
}

void comm_answer(comm *c)
{
    comm *host = host_side(c);
    if (!alone(host) && host->ops->answer) host->ops->answer(host);
}

cloob_status comm_name_stuck(cloob_ctx *ctx, comm *base)
{
    double timeout = base->timeout, patience = timeout > 60 || timeout <= 0 ? 60 : timeout;
    if (base->lost) return CLOOB_ERR_PEER; /* the first error text is kept */
    __atomic_store_n(&base->stuck, false, __ATOMIC_RELAXED);
    base->timeout = patience;
    cloob_status status = alone(base) ? CLOOB_OK : base->ops->barrier(ctx, base);
    base->timeout = timeout, base->lost = true;
    if (status != CLOOB_OK) return status;
    return ctx_fail(ctx, CLOOB_ERR_PEER,
                    "rank %d of %d: an exchange between GPUs failed or did not end in %g s, although every rank "
                    "responds; `collective_timeout` sets how long ranks wait",
                    base->rank, base->size, timeout);
}

bool comm_has_lost(const comm *c) { return c && (c->lost || (c->base && c->base->lost)); }

cloob_status comm_host_sum(cloob_ctx *ctx, comm *c, int64_t *data, int64_t count)
{
    return comm_all_reduce(ctx, host_side(c), data, count, CLOOB_I64);
}

cloob_status comm_host_sum_f64(cloob_ctx *ctx, comm *c, double *data, int64_t count)
{
    return comm_all_reduce(ctx, host_side(c), data, count, CLOOB_F64);
}

cloob_status comm_agree(cloob_ctx *ctx, comm *c, cloob_status mine)
{
    comm *host = host_side(c);
    if (alone(host)) return mine;
    /* The lowest failing rank, from sums: every rank adds to its own cell. */
    double *failed = calloc((size_t)host->size, sizeof *failed);
    if (!failed) return mine != CLOOB_OK ? mine : ctx_no_memory(ctx, (size_t)host->size * 8, "an agreement");
    failed[host->rank] = mine != CLOOB_OK;
    cloob_status status = comm_all_reduce(ctx, host, failed, host->size, CLOOB_F64);
    int first = 0;
    while (first < host->size && failed[first] == 0) first++;
    free(failed);
    if (mine != CLOOB_OK) return mine;
    if (status != CLOOB_OK || first == host->size) return status;
    return ctx_fail(ctx, CLOOB_ERR_PEER, "rank %d of %d failed; see its own message", first, host->size);
}

void comm_abort(cloob_ctx *ctx, comm *c, const char *text)
{
    comm *host = host_side(c);
    ctx_log(ctx, CLOOB_LOG_WARN, "rank %d: %s; ending all %d ranks", comm_rank(c), text, comm_size(c));
    if (!alone(host)) host->ops->abort(host);
}

/* ---- launchers --------------------------------------------------------------------------------- */

typedef struct launcher {
    const char *name, *rank, *size, *local_rank;
} launcher;

/* The first match wins: mpirun inside a Slurm job sets its own variables in addition to Slurm's. */
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
            return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "%s=%s, %s=%s: not a valid rank and number of ranks", l->rank,
                            getenv(l->rank), l->size, getenv(l->size));
        if (env->local_rank < 0) env->local_rank = 0;
        return CLOOB_OK;
    }
    return CLOOB_OK;
}
