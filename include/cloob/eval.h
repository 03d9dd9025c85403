/* Evaluation of embeddings: retrieval, linear probes, the analysis of the paper. Numbers in,
 * numbers out; nothing here needs a model.
 *
 *     cloob_matrix image = { x, CLOOB_F32, n, d, "image" }, text = { y, CLOOB_F32, n, d, "text" };
 *     cloob_retrieval r;
 *     cloob_retrieve(ctx, &r, &image, &text, NULL);
 *
 * Rows are read in blocks; no call holds anything of N x N in memory.
 * Texts that come back as char * are freed with free(). */
#ifndef CLOOB_EVAL_H
#define CLOOB_EVAL_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embeddings ------------------------------------------------------------------------- */

/* rows x columns values of F32, F16, BF16 or F64; borrowed. */
typedef struct cloob_matrix {
    const void *data;
    cloob_dtype dtype;
    int64_t rows, columns;
    const char *name; /* for messages */
} cloob_matrix;

/* ---- retrieval ----------------------------------------------------------------------------------- */

typedef struct cloob_retrieval_side {
    double recall1, recall5, recall10; /* shares, 0 to 1 */
    double mean_rank;
    double median_rank; /* rounded down when two middle ranks differ, as open_clip does */
    double mrr;         /* mean reciprocal rank */
    int64_t tied;       /* queries whose partner is exactly as similar as some other candidate */
} cloob_retrieval_side;

typedef struct cloob_retrieval {
    int64_t pairs;         /* of an image and a text that belong together */
    int64_t images, texts; /* candidates of each side; more texts than images where images have several captions */
    int64_t queries; /* of each side that were ranked: all pairs, unless fewer were asked for. With several captions
                              per image: the images that have one; of texts all */
    int64_t scaled;  /* rows that were not of unit length and were made so */
    cloob_retrieval_side image_to_text, text_to_image;
} cloob_retrieval;

typedef struct cloob_retrieve_options {
    int64_t queries;    /* 0: every pair is ranked; else so many, evenly spread, each among all candidates */
    const char *device; /* "auto" (a GPU where there is one and the work is worth it), "cpu", "cuda", "cuda:1" */
    /* (text rows) which image each text belongs to: any number of captions per image, as Flickr30k and COCO have them.
     * An image's rank is then that of its best caption. On the CPU, every query. NULL: row i has text i. */
    const int64_t *text_image;
} cloob_retrieve_options;

/* Row i of one belongs to row i of the other, unless the options say otherwise. Ranks count from 1; equal similarities
 * rank by index. options may be NULL: every pair, on the CPU. */
CLOOB_API cloob_status cloob_retrieve(cloob_ctx *ctx, cloob_retrieval *out, const cloob_matrix *image,
                                      const cloob_matrix *text, const cloob_retrieve_options *options);

/* ---- analysis ------------------------------------------------------------------------------------ */

/* One modality. */
typedef struct cloob_coverage {
    double ajne;        /* Ajne's statistic as the paper extends it; small: even over the sphere */
    double uniformity;  /* ln mean exp(-2 |x_i - x_j|^2) over pairs; small: even */
    double *eigenvalue; /* (dimensions) of the covariance, largest first; owned */
    int64_t dimensions;
    int64_t effective; /* how many of the largest make up the share */
    double variance;   /* their sum */
} cloob_coverage;

enum { CLOOB_SIMILARITY_BINS = 200, CLOOB_UNMATCHED_SETS = 3 };

typedef struct cloob_similarity_set {
    int64_t asked, k;                   /* top-`asked` per image; k of them exist: min(asked, pairs - 1) */
    int64_t count;                      /* values in the set */
    double mean, deviation;             /* of all values */
    int64_t bin[CLOOB_SIMILARITY_BINS]; /* bin b counts [b/100 - 1, (b+1)/100 - 1); 1 belongs to the last */
} cloob_similarity_set;

typedef struct cloob_similarity {
    double alignment; /* mean |x_i - y_i|^2 */
    cloob_similarity_set matched;
    cloob_similarity_set unmatched[CLOOB_UNMATCHED_SETS]; /* each image's 10, 100, 1000 nearest foreign texts */
} cloob_similarity;

typedef struct cloob_analysis {
    int64_t rows;
    double share;        /* of the variance, behind `effective` */
    int64_t scaled;      /* rows that were not of unit length and were made so */
    bool paired;         /* y and similarity are there */
    cloob_coverage x, y; /* image, text */
    cloob_similarity similarity;
} cloob_analysis;

/* text may be NULL: one modality alone. share: 0.99 in the paper. Release the result. */
CLOOB_API cloob_status cloob_analyze(cloob_ctx *ctx, cloob_analysis *out, const cloob_matrix *image,
                                     const cloob_matrix *text, double share);
