/* The probe's objective and its preconditioners; for probe*.c only. */
#ifndef EVAL_PROBE_OBJECTIVE_H
#define EVAL_PROBE_OBJECTIVE_H

#include "core/arena.h"
#include "eval/lbfgs.h"
#include "eval/probe.h"

enum { SAMPLE_BLOCK = 1024 }; /* rows of a preconditioner's block */

typedef struct objective {
    cloob_ctx *ctx;
    const probe_data *part; /* borrowed, like y: (N over all parts) class positions 0..C-1 */
    int parts;
    const int32_t *y;
    int64_t N, D, C, block;
    double lambda;
    bool wide;  /* computed in double */
    bool exact; /* preconditioned by the whole Hessian: M is (C(D+1))^2 */
    arena memory;
    float *x, *z, *w, *G;          /* a block of features, of logits; weights and gradient in float */
    double *xd, *zd, *Gd;          /* the same in double, where wide */
    float *uncertain;              /* (N) 1 - sum p^2 at the last evaluation */
    float *sample, *Minv, *v, *Mv; /* (SAMPLE_BLOCK, D+1), (D+1, D+1), (C, D+1) twice; not where exact */
    double *M, *bias_sum;          /* (D+1, D+1) or (C(D+1), C(D+1)); (C) */
    double *weighted;              /* (block, D+1) where exact */
    double last_f;                 /* when M was made */
    int since;                     /* iterations since then */
} objective;

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts,
                              const int32_t *y, int64_t C, double lambda);
void objective_destroy(objective *o);

/* The problem for lbfgs_minimize; valid while o is. */
lbfgs_problem objective_problem(objective *o);

/* Bytes that objective_create takes, and how it will compute. */
size_t objective_bytes(int64_t N, int64_t D, int64_t C, bool *wide, int64_t *block_rows);

/* Logits of one block in double, bias included: zd (n, C) = x w' + b; leaves x in xd. */
void objective_logits_wide(objective *o, const float *x, const double *w, int64_t n);

/* probe_precondition.c: lbfgs_problem's prepare and precondition. */
cloob_status objective_prepare(void *arg, int iteration, double f, const double *w, bool *forget);
void objective_precondition(void *arg, double *out, const double *v);

#endif
