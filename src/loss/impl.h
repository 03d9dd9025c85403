/* Internals of a plan. Private to src/loss. */
#ifndef LOSS_IMPL_H
#define LOSS_IMPL_H

#include "loss/loss.h"

struct loss_plan {
    loss_options o;
    loss_shape s;
    comm *c;
    int rank, size;
    int64_t total, first; /* N over all ranks; where this rank's rows begin */
    int64_t *elements;    /* rows * dim of each rank: the counts of gathers */
    bool hopfield, leave_one_out, sigmoid, cross;
    int gpu_generation; /* kernel_choices */
    void *memory;       /* the backend's workspace: host (ref, cpu) or device */
    size_t bytes;
    void *device; /* the cuda backend's own */
};

/* A workspace carved into pieces; with base NULL, only the size is computed. */
typedef struct carver {
    char *base;
    size_t used;
} carver;

static inline void *carve_aligned(carver *c, size_t bytes, size_t align)
{
    char *p = c->base ? c->base + c->used : NULL;
    c->used += (bytes + align - 1) / align * align;
    return p;
}

typedef struct loss_engine {
    /* Sizes p->memory for the scales and shape in p, larger if need be. Not collective. */
    cloob_status (*prepare)(cloob_ctx *, loss_plan *);
    cloob_status (*check)(cloob_ctx *, loss_plan *, const loss_inputs *, void *stream);
    cloob_status (*run)(cloob_ctx *, loss_plan *, const loss_inputs *, const loss_outputs *, void *stream,
                        loss_result *);
    void (*release)(loss_plan *);
    size_t (*bytes)(const loss_plan *); /* what prepare would take in all */
    /* a run in two parts (queue, collect) on one rank, or NULL. */
    cloob_status (*queue)(cloob_ctx *, loss_plan *, const loss_inputs *, const loss_outputs *, void *stream);
    cloob_status (*collect)(cloob_ctx *, loss_plan *, loss_result *);
} loss_engine;

extern const loss_engine loss_engine_ref, loss_engine_cpu, loss_engine_cuda;

/* How far from 1 a row's length may be: the rounding of the type, with a margin for imprecise norms. */
double loss_unit_tolerance(cloob_dtype dtype);

/* "x: row 17 has length 0.5, ..." row is counted over all ranks. */
cloob_status loss_fail_row(cloob_ctx *ctx, const char *name, int64_t row, double length);
/* A retrieval of length 0 has no direction. */
cloob_status loss_fail_retrieval(cloob_ctx *ctx, const char *states, const char *stored, int64_t row);

/* For ref and cpu: every row of x, y, U, V. */
cloob_status loss_check_host(cloob_ctx *ctx, loss_plan *p, const loss_inputs *in, void *stream);

/* A batch so small that every backend uses the definition: rounding would not average out, and launching a tile takes
 * longer than computing it. */
bool loss_is_tiny(const loss_plan *p);

/* The largest number of rows: of the batch and the stored sets. */
int64_t loss_longest(const loss_plan *p);
/* A batch whose scores and retrievals are summed in double on the host: the rounding of a single f32 score shows in the
 * loss, and the time is negligible. */
bool loss_is_small(const loss_plan *p);
/* A batch that the cuda backend computes on the host: a tiny one, or a small one in f32, on one rank. */
bool loss_is_hosted(const loss_plan *p);

/* Where the gradient of a stored set is added: the caller's memory; with several ranks `sum`; dx or dy if the batch is
 * stored. */
float *loss_dstored(const loss_plan *p, const loss_outputs *out, bool text, float *sum);

/* lse: the leave-one-out log-sum-exp of one anchor, pos: its positive. InfoLOOB's value is lse - pos; InfoNCE
 * is softplus of that, and its gradient InfoLOOB's times weight = 1 - p1, p1 the positive's softmax. */
double loss_row_value(double lse, double pos, bool leave_one_out, double *weight);

#endif
