/* Ranks over MPI, in host memory: the library libcloob-mpi.so (comm_impl.h). MPI counts are ints, so long buffers go in
 * pieces.
 *
 * Every exchange is started, then waited for with a deadline. After half of it this rank pings the others over a
 * separate communicator: one byte to each, which waiting ranks answer at once. A rank that has not answered at the
 * deadline is named in the error. When all have answered, the wait starts again: a rank is busy but alive. */
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/sbuf.h"
#include "dist/comm_impl.h"
#include "tensor/tensor.h"

enum { PIECE = 1 << 28 }; /* elements per message */

typedef struct mpi_state {
    MPI_Comm world, life; /* life: pings and answers only */
    bool *heard;          /* (size): ranks that answered the last ping */
} mpi_state;

/* MPI belongs to the process and starts once. If this file started it, it ends with the process, so that one run may
 * follow another; not while a communicator is open, because its peers may have failed. */
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

/* ---- waiting -------------------------------------------------------------------------------------- */

enum { TAG_QUESTION = 1, TAG_ANSWER };

static void send_byte(comm *c, int rank, int tag)
{
    static const char byte = 0; /* small enough to be sent without waiting for the receiver */
    MPI_Request r;
    if (MPI_Isend(&byte, 1, MPI_CHAR, rank, tag, ((mpi_state *)c->state)->life, &r) == MPI_SUCCESS)
        MPI_Request_free(&r);
}

/* Receives a message of send_byte and returns its sender; -1: none. */
static int take_byte(comm *c, int tag)
{
    MPI_Comm life = ((mpi_state *)c->state)->life;
    MPI_Status from;
    int there = 0;
    char byte;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, life, &there, &from) != MPI_SUCCESS || !there) return -1;
    MPI_Recv(&byte, 1, MPI_CHAR, from.MPI_SOURCE, tag, life, MPI_STATUS_IGNORE);
    return from.MPI_SOURCE;
}

static void answer_pings(comm *c)
{
    for (int r; (r = take_byte(c, TAG_QUESTION)) >= 0;) send_byte(c, r, TAG_ANSWER);
}

static void send_pings(comm *c)
{
    mpi_state *s = c->state;
    while (take_byte(c, TAG_ANSWER) >= 0) continue; /* to an earlier ping */
    for (int r = 0; r < c->size; r++) {
        s->heard[r] = r == c->rank;
        if (r != c->rank) send_byte(c, r, TAG_QUESTION);
    }
}

/* Names the ranks that did not answer; CLOOB_OK: all did. */
static cloob_status check_silent(cloob_ctx *ctx, comm *c, const char *what)
{
    const mpi_state *s = c->state;
    sbuf names = { 0 };
    for (int r = 0; r < c->size; r++)
        if (!s->heard[r]) sbuf_printf(&names, "%s%d", names.len ? ", " : "", r);
    if (!names.len) return CLOOB_OK;
    c->lost = true;
    ctx_fail(ctx, CLOOB_ERR_PEER,
             "rank %s of %d did not respond while the others waited %g s in a %s: it is stopped, hangs or has no "
             "network; `collective_timeout` sets how long they wait",
             names.data, c->size, c->timeout, what);
    sbuf_release(&names);
    return CLOOB_ERR_PEER;
}

/* The end of an exchange that was begun. */
static cloob_status finish(cloob_ctx *ctx, comm *c, MPI_Request *request, const char *what)
{
    enum { TRIES = 64 }; /* between two readings of the clock */
    double begun = clock_seconds();
    bool asked = false;
    if (c->lost) return CLOOB_ERR_PEER; /* the first error text is kept */
    for (int tries = 1;; tries++) {
        int done = 0;
        CLOOB_TRY(mpi_check(ctx, c, MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
        if (done) return CLOOB_OK;
        if (tries % TRIES) continue;
        sched_yield(); /* ranks may share a core */
        if (c->timeout <= 0) continue;
        answer_pings(c);
        double waited = clock_seconds() - begun;
        if (!asked && waited > c->timeout / 2) send_pings(c), asked = true;
        for (int r; asked && (r = take_byte(c, TAG_ANSWER)) >= 0;) ((mpi_state *)c->state)->heard[r] = true;
        if (waited <= c->timeout) continue;
        CLOOB_TRY(check_silent(ctx, c, what));
        begun = clock_seconds(), asked = false;
    }
}

/* Completes an exchange; code: what the MPI call that began it returned. */
static cloob_status complete(cloob_ctx *ctx, comm *c, int code, MPI_Request *request, const char *what)
{
    CLOOB_TRY(mpi_check(ctx, c, code, what));
    return finish(ctx, c, request, what);
}

/* ---- exchanges ------------------------------------------------------------------------------------ */

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
    for (int64_t at = 0; at < count; at += PIECE) {
        MPI_Request r;
        int code = MPI_Ibcast((char *)data + (size_t)at * dtype_size(dtype), piece(count - at), type_of(dtype), root,
                              world(c), &r);
        CLOOB_TRY(complete(ctx, c, code, &r, "broadcast"));
    }
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
            MPI_Request q;
            int code = MPI_Ireduce(root && from == to ? MPI_IN_PLACE : from, root ? to : NULL, piece(count[r] - at),
                                   type_of(dtype), MPI_SUM, r, world(c), &q);
            CLOOB_TRY(complete(ctx, c, code, &q, "reduce-scatter"));
        }
    return CLOOB_OK;
}