CLOOB_API void cloob_analysis_release(cloob_analysis *a);

/* ---- linear probe -------------------------------------------------------------------------------- */

typedef struct cloob_split {
    cloob_matrix x;
    const int64_t *y; /* (x.rows) */
    /* (classes) what the labels 0 to classes - 1 are called, in splits that number their classes each for itself:
     * classes of the same name are the same then, whatever their numbers. NULL: the numbers decide. */
    const char *const *class_name;
    int64_t classes;
} cloob_split;

typedef struct cloob_probe_options {
    size_t size;        /* of this struct; set by cloob_probe_options_init */
    bool search;        /* find lambda on the validation split, or on half of the training rows */
    double lambda;      /* otherwise this; 0 or more */
    int max_iterations; /* 1000 */
    double tolerance;   /* 0: as fits the size */
    bool refit_all;     /* after a search, train on training and validation rows together, as CLIP does */
    const char *device; /* as for retrieval; NULL: the CPU. Small problems are done in double, on the CPU always */
} cloob_probe_options;

CLOOB_API void cloob_probe_options_init(cloob_probe_options *o); /* search, 1000, 0, refit_all, auto */

typedef struct cloob_probe_trial {
    double lambda, objective, val_acc;
    int iterations;
    bool converged;
} cloob_probe_trial;

enum { CLOOB_PROBE_TRIALS = 32 };

typedef struct cloob_probe_result {
    double lambda, objective, coef_norm; /* of the final training */
    int iterations, evaluations;
    bool converged, has_val;
    double train_acc, val_acc, test_acc;   /* val_acc: of the model trained without the validation rows */
    double test_acc5, test_mean_per_class; /* acc5: among the five largest scores */
    double searched_test_acc;              /* after a search: the same lambda trained without the validation rows */
    int64_t trained_rows, test_rows, dimensions, classes;
    int64_t class_gaps;     /* label values below the largest without a training row */
    int64_t unknown_labels; /* test rows whose class has no training row: wrong, also in the mean over classes */
    int trials;
    cloob_probe_trial trial[CLOOB_PROBE_TRIALS]; /* of the search, in the order tried */
    double *weight;                              /* (classes, dimensions + 1), the last column is the bias; owned */
    int64_t *label;                              /* (classes) their labels; owned */
} cloob_probe_result;

/* val may be NULL. The plan (memory, blocks, work) goes to the log before training. Release the result. Splits whose
 * class names have nothing in common are refused. */
CLOOB_API cloob_status cloob_probe(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o,
                                   const cloob_split *train, const cloob_split *val, const cloob_split *test);
CLOOB_API void cloob_probe_release(cloob_probe_result *r);

/* ---- few shots, neighbours ------------------------------------------------------------------------ */

enum { CLOOB_FEW_SHOT_ROWS = 16, CLOOB_FEW_SHOT_SEEDS = 32 };
#define CLOOB_FEW_SHOT_LAMBDA 1.0 /* where a search is asked for and there is no validation split */

typedef struct cloob_few_shot_options {
    const int64_t *shots; /* (shots_count) rows of each class, such as 1, 2, 4, 8, 16 */
    int64_t shots_count, seeds;
    uint64_t seed;             /* of the first draw; the others count on */
    cloob_probe_options probe; /* a search needs a validation split, which is not trained on */
} cloob_few_shot_options;

typedef struct cloob_few_shot_draw {
    double lambda, test_acc, test_acc5, test_mean_per_class;
} cloob_few_shot_draw;

typedef struct cloob_few_shot_row {
    int64_t shots;
    double mean, deviation; /* of test_acc over the draws */
    cloob_few_shot_draw draw[CLOOB_FEW_SHOT_SEEDS];
} cloob_few_shot_row;

typedef struct cloob_few_shot_result {
    int64_t rows, seeds;
    cloob_few_shot_row row[CLOOB_FEW_SHOT_ROWS];
} cloob_few_shot_result;

/* val may be NULL. A class with fewer training rows than shots is refused. */
CLOOB_API cloob_status cloob_few_shot(cloob_ctx *ctx, cloob_few_shot_result *out, const cloob_few_shot_options *o,
                                      const cloob_split *train, const cloob_split *val, const cloob_split *test);

typedef struct cloob_knn_result {
    int64_t k, train_rows, test_rows;
    double test_acc, test_mean_per_class;
} cloob_knn_result;

/* The class that most of the k nearest training rows have, by cosine; of classes with equal votes the one whose
 * neighbours are more similar in sum. */
CLOOB_API cloob_status cloob_knn(cloob_ctx *ctx, cloob_knn_result *out, int64_t k, const cloob_split *train,
                                 const cloob_split *test);

#ifdef __cplusplus
}
#endif
#endif
