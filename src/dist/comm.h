/* Communication between the ranks of a run, behind one interface: one process, MPI between CPUs, NCCL between GPUs.
 *
 * Every function but rank and size queries is collective: all ranks call it, in the same order, with matching counts. A
 * communicator of size one copies where the others exchange, so there is one code path. With NCCL (comm_create_nccl)
 * the buffers of data calls are device memory; with the others host memory. The order of sums depends only on the
 * number of ranks.
 *
 * Data calls of NCCL are queued and return: they follow the work that the stream of comm_set_stream holds so far, and
 * that stream waits for them. Only comm_barrier blocks the host, so data calls can be captured into a graph once the
 * communicator exists.
 *
 *     comm *c;
 *     CLOOB_TRY(comm_create(ctx, &c));
 *     CLOOB_TRY(comm_all_reduce(ctx, c, sums, 4, CLOOB_F64));
 *     comm_destroy(c);
 */
#ifndef DIST_COMM_H
#define DIST_COMM_H

#include "core/ctx.h"

typedef struct comm comm;

/* The launcher's environment variables; see comm_env_read. */
typedef struct comm_env {
    const char *launcher; /* "mpirun", "srun", "torchrun", or "" when started alone */
    int rank, size;
    int local_rank; /* among the ranks of this machine: which GPU to take */
} comm_env;

/* Reads the environment of mpirun (Open MPI, and PMI launchers), srun and torchrun. Fails when the values are
 * inconsistent. Not collective. */
cloob_status comm_env_read(cloob_ctx *ctx, comm_env *env);

/* The ranks of the launcher's environment over MPI, or this process alone. On failure *out is NULL.
 * CLOOB_ERR_UNSUPPORTED for several ranks in a build without MPI. */
cloob_status comm_create(cloob_ctx *ctx, comm **out);
/* A second communicator over the same ranks that moves device memory, bound to the CUDA device that is current in this
 * thread; base outlives it. */
cloob_status comm_create_nccl(cloob_ctx *ctx, comm *base, comm **out);
void comm_destroy(comm *c); /* NULL is valid; the communicator that started MPI ends it */

/* How many seconds the ranks wait in an exchange for a rank that does not answer: stopped, hanging, or on a machine
 * that is down. Then the exchange fails on the others with CLOOB_ERR_PEER and an error that names the rank. 0: no
 * limit; the default is 600. A rank answers while it waits, or by comm_answer, which a rank that the others wait for
 * calls regularly, from the thread that exchanges. Exchanges in GPU memory are stopped after that time, since a rank
 * that is blocked behind them cannot answer: the next call, or the next sum in host memory, fails and names the ranks
 * that do not answer. Creating the communicator itself has no deadline. */
void comm_set_timeout(comm *c, double seconds);
void comm_answer(comm *c);
bool comm_has_lost(const comm *c); /* an exchange timed out: all further exchanges fail; comm_abort ends the ranks */

/* NCCL: the cudaStream_t that data calls belong to, NULL for the default one. Nothing for the others. */
void comm_set_stream(comm *c, void *stream);

int comm_rank(const comm *c);
int comm_size(const comm *c);
int comm_local_rank(const comm *c);

/* recv holds the ranks' parts one after the other; part r has count[r] elements. send may be the caller's
 * own part inside recv. dtype: any. */
cloob_status comm_all_gather(cloob_ctx *ctx, comm *c, const void *send, void *recv, const int64_t *count,
                             cloob_dtype dtype);

/* recv (count[rank] elements) = the caller's part of the sum over ranks of send (all parts). F32 or F64.
 * recv may be the caller's own part inside send. send may be changed. */
cloob_status comm_reduce_scatter(cloob_ctx *ctx, comm *c, void *send, void *recv, const int64_t *count,
                                 cloob_dtype dtype);

/* data = its sum over ranks, in place. F32, F64, I64. */
cloob_status comm_all_reduce(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype);

/* The same, while the caller computes. data must not change between begin and wait; several may be in progress, started
 * and waited for in the same order on every rank. `after` (NCCL) is the cudaStream_t whose work so far makes the data,
 * NULL for the default; wait makes that stream wait, not the host. */
typedef struct comm_request {
    void *handle; /* the communicator's own */
    void *stream;
} comm_request;
cloob_status comm_all_reduce_begin(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, void *after,
                                   comm_request *request);
cloob_status comm_all_reduce_wait(cloob_ctx *ctx, comm *c, comm_request *request);

cloob_status comm_broadcast(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, int root);
cloob_status comm_barrier(cloob_ctx *ctx, comm *c);

/* The same for a few host numbers, also when c moves device memory. */
cloob_status comm_host_sum(cloob_ctx *ctx, comm *c, int64_t *data, int64_t count);
cloob_status comm_host_sum_f64(cloob_ctx *ctx, comm *c, double *data, int64_t count);

/* Collective agreement on success: every rank gets CLOOB_OK only if all passed CLOOB_OK. A rank that was
 * fine gets CLOOB_ERR_PEER and a text that names the first rank that was not. */
cloob_status comm_agree(cloob_ctx *ctx, comm *c, cloob_status mine);

/* Ends every rank of the run after logging "rank R: text". For failures after which the ranks can no longer
 * meet. With several ranks it does not return. */
void comm_abort(cloob_ctx *ctx, comm *c, const char *text);

#endif
