/* Evaluation of embeddings: retrieval and linear probes. No call needs a model.
 *
 *     cloob_matrix image = { x, CLOOB_F32, n, d, "image" }, text = { y, CLOOB_F32, n, d, "text" };
 *     cloob_retrieval r;
 *     cloob_retrieve(ctx, &r, &image, &text, NULL);
 *
 * Rows are read in blocks; no call stores an N x N matrix. */
#ifndef CLOOB_EVAL_H
#define CLOOB_EVAL_H

#include "cloob/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row-major matrix (rows, columns) of F32, F16, BF16 or F64; owned by the caller. */
typedef struct cloob_matrix {
    const void *data;
    cloob_dtype dtype;
    int64_t rows, columns;
    const char *name; /* for error messages */
} cloob_matrix;

/* ---- retrieval ----------------------------------------------------------------------------------- */

typedef struct cloob_retrieval_side {
    double recall1, recall5, recall10; /* shares, 0 to 1 */
    double mean_rank;
    double median_rank; /* rounded down if the two middle ranks differ, as in open_clip */
    double mrr;         /* mean reciprocal rank */
    int64_t tied;       /* queries whose partner has exactly the similarity of another candidate */
} cloob_retrieval_side;

typedef struct cloob_retrieval {
    int64_t pairs;         /* matching pairs of an image and a text */
    int64_t images, texts; /* candidates of each side; more texts than images if images have several captions */
    /* Ranked queries of each side: all pairs, or the number in the options. With several captions per image: all texts,
     * and the images that have a caption. */
    int64_t queries;
    int64_t scaled; /* rows that were not of unit length and were normalised */
    cloob_retrieval_side image_to_text, text_to_image;
} cloob_retrieval;

typedef struct cloob_retrieve_options {
    int64_t queries; /* number of evenly spaced pairs to rank, each among all candidates; 0: all */
    /* (text rows) the image of each text, for data with several captions per image, such as Flickr30k and COCO. The
     * rank of an image is then the rank of its best caption; all queries are ranked. NULL: text i matches
     * image i. */
    const int64_t *text_image;
} cloob_retrieve_options;

/* Ranks texts for each image and images for each text. Row i of image matches row i of text, unless options have
 * text_image. Ranks count from 1; equal similarities rank by index. options may be NULL: all pairs. Fails if the
 * matrices do not match, or a row is zero or not finite. */
CLOOB_API cloob_status cloob_retrieve(cloob_ctx *ctx, cloob_retrieval *out, const cloob_matrix *image,
                                      const cloob_matrix *text, const cloob_retrieve_options *options);

/* ---- linear probe -------------------------------------------------------------------------------- */

typedef struct cloob_split {
    cloob_matrix x;
    const int64_t *y; /* (x.rows) */
    /* (classes) names of the labels 0 to classes - 1. Splits may number their classes differently: classes are matched
     * by name. NULL: by number. */
    const char *const *class_name;
    int64_t classes;
} cloob_split;

typedef struct cloob_probe_options {
    size_t size;        /* of this struct; set by cloob_probe_options_init */
    bool search;        /* search lambda on the validation split, or on half of the training rows */
    double lambda;      /* without a search; 0 or more */
    int max_iterations; /* default: 1000 */
    double tolerance;   /* 0: chosen by the size of the problem */
    bool refit_all;     /* after a search, train on training and validation rows together, as CLIP does */
    bool random_half;   /* validate on a random half drawn with `seed`, instead of every other row */
    uint64_t seed;
    bool ties_mean; /* among lambdas with equal accuracy choose the geometric mean, instead of the largest */
} cloob_probe_options;

CLOOB_OPTIONS_INIT(cloob_probe_options) /* search, 1000, 0, refit_all */

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
    double train_acc, val_acc, test_acc;   /* val_acc: trained without the validation rows */
    double test_acc5, test_mean_per_class; /* acc5: among the five largest scores */
    double searched_test_acc;              /* after a search: the same lambda trained without the validation rows */
    int64_t trained_rows, test_rows, dimensions, classes;
    int64_t class_gaps;     /* labels below the largest label that have no training row */
    int64_t unknown_labels; /* test rows whose class has no training row; counted as wrong */
    int trials;
    cloob_probe_trial trial[CLOOB_PROBE_TRIALS]; /* of the search, in order */
    double *weight;                              /* (classes, dimensions + 1); the last column is the bias */
    int64_t *label;                              /* (classes) their labels */
} cloob_probe_result;

/* Fits a linear probe. val may be NULL. The plan (memory, blocks, work) is logged before training. The caller releases
 * *out. Fails if a value is not finite, if the training rows have one class only, or if the splits have class names and
 * no name in common. */
CLOOB_API cloob_status cloob_probe(cloob_ctx *ctx, cloob_probe_result *out, const cloob_probe_options *o,
                                   const cloob_split *train, const cloob_split *val, const cloob_split *test);
CLOOB_API void cloob_probe_release(cloob_probe_result *r); /* r may be NULL */

#ifdef __cplusplus
}
#endif
#endif
