/* The probe's objective and its preconditioner, for the minimiser. Computed in double, by blocks of rows; on a GPU value
 * and gradient are computed in float. */
#ifndef EVAL_PROBE_PROBE_OBJECTIVE_H
#define EVAL_PROBE_PROBE_OBJECTIVE_H

#include "eval/probe/lbfgs.h"
#include "eval/probe/probe.h"

typedef struct objective {
    cloob_ctx *ctx;
    const probe_data *part; /* borrowed, like y: (N over all parts) class positions 0..C-1 */
    int parts;
    const int32_t *y;
    int64_t N, D, C, block;
    double lambda;
    probe_gpu *gpu;   /* NULL: the CPU */
    bool newton;      /* M is the whole Hessian, (C(D+1), C(D+1)); otherwise its average over classes, (D+1, D+1) */
    void *memory;     /* behind what follows */
    float *read;      /* (block, D) rows as they are stored */
    double *x, *z;    /* (block, D), (block, C) a block's rows and logits */
    double *weighted; /* (block, D+1) rows that are summed into M */
    double *M;        /* its inverse after `prepare` */
    float *uncertain; /* (N) 1 - sum p^2 at the last evaluation */
    double last_f;    /* when M was made */
    int since;        /* iterations since then */
} objective;

/* gpu may be NULL; a small problem (probe_is_small) does not use it. */
cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts, const int32_t *y,
                              int64_t C, double lambda, probe_gpu *gpu);
void objective_destroy(objective *o);

/* The problem for lbfgs_minimize; valid while o is. */
lbfgs_problem objective_problem(objective *o);

/* Bytes on the host that objective_create takes, and how many rows it computes at a time. */
size_t objective_bytes(int64_t N, int64_t D, int64_t C, int64_t *block_rows);

/* Softmax cross entropy of rows of logits, on the context's threads. z: (n, C) logits on entry, the gradient
 * p - onehot(y) on return. uncertain: (n) 1 - sum p^2 of each row, or NULL. Returns the sum of -ln p_y; the order of
 * summation depends on n and the threads only. */
double softmax_loss(cloob_ctx *ctx, double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C);

#endif
