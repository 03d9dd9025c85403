/* Linear probe: L2-regularised multinomial logistic regression on fixed features.
 *
 *     objective(W, b) = sum_n -ln softmax(W x_n + b)_{y_n} + lambda/2 |W|^2        (the bias b is not penalised)
 *
 * Minimised by L-BFGS (eval/probe/lbfgs.h). Features are read in blocks from a mapped file; logits exist for one block
 * at a time. Small problems are computed in double; large ones in float, with losses summed and parameters kept in
 * double. */
#ifndef EVAL_PROBE_PROBE_H
#define EVAL_PROBE_PROBE_H

#include "eval/metrics.h"
#include "eval/rows.h"
#include "eval/evaluate.h"

/* Features and labels of one split; borrowed. */
typedef struct probe_data {
    rows x;
    const int64_t *y; /* (N) */
} probe_data;

typedef struct probe_fit {
    double lambda, objective;
    double coef_norm; /* |W| */
    int iterations, evaluations;
    bool converged;
} probe_fit;

/* A classifier: w (C, D + 1), the last column is the bias; classes are those of the training labels. */
typedef struct probe_model {
    int64_t C, D;
    double *w;         /* owned */
    label_set classes; /* owned */
} probe_model;

void probe_model_release(probe_model *m);

/* The resources that training will need. */
typedef struct probe_plan {
    int64_t N, D, C;
    int64_t block_rows, blocks;
    bool wide;             /* computed in double */
    int64_t memory_bytes;  /* everything allocated during training */
    int64_t feature_bytes; /* mapped, not allocated */
    double flops;          /* of one evaluation of the objective and its gradient */
} probe_plan;

probe_plan probe_plan_make(const probe_data *train, int64_t classes, int threads);

/* Checks features (finite) and labels (two classes at least) and trains. Several splits are trained on as if they were
 * one. Of the options max_iterations and tolerance (see lbfgs_options; 0: 1e-3, for small problems see
 * docs/reference/evaluation.md) are used. start: parameters to begin from (C, D + 1) of the same classes, or NULL for
 * zeros. On success *m is owned by the caller. Not converging within max_iterations is not an error; see
 * fit->converged. */
cloob_status probe_train(cloob_ctx *ctx, probe_model *m, probe_fit *fit, const probe_data *part, int parts,
                         double lambda, const double *start, const cloob_probe_options *o);

/* Answers on a split. Rows of classes that training never saw are counted as wrong (accuracy.unknown). t is
 * made by accuracy_init with m->C classes; adds. */
cloob_status probe_score(cloob_ctx *ctx, accuracy_counts *t, const probe_model *m, const probe_data *data);

/* A whole linear probe: plan, search, final training, accuracies; types and meaning in cloob/eval.h. */

/* val may be NULL. out is released by cloob_probe_release, also after a failure. */
cloob_status probe_run(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o, const probe_data *train,
                       const probe_data *val, const probe_data *test);

/* Probes trained on a few rows of each class, drawn several times. */

/* Rows of the training split: `shots` of each class, the first of a permutation that the seed draws for the class.
 * chosen: holds shots times the number of classes; *n of them, in the order of the classes. A class with fewer rows
 * is refused. */
cloob_status few_shot_choose(cloob_ctx *ctx, const probe_data *train, int64_t shots, uint64_t seed, int64_t *chosen,
                             int64_t *n);

cloob_status few_shot_run(cloob_ctx *ctx, few_shot_result *out, const few_shot_options *o, const probe_data *train,
                          const probe_data *val, const probe_data *test);

#endif
