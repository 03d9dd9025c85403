/* Evaluation of matrices (cloob/eval.h) beyond the public interface: the analysis of the paper, few-shot probes and
 * nearest neighbours. */
#ifndef EVAL_EVALUATE_H
#define EVAL_EVALUATE_H

#include "cloob/eval.h"

/* ---- analysis ------------------------------------------------------------------------------------ */

/* One modality. */
typedef struct coverage {
    double ajne;        /* Ajne's statistic in the paper's extension; smaller: more uniform on the sphere */
    double uniformity;  /* ln mean exp(-2 |x_i - x_j|^2) over pairs; smaller: more uniform */
    double *eigenvalue; /* (dimensions) of the covariance, largest first */
    int64_t dimensions;
    int64_t effective; /* number of the largest eigenvalues that make up the share */
    double variance;   /* sum of all eigenvalues */
} coverage;

enum { SIMILARITY_BINS = 200, UNMATCHED_SETS = 3 };

typedef struct similarity_set {
    int64_t asked, k;             /* requested texts per image; used: min(asked, pairs - 1) */
    int64_t count;                /* values in the set */
    double mean, deviation;       /* of all values */
    int64_t bin[SIMILARITY_BINS]; /* bin b counts [b/100 - 1, (b+1)/100 - 1); the last includes 1 */
} similarity_set;

typedef struct pair_similarity {
    double alignment; /* mean |x_i - y_i|^2 */
    similarity_set matched;
    similarity_set unmatched[UNMATCHED_SETS]; /* each image's 10, 100, 1000 nearest non-matching texts */
} pair_similarity;

typedef struct embedding_analysis {
    int64_t rows;
    double share;   /* share of the variance that defines `effective` */
    int64_t scaled; /* rows that were not of unit length and were normalised */
    bool paired;    /* y and similarity are filled */
    coverage x, y;  /* image, text */
    pair_similarity similarity;
} embedding_analysis;

/* text may be NULL: one modality only. share: 0.99 in the paper. The caller releases *out. */
cloob_status analyze_matrices(cloob_ctx *ctx, embedding_analysis *out, const cloob_matrix *image,
                              const cloob_matrix *text, double share);
void analysis_release(embedding_analysis *a);

/* ---- few-shot probes, nearest neighbours ----------------------------------------------------------- */

enum { FEW_SHOT_ROWS = 16, FEW_SHOT_SEEDS = 32 };
#define FEW_SHOT_LAMBDA 1.0 /* used for a search without a validation split */

typedef struct few_shot_options {
    const int64_t *shots; /* (shots_count) rows per class, such as 1, 2, 4, 8, 16 */
    int64_t shots_count, seeds;
    uint64_t seed;             /* of the first draw; the next draws use seed + 1, seed + 2, ... */
    cloob_probe_options probe; /* a search needs a validation split, which is not used for training */
} few_shot_options;

typedef struct few_shot_draw {
    double lambda, test_acc, test_acc5, test_mean_per_class;
} few_shot_draw;

typedef struct few_shot_row {
    int64_t shots;
    double mean, deviation; /* of test_acc over the draws */
    few_shot_draw draw[FEW_SHOT_SEEDS];
} few_shot_row;

typedef struct few_shot_result {
    int64_t rows, seeds;
    few_shot_row row[FEW_SHOT_ROWS];
} few_shot_result;

/* Fits a probe for every number of shots and every draw. val may be NULL. Fails if a class has fewer training rows
 * than shots. */
cloob_status few_shot_probe(cloob_ctx *ctx, few_shot_result *out, const few_shot_options *o, const cloob_split *train,
                            const cloob_split *val, const cloob_split *test);

typedef struct knn_result {
    int64_t k, train_rows, test_rows;
    double test_acc, test_mean_per_class;
} knn_result;

/* Classifies each test row by the majority of its k nearest training rows by cosine. Ties go to the class with the
 * largest sum of similarities. */
cloob_status knn_classify(cloob_ctx *ctx, knn_result *out, int64_t k, const cloob_split *train,
                          const cloob_split *test);

#endif
