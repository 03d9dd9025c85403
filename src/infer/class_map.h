/* Which classes of a prompt set the folders of a data set are, from a file: ImageNet-R, -A, -Sketch, -V2 and ObjectNet
 * have some of ImageNet's 1,000 classes under names of their own, and are scored among those alone.
 *
 * A line is FOLDER, a tab or a comma, and CLASS: a name or a number (from 0) of the prompt set; CLASS|CLASS: any of
 * them is right. A file with a single column lists the folders of all classes in order, as lists of ImageNet's 1,000
 * WordNet numbers do. Empty lines and those that begin with # are passed over, and so are folders that the data does
 * not have. */
#ifndef INFER_CLASS_MAP_H
#define INFER_CLASS_MAP_H

#include "data/sets/dataset.h"
#include "data/text/prompts.h"

typedef struct class_map {
    prompt_set set;    /* the classes that some folder is, in the order of the whole set */
    int64_t *group;    /* (set.class_count) the answer that each class is */
    int64_t *class_of; /* (classes of the data) the answer of each folder */
    int64_t *shown;    /* (answers) a class of `set` to name it by */
    int64_t answers;   /* one per folder; folders of the same classes share one */
} class_map;

/* All memory is in the arena; names are those of `all`. Refused: a folder of the data that the file does not name, a
 * class that the set does not have, two folders that share a part of their classes only. */
cloob_status class_map_read(cloob_ctx *ctx, arena *a, const char *path, const dataset *d, const prompt_set *all,
                            class_map *out);

#endif
