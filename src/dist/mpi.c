/* Ranks over MPI, in host memory. MPI counts are ints, so long buffers go in pieces. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "dist/comm_impl.h"
#include "tensor/tensor.h"

enum { PIECE = 1 << 28 }; /* elements per message */

typedef struct mpi_state {
    MPI_Comm world;
} mpi_state;

/* MPI belongs to the process and starts once. What we started ends with the process, so that one run may follow
 * another; not while a communicator is open, as its peers may have failed and would be waited for. */
static int open_comms;

static MPI_Comm world(comm *c) { return ((mpi_state *)c->state)->world; }

/* code: what an MPI call returned. */
static cloob_status mpi_check(cloob_ctx *ctx, const comm *c, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown";
    int length;
    if (code == MPI_SUCCESS) return CLOOB_OK;
    MPI_Error_string(code, text, &length);
    return ctx_fail(ctx, CLOOB_ERR_PEER, "rank %d of %d: %s failed: %s", c->rank, c->size, what, text);
}

static MPI_Datatype type_of(cloob_dtype d)
{
    switch (dtype_size(d)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return d == CLOOB_F32 ? MPI_FLOAT : MPI_INT32_T;
    default: return d == CLOOB_F64 ? MPI_DOUBLE : MPI_INT64_T;
    }
}

static cloob_status check_summable(cloob_ctx *ctx, cloob_dtype d)
{
    if (d == CLOOB_F32 || d == CLOOB_F64 || d == CLOOB_I64) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "sums over ranks are for F32, F64 and I64, not %s", dtype_name(d));
}

static int piece(int64_t left) { return left < PIECE ? (int)left : PIECE; }

static cloob_status broadcast(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, int root)
{
    for (int64_t at = 0; at < count; at += PIECE)
        CLOOB_TRY(mpi_check(ctx, c,
                            MPI_Bcast((char *)data + (size_t)at * dtype_size(dtype), piece(count - at), type_of(dtype),
                                      root, world(c)),
                            "broadcast"));
    return CLOOB_OK;
}

/* One broadcast per rank: as fast as a gather for long parts, and no limit on the total. */
static cloob_status all_gather(cloob_ctx *ctx, comm *c, const void *send, void *recv, const int64_t *count,
                               cloob_dtype dtype)
{
    char *at = recv;
    for (int r = 0; r < c->size; at += (size_t)count[r] * dtype_size(dtype), r++) {
        if (r == c->rank && at != send && count[r] > 0) memmove(at, send, (size_t)count[r] * dtype_size(dtype));
        CLOOB_TRY(broadcast(ctx, c, at, count[r], dtype, r));
    }
    return CLOOB_OK;
}

/* One reduction per part, to its owner. */
static cloob_status reduce_scatter(cloob_ctx *ctx, comm *c, void *send, void *recv, const int64_t *count,
                                   cloob_dtype dtype)
{
    size_t size = dtype_size(dtype);
    CLOOB_TRY(check_summable(ctx, dtype));
    char *part = send;
    for (int r = 0; r < c->size; part += (size_t)count[r] * size, r++)
        for (int64_t at = 0; at < count[r]; at += PIECE) {
            char *from = part + (size_t)at * size, *to = (char *)recv + (size_t)at * size;
            bool root = r == c->rank;
            CLOOB_TRY(mpi_check(ctx, c,
                                MPI_Reduce(root && from == to ? MPI_IN_PLACE : from, root ? to : NULL,
                                           piece(count[r] - at), type_of(dtype), MPI_SUM, r, world(c)),
                                "reduce-scatter"));
        }
    return CLOOB_OK;
}

static cloob_status all_reduce(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype)
{
    CLOOB_TRY(check_summable(ctx, dtype));
    for (int64_t at = 0; at < count; at += PIECE)
        CLOOB_TRY(mpi_check(ctx, c,
                            MPI_Allreduce(MPI_IN_PLACE, (char *)data + (size_t)at * dtype_size(dtype),
                                          piece(count - at), type_of(dtype), MPI_SUM, world(c)),
                            "all-reduce"));
    return CLOOB_OK;
}

static cloob_status begin(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, void *after,
                          comm_request *request)
{
    (void)after;
    CLOOB_TRY(check_summable(ctx, dtype));
    if (count > PIECE) return all_reduce(ctx, c, data, count, dtype);
    MPI_Request *r = malloc(sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, "an all-reduce");
    int code = MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, type_of(dtype), MPI_SUM, world(c), r);
    if (code != MPI_SUCCESS) free(r);
    else request->handle = r;
    return mpi_check(ctx, c, code, "all-reduce");
}

static cloob_status wait(cloob_ctx *ctx, comm *c, comm_request *request)
{
    int code = MPI_Wait(request->handle, MPI_STATUS_IGNORE);
    free(request->handle);
    request->handle = NULL;
    return mpi_check(ctx, c, code, "all-reduce");
}

static cloob_status barrier(cloob_ctx *ctx, comm *c) { return mpi_check(ctx, c, MPI_Barrier(world(c)), "barrier"); }

static void abort_all(comm *c) { MPI_Abort(world(c), 1); }

static void destroy(comm *c)
{
    mpi_state *s = c->state;
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Comm_free(&s->world);
    open_comms--;
    free(s);
}

static void end_mpi(void)
{
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized && open_comms == 0) MPI_Finalize();
}

static const comm_ops ops = { all_gather, reduce_scatter, all_reduce, begin,  wait,
                              broadcast,  barrier,        abort_all,  destroy };

static cloob_status start(cloob_ctx *ctx)
{
    int initialized, finalized, level;
    MPI_Finalized(&finalized);
    if (finalized) return ctx_fail(ctx, CLOOB_ERR_PEER, "MPI was already ended in this process and cannot start twice");
    MPI_Initialized(&initialized);
    if (initialized) return CLOOB_OK;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_PEER, "MPI could not start");
    atexit(end_mpi); /* where that cannot be registered, the launcher tells that MPI was not ended */
    return CLOOB_OK;
}

cloob_status comm_mpi_open(cloob_ctx *ctx, const comm_env *env, comm *c)
{
    mpi_state *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a communicator");
    cloob_status status = start(ctx);
    if (status == CLOOB_OK) status = mpi_check(ctx, c, MPI_Comm_dup(MPI_COMM_WORLD, &s->world), "start");
    if (status != CLOOB_OK) {
        free(s);
        return status;
    }
    open_comms++;
    MPI_Comm_set_errhandler(s->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(s->world, &c->rank);
    MPI_Comm_size(s->world, &c->size);
    c->state = s;
    c->ops = &ops;
    if (c->size == env->size) return CLOOB_OK;
    status = ctx_fail(ctx, CLOOB_ERR_PEER, "%s says %d ranks, MPI says %d: launcher and MPI library do not match",
                      env->launcher, env->size, c->size);
    destroy(c);
    c->ops = NULL;
    return status;
}
