/* Ranks over NCCL, in device memory. MPI (the base communicator) carries the identifier at the start. NCCL has no
 * collectives with uneven parts, so those are groups of broadcasts or reductions, one per rank; inside a group they run
 * together. A missing rank leaves the other GPUs in a kernel that never ends, and their hosts blocked: watch.c stops
 * that kernel at the deadline (ncclCommAbort). */
#include <stdlib.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes" /* the vendor's header */
#include <nccl.h>
#pragma GCC diagnostic pop

#include "dist/comm_impl.h"
#include "tensor/cuda/vendor.h"
#include "core/shared_object.h"
#include "tensor/tensor.h"

/* The library is loaded with the first communicator, so that one GPU needs none. */
/* clang-format off */
#define NCCL_FUNCTIONS(X) \
    X(ncclAllReduce) X(ncclBroadcast) X(ncclCommAbort) X(ncclCommDestroy) X(ncclCommGetAsyncError) \
    X(ncclCommInitRank) X(ncclGetErrorString) X(ncclGetUniqueId) X(ncclGroupEnd) X(ncclGroupStart) X(ncclReduce)
/* clang-format on */
static struct {
    NCCL_FUNCTIONS(SHARED_MEMBER)
} nccl;

#define ROW(name) SHARED_ROW(nccl, name)
static const shared_function nccl_functions[] = { NCCL_FUNCTIONS(ROW){ NULL, NULL } };
static shared_object library = { .file = { "libnccl.so.2" },
                                 .functions = nccl_functions,
                                 .install = "NCCL, or name its folder in LD_LIBRARY_PATH (several GPUs need it)" };
SHARED_LISTED(library)

typedef struct nccl_state {
    ncclComm_t comm;
    cudaStream_t stream; /* of everything here; high priority, so that buckets overtake the backward pass */
    cudaEvent_t mark;    /* a wait captures the event's current state, so one event is enough */
    cudaEvent_t last;    /* the end of the last exchange begun */
    int device;
    comm_watch *watch; /* NULL: one rank */
} nccl_state;

static nccl_state *state(comm *c) { return c->state; }

static cloob_status nccl_check(cloob_ctx *ctx, const comm *c, ncclResult_t code, const char *what)
{
    if (code == ncclSuccess) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_PEER, "rank %d of %d: %s failed: %s", c->rank, c->size, what,
                    nccl.ncclGetErrorString(code));
}

static cloob_status cuda_check(cloob_ctx *ctx, const comm *c, cudaError_t code, const char *what)
{
    if (code == cudaSuccess) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_DEVICE, "rank %d of %d: %s failed: %s", c->rank, c->size, what,
                    cudaGetErrorString(code));
}

static ncclDataType_t type_of(cloob_dtype d)
{
    switch (d) {
    case CLOOB_F32: return ncclFloat32;
    case CLOOB_F64: return ncclFloat64;
    case CLOOB_BF16: return ncclBfloat16;
    case CLOOB_F16: return ncclFloat16;
    case CLOOB_I64: return ncclInt64;
    case CLOOB_I32: return ncclInt32;
    default: return ncclUint8;
    }
}

static size_t elements(int64_t count, cloob_dtype d)
{
    return type_of(d) == ncclUint8 ? (size_t)count * dtype_size(d) : (size_t)count;
}

/* Work queued later on `then` waits for the work now queued on `first`. */
static cloob_status order(cloob_ctx *ctx, comm *c, cudaStream_t first, cudaStream_t then)
{
    cudaError_t code = cudaEventRecord(state(c)->mark, first);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(then, state(c)->mark, 0);
    return cuda_check(ctx, c, code, "ordering streams");
}

/* Reports a failed peer that the call itself did not report. */
static cloob_status check_peers(cloob_ctx *ctx, comm *c, const char *what)
{
    ncclResult_t asynchronous = ncclSuccess;
    CLOOB_TRY(nccl_check(ctx, c, nccl.ncclCommGetAsyncError(state(c)->comm, &asynchronous), what));
    return nccl_check(ctx, c, asynchronous, what);
}

