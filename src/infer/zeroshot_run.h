/* Zero-shot accuracy of a model on a data set with classes, from prompts to the table.
 *
 *     zeroshot z;
 *     zeroshot_run_options o;
 *     zeroshot_run_options_init(&o);
 *     CLOOB_TRY(zeroshot_run(ctx, enc, tok, set, prompts, &o, &z, &bad));
 *     accuracy_result r = accuracy_finish(&z.count);
 *     zeroshot_release(&z);
 */
#ifndef INFER_ZEROSHOT_RUN_H
#define INFER_ZEROSHOT_RUN_H

#include "data/sets/dataset.h"
#include "data/text/prompts.h"
#include "data/text/tokenizer.h"
#include "eval/zeroshot.h"
#include "infer/class_match.h"
#include "model/encoder.h"

/* Changes rows (n, D) in place between encoder and comparison: Hopfield retrieval, for one. */
typedef cloob_status rows_hook(cloob_ctx *ctx, void *user, float *rows, int64_t n, int64_t D);

/* What the model says of one image: the sample, its class, the one that was chosen and its probability. */
typedef cloob_status prediction_visitor(cloob_ctx *ctx, void *user, int64_t sample, int64_t label, int64_t predicted,
                                        double p);

typedef struct zeroshot_run_options {
    int64_t batch;   /* images at a time; 64 */
    int workers;     /* threads that decode; 2 */
    rows_hook *hook; /* NULL: none */
    void *hook_user;
    const class_map *map; /* of the data's folders to the classes of the prompts; NULL: by name, number or order */
    bool confusion;       /* count (classes, classes) */
    prediction_visitor *predicted; /* NULL: none */
    void *predicted_user;
    double inv_tau; /* of the probabilities */
} zeroshot_run_options;

void zeroshot_run_options_init(zeroshot_run_options *o);

/* The class weights of a prompt set: every template with every name of a class. z is initialised here;
 * release it in any case but failure. */
cloob_status zeroshot_weights(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set,
                              const zeroshot_run_options *o, zeroshot *z);

/* Adds the images of d to z, whose classes are those of `set` (infer/class_match.h). *bad: images that
 * cannot be read, left out. */
cloob_status zeroshot_images(cloob_ctx *ctx, encoder *enc, const dataset *d, const prompt_set *set,
                             const zeroshot_run_options *o, zeroshot *z, int64_t *bad);

/* Both. */
cloob_status zeroshot_run(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const prompt_set *set,
                          const zeroshot_run_options *o, zeroshot *z, int64_t *bad);

#endif
