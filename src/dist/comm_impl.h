/* The table behind a communicator. Private to src/dist. */
#ifndef DIST_COMM_IMPL_H
#define DIST_COMM_IMPL_H

#include "dist/comm.h"

/* As in comm.h; size is above one whenever these are called (NCCL excepted). */
typedef struct comm_ops {
    cloob_status (*all_gather)(cloob_ctx *, comm *, const void *, void *, const int64_t *, cloob_dtype);
    cloob_status (*reduce_scatter)(cloob_ctx *, comm *, void *, void *, const int64_t *, cloob_dtype);
    cloob_status (*begin)(cloob_ctx *, comm *, void *, int64_t, cloob_dtype, void *, comm_request *);
    cloob_status (*wait)(cloob_ctx *, comm *, comm_request *);
    cloob_status (*broadcast)(cloob_ctx *, comm *, void *, int64_t, cloob_dtype, int);
    cloob_status (*barrier)(cloob_ctx *, comm *);
    void (*answer)(comm *); /* NULL: nothing to answer */
    void (*abort)(comm *);
    void (*destroy)(comm *);
} comm_ops;

struct comm {
    const comm_ops *ops; /* NULL: one process in host memory */
    int rank, size, local_rank;
    double timeout; /* seconds without an answer from a rank that the others wait for; 0: no limit */
    bool lost;      /* a rank did not answer in that time */
    bool stuck;     /* an exchange in GPU memory was stopped by its deadline; read and written atomically */
    comm *base;     /* NCCL: the host communicator of the same ranks; not owned */
    void *stream;   /* NCCL: the stream of data calls */
    void *state;    /* of the ops */
};

/* MPI has no binary interface that its implementations share, so mpi.c is a library of its own, libcloob-mpi.so, linked
 * to the MPI it was built with and loaded when a launcher started the process. `version` is the caller's: the two share
 * the structs above. */
typedef cloob_status comm_mpi_open_fn(cloob_ctx *ctx, const char *version, const comm_env *env, comm *c);
__attribute__((visibility("default"))) comm_mpi_open_fn cloob_mpi_open;

/* ---- the deadline of queued exchanges (watch.c) --------------------------------------------- */

typedef struct comm_watch comm_watch;
typedef enum comm_progress { COMM_RUNS, COMM_ENDED, COMM_FAILED } comm_progress;

/* A thread that calls look while exchanges are pending and, when they have not ended in base's timeout or have
 * failed, marks base as stuck and calls stop, which must let blocked calls of the other thread return. Both are called
 * from that thread; look is called with the lock held, so it must not block. */
cloob_status comm_watch_start(cloob_ctx *ctx, comm *base, comm_progress (*look)(void *user), void (*stop)(void *user),
                              void *user, comm_watch **out);
/* Around the calls that begin exchanges. enter fails with CLOOB_ERR_PEER after stop, and names the ranks that do not
 * answer. NULL is valid: no deadline. */
cloob_status comm_watch_enter(cloob_ctx *ctx, comm_watch *w);
void comm_watch_leave(comm_watch *w);
bool comm_watch_end(comm_watch *w); /* whether stop was called */

/* The error of a communicator that is stuck. Its ranks meet once more in host memory, so that those that do not come
 * can be named: within a minute, or base's timeout where that is less. */
cloob_status comm_name_stuck(cloob_ctx *ctx, comm *base);

/* Defined in nccl.c or nccl_absent.c. */
cloob_status comm_nccl_open(cloob_ctx *ctx, comm *c);

#endif
