/* NCCL's deadline without a GPU: nccl.c itself, over a runtime and a library that are flags. Rank 1 never comes, so an
 * exchange hangs until the communicator is aborted. */
#include "check.h"

#include <pthread.h>
#include <time.h>

#include "tensor/cuda/vendor.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs, peer_comes;
    int aborted, destroyed;
} gpu = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void set_hangs(bool hangs)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.hangs = hangs;
    pthread_cond_broadcast(&gpu.changed);
    pthread_mutex_unlock(&gpu.lock);
}

static cudaError_t fake_wait(void)
{
    pthread_mutex_lock(&gpu.lock);
    while (gpu.hangs) pthread_cond_wait(&gpu.changed, &gpu.lock);
    pthread_mutex_unlock(&gpu.lock);
    return cudaSuccess;
}

static cudaError_t fake_query(void)
{
    pthread_mutex_lock(&gpu.lock);
    bool hangs = gpu.hangs;
    pthread_mutex_unlock(&gpu.lock);
    return hangs ? cudaErrorNotReady : cudaSuccess;
}

#include "core/shared_object.h"
#include "dist/comm_impl.h"

#define cudaEventRecord(event, stream)                        ((void)(stream), cudaSuccess)
#define cudaStreamWaitEvent(stream, event, flags)             ((void)(stream), cudaSuccess)
#define cudaEventQuery(event)                                 fake_query()
#define cudaStreamSynchronize(stream)                         fake_wait()
#define cudaDeviceGetStreamPriorityRange(low, high)           (*(low) = *(high) = 0, cudaSuccess)
#define cudaStreamCreateWithPriority(stream, flags, priority) (*(stream) = NULL, cudaSuccess)
#define cudaEventCreateWithFlags(event, flags)                (*(event) = NULL, cudaSuccess)
#define cudaGetDevice(device)                                 (*(device) = 0, cudaSuccess)
#define cudaSetDevice(device)                                 ((void)(device))
#define cudaEventDestroy(event)                               ((void)(event))
#define cudaStreamDestroy(stream)                             ((void)(stream))
#define cudaGetErrorString(code)                              "an error"
#define shared_object_use                                     fake_library
#define comm_nccl_open                                        open_over_fakes
static cloob_status fake_library(cloob_ctx *ctx, shared_object *o);
cloob_status open_over_fakes(cloob_ctx *ctx, comm *c);
#include "../../src/dist/nccl.c"

static ncclResult_t fake_id(ncclUniqueId *id) { return memset(id, 1, sizeof *id), ncclSuccess; }

static ncclResult_t fake_init(ncclComm_t *c, int size, ncclUniqueId id, int rank)
{
    (void)id;
    *c = (ncclComm_t)&gpu;
    return size == 2 && rank == 0 ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t fake_sum(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                             cudaStream_t stream)
{
    (void)send, (void)recv, (void)n, (void)type, (void)op, (void)c, (void)stream;
    set_hangs(!gpu.peer_comes);
    return ncclSuccess;
}

static ncclResult_t fake_error(ncclComm_t c, ncclResult_t *error) { return (void)c, *error = ncclSuccess, ncclSuccess; }
static ncclResult_t fake_abort(ncclComm_t c) { return (void)c, gpu.aborted++, set_hangs(false), ncclSuccess; }
static ncclResult_t fake_destroy(ncclComm_t c) { return (void)c, gpu.destroyed++, ncclSuccess; }

static cloob_status fake_library(cloob_ctx *ctx, shared_object *o)
{
    (void)ctx, (void)o;
    nccl.ncclGetUniqueId = fake_id, nccl.ncclCommInitRank = fake_init, nccl.ncclAllReduce = fake_sum;
    nccl.ncclCommGetAsyncError = fake_error, nccl.ncclCommAbort = fake_abort, nccl.ncclCommDestroy = fake_destroy;
    return CLOOB_OK;
}

/* ---- the ranks in host memory: rank 1 does not answer --------------------------------------------- */

static cloob_status host_broadcast(cloob_ctx *ctx, comm *c, void *data, int64_t n, cloob_dtype type, int root)
{
    (void)ctx, (void)c, (void)data, (void)n, (void)type, (void)root;
    return CLOOB_OK;
}

static cloob_status host_barrier(cloob_ctx *ctx, comm *c)
{
    if (gpu.peer_comes) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_PEER, "rank 1 of 2 did not respond in %g s", c->timeout);
}

static cloob_ctx *ctx;
static const comm_ops host_ops = { .broadcast = host_broadcast, .barrier = host_barrier };

static void a_rank_that_does_not_come_is_named(void)
{
    float x[4] = { 0 };
    comm_request request;
    comm host = { .ops = &host_ops, .size = 2, .timeout = 0.5 }, c = { .base = &host, .size = 2 };
    CHECK_OK(ctx, open_over_fakes(ctx, &c));
    gpu.peer_comes = true;
    CHECK_OK(ctx, comm_all_reduce(ctx, &c, x, 4, CLOOB_F32));
    CHECK_OK(ctx, comm_barrier(ctx, &c));
    gpu.peer_comes = false;
    CHECK_OK(ctx, comm_all_reduce_begin(ctx, &c, x, 4, CLOOB_F32, NULL, &request));
    CHECK_OK(ctx, comm_all_reduce_wait(ctx, &c, &request)); /* queued: the host does not wait */
    CHECK(cudaStreamSynchronize(NULL) == cudaSuccess);      /* it does here, until the deadline */
    CHECK(gpu.aborted == 1);
    CHECK(comm_barrier(ctx, &c) == CLOOB_ERR_PEER);
    CHECK(strstr(cloob_error(ctx), "rank 1 of 2") && comm_has_lost(&c) && comm_has_lost(&host));
    CHECK(comm_all_reduce(ctx, &c, x, 4, CLOOB_F32) == CLOOB_ERR_PEER);
    c.ops->destroy(&c);
    CHECK(gpu.destroyed == 0); /* an aborted communicator is gone already */
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(a_rank_that_does_not_come_is_named);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
