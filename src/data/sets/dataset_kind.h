/* What a kind of data set provides to dataset.c. One file per kind defines one `dataset_ops`. */
#ifndef DATA_SETS_DATASET_KIND_H
#define DATA_SETS_DATASET_KIND_H

#include <stdint.h>

#include "core/arena.h"
#include "data/sets/dataset.h"
#include "io/fileset.h"
#include "io/tar.h"

/* Names with braces, as shells and webdataset write them: "shard-{00000..01242}.tar", "{a,b}/{1..9..2}".
 *
 * A range keeps the leading zeros and the width of its ends, may be descending and may have a step; "{a..e}" is a range
 * of letters. Lists and ranges nest. "{x}" without a comma or range stays as it is. */

enum { BRACES_LIMIT = 1 << 20 }; /* names of one pattern */

typedef struct name_list {
    char **name;
    int64_t count, capacity;
} name_list;

/* Appends every name of the pattern, in order. Fails with CLOOB_ERR_ARGUMENT for an unbalanced brace or more names than
 * the limit. */
cloob_status braces_expand(cloob_ctx *ctx, const char *pattern, name_list *out);

cloob_status name_list_add(cloob_ctx *ctx, name_list *list, const char *name, size_t bytes);
void name_list_sort(name_list *list);
void name_list_release(name_list *list);
/* Adds the names in a folder, without the hidden ones, sorted. */
cloob_status name_list_folder(cloob_ctx *ctx, name_list *list, const char *path);
/* Adds the lines of a text file, without the empty ones. */
cloob_status name_list_read(cloob_ctx *ctx, name_list *list, const char *path);

/* One source of a data set; what a kind fills in when it opens. */
typedef struct dataset_part dataset_part;

typedef struct dataset_ops {
    const char *name;
    /* Fills p->self, count, classes, captions. On failure close is called all the same. */
    cloob_status (*open)(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p);
    void (*close)(dataset_part *p);
    /* Fills s for sample i of this part; s comes with empty caption and name, label -1, captions 1. */
    cloob_status (*fetch)(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what, stored_sample *s);
} dataset_ops;

struct dataset_part {
    const dataset_ops *ops;
    void *self;
    int64_t count, skipped;
    bool captions, targets; /* targets: arrays of numbers for the images */
    name_list classes;
    fileset *files; /* NULL for kinds that read one file per image */
    double weight;  /* of one draw, when resampled */
};

extern const dataset_ops dataset_csv, dataset_web, dataset_folder, dataset_tarfolder, dataset_cifar, dataset_stl10,
    dataset_mnist, dataset_random;

/* ---- what several kinds share (dataset_kind.c) --------------------------------------------------- */

/* The set that a file of this name belongs to: CIFAR, STL-10 or MNIST (dataset_raw.c); NULL: none. */
const dataset_ops *raw_set_of(const char *name);

/* The kind for a source when the type is "auto"; an error lists the known kinds. */
cloob_status dataset_detect(cloob_ctx *ctx, const char *source, const dataset_options *o, const dataset_ops **ops);

/* Space for n bytes in s->data. */
cloob_status stored_reserve(cloob_ctx *ctx, stored_sample *s, size_t n);

/* Bytes of a member into s->data; an empty one is an error. */
cloob_status stored_read(cloob_ctx *ctx, const fileset *files, int file, int64_t offset, int64_t size,
                         stored_sample *s);

/* A whole image file into s->data. */
cloob_status stored_read_path(cloob_ctx *ctx, const char *path, stored_sample *s);

/* Sets the caption: trims white space, truncates at the limit, checks UTF-8; empty or invalid is CLOOB_ERR_FORMAT.
 */
cloob_status stored_caption(cloob_ctx *ctx, const char *text, size_t bytes, stored_sample *s);

/* Ends in one of "jpg;png;..." (the key's list), whatever the case. */
bool name_has_suffix(const char *name, const char *keys);

/* "a.tar", "a.tgz", "a.tar.gz". */
bool name_is_tar(const char *path);

/* One fileset with one opened file, or a failure. */
cloob_status open_single(cloob_ctx *ctx, const char *path, const char *cache, fileset **files);

/* Shuffles that are pure functions of (key, position): nothing is stored, and any position can be queried. */

/* The sample at a position of a shuffled epoch of n samples: a bijection of [0, n).
 *
 * window 0: any sample anywhere. Otherwise about `window` samples are mixed at a time, taken from 16 shuffled stretches
 * of neighbours. Reads stay close together, which is faster on slow disks and network file systems. */
int64_t order_shuffle(uint64_t key, int64_t position, int64_t n, int64_t window);

#endif
