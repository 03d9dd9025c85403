/* Class labels: checked integers, and the classes that occur.
 *
 * Labels may be any non-negative integers with gaps; training knows classes by position 0..C-1 among those
 * that occur. A class without rows would have no finite optimum (its bias runs to minus infinity), so it is
 * no class. */
#ifndef EVAL_LABELS_H
#define EVAL_LABELS_H

#include "cloob/eval.h"
#include "tensor/tensor.h"

/* Converts a tensor (N) of any integer type, or of floats that are whole numbers, into out (N). Fails, naming
 * the first bad row, on negative values and fractions, and when there are not N of them. */
cloob_status labels_read(cloob_ctx *ctx, int64_t *out, const tensor *t, int64_t N, const char *name);

typedef struct label_set {
    int64_t *value; /* (C), ascending; owned */
    int64_t C;
    int64_t gaps; /* integers below the largest that do not occur */
} label_set;

cloob_status label_set_init(cloob_ctx *ctx, label_set *s, const int64_t *label, int64_t N);
void label_set_release(label_set *s);
int64_t label_set_find(const label_set *s, int64_t label); /* position, or -1 */

/* The classes of several splits, each named once. Names are borrowed. */
typedef struct class_names {
    const char **name;
    int64_t count, capacity;
} class_names;

/* The labels of a split as places in `all`, to which the names that it lacks are added; *out (x.rows) is the caller's.
 * Refused: a name that the split has twice, a label without a name; when `all` has names already, a split without any
 * of them. Classes that were not there are reported as a warning. */
cloob_status labels_by_name(cloob_ctx *ctx, class_names *all, const cloob_split *s, int64_t **out);
void class_names_release(class_names *all);

#endif
