/* Zero-shot classification: classes are named in words, and an image goes to the class whose prompts are
 * nearest.
 *
 *     cloob_classifier *c;
 *     const char *labels[] = { "cat", "dog" };
 *     float p[2];
 *     cloob_classifier_create(ctx, m, labels, 2, NULL, 0, &c);
 *     cloob_classify(ctx, c, image, 1, p);                     image: (1, D) from cloob_encode_files
 *     cloob_classifier_destroy(c);
 *
 * A class's weight: all its prompts at unit length, their mean, at unit length again. */
#ifndef CLOOB_ZEROSHOT_H
#define CLOOB_ZEROSHOT_H

#include "cloob/data.h"
#include "cloob/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a classifier for one's own images --------------------------------------------------------- */

typedef struct cloob_classifier cloob_classifier; /* read-only once made; independent of the model */

/* labels: at least two. Each template holds {} where the label goes; none: "a photo of a {}.". */
CLOOB_API cloob_status cloob_classifier_create(cloob_ctx *ctx, cloob_model *m, const char *const *label, int64_t labels,
                                               const char *const *templates, int64_t template_count,
                                               cloob_classifier **out);
CLOOB_API void cloob_classifier_destroy(cloob_classifier *c);

/* p (n, labels) = softmax of the model's inverse temperature times the cosines; image: (n, D) rows of any
 * length but zero. */
CLOOB_API cloob_status cloob_classify(cloob_ctx *ctx, const cloob_classifier *c, const float *image, int64_t n,
                                      float *p);

/* ---- accuracy on a data set ---------------------------------------------------------------------- */

typedef struct cloob_prompts cloob_prompts; /* class names and templates */

typedef struct cloob_zeroshot_options {
    size_t size;                  /* of this struct; set by cloob_zeroshot_options_init */
    const cloob_prompts *prompts; /* NULL: the data's own class names and "a photo of a {}." */
    int64_t set;                  /* of the prompts */
    cloob_eval_options eval;      /* with `retrieve`, prompts and images are replaced by what they retrieve */
    const char
        *class_map; /* a file that says which classes of the prompts the folders are, FOLDER, tab or comma, CLASS, a
                              line each (CLASS|CLASS: any of them): accuracy is then among those classes alone, as on
                              ImageNet-R, -A, -Sketch, -V2 and ObjectNet. NULL: by name, number or order */
    bool predictions, confusion; /* fill those of the result */
} cloob_zeroshot_options;

CLOOB_API void cloob_zeroshot_options_init(cloob_zeroshot_options *o);

typedef struct cloob_zeroshot_class {
    char *name;
    int64_t n, hit1, hit5;
} cloob_zeroshot_class;

typedef struct cloob_zeroshot_prediction {
    char *image;              /* its name in the data set */
    int64_t label, predicted; /* positions in `row` */
    double p;                 /* of the predicted class: softmax of the model's inverse temperature times the cosines */
} cloob_zeroshot_prediction;

typedef struct cloob_zeroshot_result {
    double top1, top5;                     /* shares of n */
    double mean_per_class;                 /* of the classes that have images */
    int64_t n, bad;                        /* images counted, and left out because they cannot be read */
    bool wants_mean_per_class;             /* which of them the prompt set reports */
    cloob_zeroshot_class *row;             /* (classes); owned */
    int64_t classes, empty;                /* empty: without an image */
    cloob_zeroshot_prediction *prediction; /* (n) in the order of the data; NULL: not asked for; owned */
    int64_t *confusion;                    /* (classes, classes) true x predicted; NULL: not asked for; owned */
} cloob_zeroshot_result;

/* o may be NULL. Classes of the data go to prompts by name, else by order; what does not fit is refused. */
CLOOB_API cloob_status cloob_zeroshot(cloob_ctx *ctx, cloob_model *m, const cloob_dataset *d,
                                      const cloob_zeroshot_options *o, cloob_zeroshot_result *out);
CLOOB_API void cloob_zeroshot_release(cloob_zeroshot_result *r);

#ifdef __cplusplus
}
#endif
#endif
