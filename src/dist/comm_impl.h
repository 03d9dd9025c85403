/* The table behind a communicator. Private to src/dist. */
#ifndef DIST_COMM_IMPL_H
#define DIST_COMM_IMPL_H

#include "dist/comm.h"

/* As in comm.h; size is above one whenever these are called (NCCL excepted). */
typedef struct comm_ops {
    cloob_status (*all_gather)(cloob_ctx *, comm *, const void *, void *, const int64_t *, cloob_dtype);
    cloob_status (*reduce_scatter)(cloob_ctx *, comm *, void *, void *, const int64_t *, cloob_dtype);
    cloob_status (*all_reduce)(cloob_ctx *, comm *, void *, int64_t, cloob_dtype);
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
    comm *base;     /* NCCL: the host communicator of the same ranks; not owned unless owns_base */
    bool owns_base;
    void *stream; /* NCCL: what data calls belong to */
    void *state;  /* of the ops */
};

/* MPI has no binary interface that its implementations share, so mpi.c is a library of its own, libcloob-mpi.so, linked
 * to the MPI it was built with and loaded when a launcher started the process. `version` is the caller's: the two share
 * the structs above. */
typedef cloob_status comm_mpi_open_fn(cloob_ctx *ctx, const char *version, const comm_env *env, comm *c);
__attribute__((visibility("default"))) comm_mpi_open_fn cloob_mpi_open;

/* Defined in nccl.c or nccl_absent.c. */
cloob_status comm_nccl_open(cloob_ctx *ctx, comm *c);

#endif