/* Before and after the calls that begin an exchange. */
static cloob_status begin_after(cloob_ctx *ctx, comm *c, void *stream, const char *what)
{
    CLOOB_TRY(comm_watch_enter(ctx, state(c)->watch));
    CLOOB_TRY(check_peers(ctx, c, what));
    return order(ctx, c, (cudaStream_t)stream, state(c)->stream);
}

static cloob_status begun(cloob_ctx *ctx, comm *c)
{
    if (!state(c)->watch) return CLOOB_OK;
    cudaError_t code = cudaEventRecord(state(c)->last, state(c)->stream);
    comm_watch_leave(state(c)->watch);
    return cuda_check(ctx, c, code, "marking the end of an exchange");
}

static cloob_status enter(cloob_ctx *ctx, comm *c, const char *what) { return begin_after(ctx, c, c->stream, what); }

static cloob_status leave(cloob_ctx *ctx, comm *c)
{
    CLOOB_TRY(begun(ctx, c));
    return order(ctx, c, state(c)->stream, (cudaStream_t)c->stream);
}

/* The parts one after the other: part r is broadcast by rank r, or summed by it. */
static cloob_status exchange_parts(cloob_ctx *ctx, comm *c, const void *send, void *recv, const int64_t *count,
                                   cloob_dtype dtype, bool sum)
{
    const char *what = sum ? "reduce-scatter" : "all-gather";
    nccl_state *s = state(c);
    size_t offset = 0;
    CLOOB_TRY(enter(ctx, c, what));
    CLOOB_TRY(nccl_check(ctx, c, nccl.ncclGroupStart(), what));
    for (int r = 0; r < c->size; offset += (size_t)count[r] * dtype_size(dtype), r++) {
        size_t n = elements(count[r], dtype);
        if (!n) continue;
        char *to = sum ? recv : (char *)recv + offset;
        const void *from = sum ? (const char *)send + offset : r == c->rank ? send : to;
        ncclResult_t code = sum ? nccl.ncclReduce(from, to, n, type_of(dtype), ncclSum, r, s->comm, s->stream)
                                : nccl.ncclBroadcast(from, to, n, type_of(dtype), r, s->comm, s->stream);
        CLOOB_TRY(nccl_check(ctx, c, code, what));
    }
    CLOOB_TRY(nccl_check(ctx, c, nccl.ncclGroupEnd(), what));
    return leave(ctx, c);
}

static cloob_status all_gather(cloob_ctx *ctx, comm *c, const void *send, void *recv, const int64_t *count,
                               cloob_dtype dtype)
{
    return exchange_parts(ctx, c, send, recv, count, dtype, false);
}

static cloob_status reduce_scatter(cloob_ctx *ctx, comm *c, void *send, void *recv, const int64_t *count,
                                   cloob_dtype dtype)
{
    return exchange_parts(ctx, c, send, recv, count, dtype, true);
}

static cloob_status begin(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, void *after,
                          comm_request *request)
{
    CLOOB_TRY(begin_after(ctx, c, after, "all-reduce"));
    CLOOB_TRY(nccl_check(ctx, c,
                         nccl.ncclAllReduce(data, data, elements(count, dtype), type_of(dtype), ncclSum, state(c)->comm,
                                            state(c)->stream),
                         "all-reduce"));
    CLOOB_TRY(begun(ctx, c));
    request->handle = state(c); /* not NULL; the stream keeps the order */
    return CLOOB_OK;
}

static cloob_status wait(cloob_ctx *ctx, comm *c, comm_request *request)
{
    request->handle = NULL;
    return order(ctx, c, state(c)->stream, (cudaStream_t)request->stream);
}

static cloob_status broadcast(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, int root)
{
    CLOOB_TRY(enter(ctx, c, "broadcast"));
    CLOOB_TRY(nccl_check(ctx, c,
                         nccl.ncclBroadcast(data, data, elements(count, dtype), type_of(dtype), root, state(c)->comm,
                                            state(c)->stream),
                         "broadcast"));
    return leave(ctx, c);
}

