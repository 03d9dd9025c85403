/* The probe's objective and its preconditioners; for probe*.c only. */
#ifndef EVAL_PROBE_PROBE_OBJECTIVE_H
#define EVAL_PROBE_PROBE_OBJECTIVE_H

#include "core/arena.h"
#include "eval/probe/lbfgs.h"
#include "eval/probe/probe.h"

enum {
    SAMPLE_BLOCK = 1024,     /* rows of a preconditioner's block */
    MIN_SAMPLE = 4096,       /* rows of the sample: at least this many, or */
    SAMPLE_PER_DIMENSION = 4 /* this many per dimension */
};

static inline int64_t objective_sample_rows(int64_t D)
{
    return SAMPLE_PER_DIMENSION * (D + 1) < MIN_SAMPLE ? MIN_SAMPLE : SAMPLE_PER_DIMENSION * (D + 1);
}

typedef struct objective {
    cloob_ctx *ctx;
    const probe_data *part; /* borrowed, like y: (N over all parts) class positions 0..C-1 */
    int parts;
    const int32_t *y;
    int64_t N, D, C, block;
    double lambda;
    bool wide;   /* computed in double, block by block */
    bool exact;  /* preconditioned by the whole Hessian: M is (C(D+1))^2 */
    int threads; /* that work in float; each has its block of features and logits and its gradient */
    arena memory;
    size_t bytes;                  /* taken from it */
    bool counts;                   /* only counts bytes */
    float *x, *z, *w, *G;          /* (threads, block, D), (threads, block, C); (C, D+1) weights; (threads, C, D+1) */
    double *xd, *zd, *Gd;          /* the same in double, once, where wide */
    float *uncertain;              /* (N) 1 - sum p^2 at the last evaluation */
    float *sample, *Minv, *v, *Mv; /* (SAMPLE_BLOCK, D+1), (D+1, D+1), (C, D+1) twice; not where exact */
    int64_t *row;                  /* (sample rows + 1) which rows are in the sample, and the root of their weight */
    float *root;
    int64_t sampled;
    double *M, *bias_sum; /* (D+1, D+1) or (C(D+1), C(D+1)); (threads, C) */
    double *loss;         /* (threads) */
    double *weighted;     /* (block, D+1) where exact */
    double last_f;        /* when M was made */
    int since;            /* iterations since then */
} objective;

cloob_status objective_create(cloob_ctx *ctx, objective **out, const probe_data *part, int parts, const int32_t *y,
                              int64_t C, double lambda);
void objective_destroy(objective *o);

/* The problem for lbfgs_minimize; valid while o is. */
lbfgs_problem objective_problem(objective *o);

/* Sizes, `bytes` and ways to compute of what objective_create would make; without data. */
objective objective_sizes(int64_t N, int64_t D, int64_t C, int threads);

/* Logits of one block in double, bias included: zd (n, C) = x w' + b; leaves x in xd. */
void objective_logits_double(objective *o, const float *x, const double *w, int64_t n);

/* probe_precondition.c: lbfgs_problem's prepare and precondition. */
cloob_status objective_prepare(void *arg, int iteration, double f, const double *w, bool *forget);
cloob_status objective_precondition(void *arg, double *out, const double *v);

/* Softmax cross entropy over a block of rows. z: (n, C) logits on entry, gradient p - onehot(y) on return. y: (n) in
 * 0..C-1. uncertain: (n) 1 - sum p^2 of each row, or NULL. Return the sum of -ln p_y. */
double softmax_loss_f(float *z, float *uncertain, const int32_t *y, int64_t n, int64_t C);
double softmax_loss_d(double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C);

#endif
