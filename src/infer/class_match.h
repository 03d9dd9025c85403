/* Which prompt class a class of a data set is.
 *
 * Names decide where they can: case, "_", "-" and spaces do not count, and any of a class's names will do.
 * Where no folder has a known name (ImageNet's n01440764, or plain numbers) the order decides, and then the
 * numbers of classes must be equal. What is half one and half the other is refused: a wrong pairing would be
 * a wrong number in silence. */
#ifndef INFER_CLASS_MATCH_H
#define INFER_CLASS_MATCH_H

#include "data/sets/dataset.h"
#include "data/text/prompts.h"

typedef enum class_match_by { MATCH_NAMES, MATCH_ORDER, MATCH_NUMBERS } class_match_by;

/* class_of (dataset_class_count) = position in set->classes. */
cloob_status class_match(cloob_ctx *ctx, const dataset *d, const prompt_set *set, int64_t *class_of,
                         class_match_by *by);

/* The class with that name; -1: none, -2: several (ImageNet has two cranes). */
int64_t class_find(const prompt_set *set, const char *name);

/* A set out of the data set's own class names ("_" becomes a space) and the template "a photo of a {}.", in
 * a's memory. */
cloob_status class_names_as_prompts(cloob_ctx *ctx, const dataset *d, arena *a, prompt_set *out);

#endif