static cloob_status barrier(cloob_ctx *ctx, comm *c)
{
    CLOOB_TRY(cuda_check(ctx, c, cudaStreamSynchronize((cudaStream_t)c->stream), "barrier"));
    CLOOB_TRY(cuda_check(ctx, c, cudaStreamSynchronize(state(c)->stream), "barrier"));
    CLOOB_TRY(comm_watch_enter(ctx, state(c)->watch));
    comm_watch_leave(state(c)->watch);
    CLOOB_TRY(check_peers(ctx, c, "barrier"));
    return comm_barrier(ctx, c->base);
}

static void abort_all(comm *c) { nccl.ncclCommAbort(state(c)->comm); }

/* ---- the deadline --------------------------------------------------------------------------------- */

static comm_progress look(void *user)
{
    nccl_state *s = user;
    ncclResult_t asynchronous = ncclSuccess;
    if (nccl.ncclCommGetAsyncError(s->comm, &asynchronous) != ncclSuccess ||
        (asynchronous != ncclSuccess && asynchronous != ncclInProgress))
        return COMM_FAILED;
    cudaSetDevice(s->device); /* of this thread */
    return cudaEventQuery(s->last) == cudaErrorNotReady ? COMM_RUNS : COMM_ENDED;
}

static void stop(void *user)
{
    nccl_state *s = user;
    nccl.ncclCommAbort(s->comm);
}

static void destroy(comm *c)
{
    bool stopped = comm_watch_end(state(c)->watch);
    cudaStreamSynchronize(state(c)->stream);
    if (!stopped) nccl.ncclCommDestroy(state(c)->comm);
    cudaEventDestroy(state(c)->mark);
    cudaEventDestroy(state(c)->last);
    cudaStreamDestroy(state(c)->stream);
    free(c->state);
}

static const comm_ops ops = { .all_gather = all_gather,
                              .reduce_scatter = reduce_scatter,
                              .begin = begin,
                              .wait = wait,
                              .broadcast = broadcast,
                              .barrier = barrier,
                              .abort = abort_all,
                              .destroy = destroy };

static cloob_status connect(cloob_ctx *ctx, comm *c, nccl_state *s)
{
    ncclUniqueId id;
    int low, high;
    if (c->rank == 0) CLOOB_TRY(nccl_check(ctx, c, nccl.ncclGetUniqueId(&id), "start"));
    CLOOB_TRY(comm_broadcast(ctx, c->base, &id, sizeof id, CLOOB_U8, 0));
    CLOOB_TRY(cuda_check(ctx, c, cudaDeviceGetStreamPriorityRange(&low, &high), "stream"));
    CLOOB_TRY(cuda_check(ctx, c, cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, high), "stream"));
    CLOOB_TRY(cuda_check(ctx, c, cudaEventCreateWithFlags(&s->mark, cudaEventDisableTiming), "event"));
    CLOOB_TRY(cuda_check(ctx, c, cudaEventCreateWithFlags(&s->last, cudaEventDisableTiming), "event"));
    CLOOB_TRY(cuda_check(ctx, c, cudaGetDevice(&s->device), "device"));
    CLOOB_TRY(nccl_check(ctx, c, nccl.ncclCommInitRank(&s->comm, c->size, id, c->rank), "start"));
    return c->size > 1 ? comm_watch_start(ctx, c->base, look, stop, s, &s->watch) : CLOOB_OK;
}

cloob_status comm_nccl_open(cloob_ctx *ctx, comm *c)
{
    CLOOB_TRY(shared_object_use(ctx, &library));
    nccl_state *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a communicator");
    cloob_status status = connect(ctx, c, s);
    if (status != CLOOB_OK) {
        if (s->comm) nccl.ncclCommAbort(s->comm);
        if (s->mark) cudaEventDestroy(s->mark);
        if (s->last) cudaEventDestroy(s->last);
        if (s->stream) cudaStreamDestroy(s->stream);
        free(s);
        return status;
    }
    c->state = s;
    c->ops = &ops;
    return CLOOB_OK;
}
