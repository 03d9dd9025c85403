/* Zero-shot classification: assigns an image to the class whose prompts are most similar to it.
 *
 *     cloob_classifier *c;
 *     const char *labels[] = { "cat", "dog" };
 *     float p[2];
 *     cloob_classifier_create(ctx, m, labels, 2, NULL, 0, &c);
 *     cloob_classify(ctx, c, image, 1, p);                     image: (1, D) from cloob_encode_files
 *     cloob_classifier_destroy(c);
 *
 * The weight of a class is the mean of its prompts' unit embeddings, normalised to unit length. */
#ifndef CLOOB_ZEROSHOT_H
#define CLOOB_ZEROSHOT_H

#include "cloob/data.h"
#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classification of images ------------------------------------------------------------------ */

typedef struct cloob_classifier cloob_classifier; /* read-only; independent of the model once created */

/* Creates a classifier for at least two labels. Each template has {} in place of the label; without templates:
 * "a photo of a {}.". The caller destroys *out. Fails if a template has no {}. */
CLOOB_API cloob_status cloob_classifier_create(cloob_ctx *ctx, cloob_model *m, const char *const *label, int64_t labels,
                                               const char *const *templates, int64_t template_count,
                                               cloob_classifier **out);
CLOOB_API void cloob_classifier_destroy(cloob_classifier *c); /* c may be NULL */

/* Computes p (n, labels), the softmax of the model's inverse temperature times the cosines. image: (n, D); rows need
 * not have unit length, but must not be zero. */
CLOOB_API cloob_status cloob_classify(cloob_ctx *ctx, const cloob_classifier *c, const float *image, int64_t n,
                                      float *p);

/* ---- accuracy on a data set ---------------------------------------------------------------------- */

typedef struct cloob_prompts cloob_prompts; /* class names and templates; read-only */

/* Parses JSON: {"NAME": {"classes": [...], "templates": ["a photo of a {}."], "metric": "accuracy"}, ...}.
 * The caller closes *out. Fails with CLOOB_ERR_FORMAT if the text is not such an object. */
CLOOB_API cloob_status cloob_prompts_parse(cloob_ctx *ctx, const char *text, size_t bytes, cloob_prompts **out);
CLOOB_API void cloob_prompts_close(cloob_prompts *p); /* p may be NULL */

typedef struct cloob_zeroshot_options {
    size_t size;                  /* of this struct; set by cloob_zeroshot_options_init */
    const cloob_prompts *prompts; /* NULL: the class names of the data and "a photo of a {}." */
    int64_t set;                  /* index of the prompt set */
    CLOOB_OPTIONS_INSIDE(cloob_eval_options, eval,
                         128); /* with `retrieve`, prompts and images are replaced by their retrievals */
    /* File that maps folders to classes of the prompts. Each line is FOLDER, tab or comma, CLASS; CLASS|CLASS accepts
     * any of them. Only these classes compete, as for ImageNet-R, -A, -Sketch, -V2 and ObjectNet. NULL: folders match
     * classes by name, number or order. */
    const char *class_map;
    bool predictions, confusion; /* fill these members of the result */
} cloob_zeroshot_options;

CLOOB_OPTIONS_INIT(cloob_zeroshot_options)

typedef struct cloob_zeroshot_class {
    char *name;
    int64_t n, hit1, hit5;
} cloob_zeroshot_class;

typedef struct cloob_zeroshot_prediction {
    char *image;              /* its name in the data set */
    int64_t label, predicted; /* positions in `row` */
    double p;                 /* probability of the predicted class, as cloob_classify computes it */
    int64_t rank;             /* of the true class among all classes by score; 1: predicted */
} cloob_zeroshot_prediction;

typedef struct cloob_zeroshot_result {
    double top1, top5;                     /* shares of n */
    double mean_per_class;                 /* over the classes that have images */
    int64_t n, bad;                        /* images counted; unreadable images, not counted */
    bool wants_mean_per_class;             /* the metric of the prompt set is mean_per_class, not top1 */
    cloob_zeroshot_class *row;             /* (classes) */
    int64_t classes, empty;                /* empty: classes without an image */
    cloob_zeroshot_prediction *prediction; /* (n) in the order of the data; NULL: not requested */
    int64_t *confusion;                    /* (classes, classes) true x predicted; NULL: not requested */
} cloob_zeroshot_result;

/* Measures the accuracy on a data set; o may be NULL. Classes of the data match prompt classes by name, else by order;
 * fails if they do not match. The caller releases *out. */
CLOOB_API cloob_status cloob_zeroshot(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d,
                                      const cloob_zeroshot_options *o, cloob_zeroshot_result *out);
CLOOB_API void cloob_zeroshot_release(cloob_zeroshot_result *r); /* r may be NULL */

#ifdef __cplusplus
}
#endif
#endif