static cloob_status wait(cloob_ctx *ctx, comm *c, comm_request *request)
{
    cloob_status status = finish(ctx, c, request->handle, "sum");
    free(request->handle);
    request->handle = NULL;
    return status;
}

/* Waits for all pieces but the last. */
static cloob_status begin(cloob_ctx *ctx, comm *c, void *data, int64_t count, cloob_dtype dtype, void *after,
                          comm_request *request)
{
    CLOOB_TRY(check_summable(ctx, dtype));
    for (; count > PIECE; count -= PIECE, data = (char *)data + PIECE * dtype_size(dtype)) {
        CLOOB_TRY(begin(ctx, c, data, PIECE, dtype, after, request));
        CLOOB_TRY(wait(ctx, c, request));
    }
    MPI_Request *r = malloc(sizeof *r);
    if (!r) return ctx_no_memory(ctx, sizeof *r, "a sum");
    int code = MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, type_of(dtype), MPI_SUM, world(c), r);
    if (code != MPI_SUCCESS) free(r);
    else request->handle = r;
    return mpi_check(ctx, c, code, "sum");
}

static cloob_status barrier(cloob_ctx *ctx, comm *c)
{
    MPI_Request r;
    int code = MPI_Ibarrier(world(c), &r);
    return complete(ctx, c, code, &r, "barrier");
}

static void abort_all(comm *c) { MPI_Abort(world(c), 1); }

static void destroy(comm *c)
{
    mpi_state *s = c->state;
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized && !c->lost) MPI_Comm_free(&s->world), MPI_Comm_free(&s->life);
    if (!c->lost) open_comms--; /* MPI_Finalize would wait for the lost rank */
    free(s->heard);
    free(s);
}

static void end_mpi(void)
{
    int finalized;
    MPI_Finalized(&finalized);
    if (!finalized && open_comms == 0) MPI_Finalize();
}

static const comm_ops ops = { .all_gather = all_gather,
                              .reduce_scatter = reduce_scatter,
                              .begin = begin,
                              .wait = wait,
                              .broadcast = broadcast,
                              .barrier = barrier,
                              .answer = answer_pings,
                              .abort = abort_all,
                              .destroy = destroy };

static cloob_status start(cloob_ctx *ctx)
{
    int initialized, finalized, level;
    MPI_Finalized(&finalized);
    if (finalized) return ctx_fail(ctx, CLOOB_ERR_PEER, "MPI was already ended in this process and cannot start twice");
    MPI_Initialized(&initialized);
    if (initialized) return CLOOB_OK;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return ctx_fail(ctx, CLOOB_ERR_PEER, "MPI could not start");
    atexit(end_mpi); /* if that fails, the launcher reports that MPI was not finalized */
    return CLOOB_OK;
}

cloob_status cloob_mpi_open(cloob_ctx *ctx, const char *version, const comm_env *env, comm *c)
{
    if (strcmp(version, CLOOB_VERSION) != 0)
        return ctx_fail(ctx, CLOOB_ERR_UNSUPPORTED,
                        "libcloob-mpi.so belongs to cloob %s, not %s; install the same version of both", CLOOB_VERSION,
                        version);
    mpi_state *s = calloc(1, sizeof *s);
    if (!s) return ctx_no_memory(ctx, sizeof *s, "a communicator");
    cloob_status status = start(ctx);
    if (status == CLOOB_OK) status = mpi_check(ctx, c, MPI_Comm_dup(MPI_COMM_WORLD, &s->world), "start");
    if (status == CLOOB_OK) status = mpi_check(ctx, c, MPI_Comm_dup(MPI_COMM_WORLD, &s->life), "start");
    if (status == CLOOB_OK) {
        MPI_Comm_set_errhandler(s->world, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(s->life, MPI_ERRORS_RETURN);
        MPI_Comm_rank(s->world, &c->rank);
        MPI_Comm_size(s->world, &c->size);
        s->heard = calloc((size_t)c->size, sizeof *s->heard);
        if (!s->heard) status = ctx_no_memory(ctx, (size_t)c->size, "a communicator");
    }
    if (status != CLOOB_OK) {
        free(s);
        return status;
    }
    open_comms++;
    c->state = s;
    c->ops = &ops;
    if (c->size == env->size) return CLOOB_OK;
    status = ctx_fail(ctx, CLOOB_ERR_PEER, "%s reports %d ranks, MPI %d: launcher and MPI library do not match",
                      env->launcher, env->size, c->size);
    destroy(c);
    c->ops = NULL;
    return status;
}
