/* Zero-shot accuracy of a model on a data set with classes, from prompts to the table.
 *
 *     zeroshot z;
 *     zeroshot_run_options o = { .workers = 2 };
 *     CLOOB_TRY(zeroshot_run(ctx, enc, tok, set, prompts, &o, &z, &bad));
 *     accuracy_result r = accuracy_finish(&z.count);
 *     zeroshot_release(&z);
 */
#ifndef INFER_ZEROSHOT_RUN_H
#define INFER_ZEROSHOT_RUN_H

#include "cloob/zeroshot.h"
#include "data/sets/dataset.h"
#include "data/text/prompts.h"
#include "data/text/tokenizer.h"
#include "eval/zeroshot.h"
#include "infer/embeddings_file.h"
#include "model/encoder.h"

/* Finds the prompt class of each class of a data set.
 *
 * Classes are matched by name: case, "_", "-" and spaces are ignored, and any of a class's names matches. If no folder
 * has a known name (ImageNet's n01440764, or plain numbers), they are matched by order, and the numbers of classes must
 * be equal. A mixture of both is refused, because a wrong match would silently give a wrong accuracy. */

typedef enum class_match_by { MATCH_NAMES, MATCH_ORDER, MATCH_NUMBERS } class_match_by;

/* class_of (dataset_class_count) = position in set->classes. */
cloob_status class_match(cloob_ctx *ctx, const dataset *d, const prompt_set *set, int64_t *class_of,
                         class_match_by *by);

/* A set of names, one per class, and templates, each with {} for the name; without templates: "a photo of a {}.". All
 * memory is in a. */
cloob_status names_as_prompts(cloob_ctx *ctx, arena *a, const char *title, const char *const *name, int64_t names,
                              const char *const *templates, int64_t template_count, prompt_set *set);
/* A set from the data set's own class names ("_" becomes a space) and the template "a photo of a {}.", in a's
 * memory. */
cloob_status class_names_as_prompts(cloob_ctx *ctx, const dataset *d, arena *a, prompt_set *out);

/* Which classes of a prompt set the folders of a data set are, from a file: ImageNet-R, -A, -Sketch, -V2 and ObjectNet
 * have some of ImageNet's 1,000 classes under names of their own, and are scored among those classes only.
 *
 * A line is FOLDER, a tab or a comma, and CLASS: a name or a number (from 0) of the prompt set; CLASS|CLASS: any of
 * them is right. A file with a single column lists the folders of all classes in order, as lists of ImageNet's 1,000
 * WordNet numbers do. Empty lines, lines that begin with # and folders that the data lacks are skipped. */

typedef struct class_map {
    prompt_set set;    /* the classes that some folder is, in the order of the whole set */
    int64_t *group;    /* (set.class_count) the answer that each class is */
    int64_t *class_of; /* (classes of the data) the answer of each folder */
    int64_t *shown;    /* (answers) a class of `set` to name it by */
    int64_t answers;   /* one per folder; folders of the same classes share one */
} class_map;

/* All memory is in the arena; names are those of `all`. Refused: a folder of the data that the file does not name, a
 * class that the set does not have, two folders that share only some of their classes. */
cloob_status class_map_read(cloob_ctx *ctx, arena *a, const char *path, const dataset *d, const prompt_set *all,
                            class_map *out);

typedef struct zeroshot_predictions { /* in the order of the data; the caller frees item and its names */
    cloob_zeroshot_prediction *item;
    int64_t n, room;
} zeroshot_predictions;

typedef struct zeroshot_run_options {
    int workers;                       /* decoding threads */
    const stored_rows *stored;         /* prompts and images retrieve from it; NULL: no retrieval */
    const class_map *map;              /* of the data's folders to classes; NULL: by name, number or order */
    bool confusion;                    /* count (classes, classes) */
    zeroshot_predictions *predictions; /* receives predictions; NULL: none */
    double inv_tau;                    /* of the probabilities of predictions */
} zeroshot_run_options;

/* The class weights of a prompt set: every template with every name of a class. o may be NULL. z is initialised here;
 * release it in any case but failure. */
cloob_status zeroshot_weights(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const prompt_set *set,
                              const zeroshot_run_options *o, zeroshot *z);

/* The class weights, and the counts of all images of d (class_match.c finds their classes). *bad: images that cannot be
 * read, left out. */
cloob_status zeroshot_run(cloob_ctx *ctx, encoder *enc, const tokenizer *tok, const dataset *d, const prompt_set *set,
                          const zeroshot_run_options *o, zeroshot *z, int64_t *bad);

#endif
