/* Inside CSV sets: the rows, and images that lie in a tar. */
#ifndef DATA_SETS_DATASET_CSV_H
#define DATA_SETS_DATASET_CSV_H

#include "data/sets/csv.h"
#include "data/sets/dataset_kind.h"

typedef struct csv_set {
    char separator;
    int image_column, caption_column, columns;
    int64_t *offset; /* of each row in the file */
    int32_t *bytes;
    uint64_t *hash; /* of each row's path, while opening */
    int64_t rows, capacity;
    int64_t *group;  /* (groups + 1): where each image's rows begin in member; NULL: every row is a sample */
    int64_t *member; /* rows, image by image */
    int64_t groups;
    char *root;         /* put before relative paths */
    fileset *tar_files; /* or the tar that holds the images */
    tar_index tar;
    int64_t *by_name; /* the tar's members in the order of their names */
} csv_set;

/* csv_tar.c */
cloob_status csv_open_tar(cloob_ctx *ctx, csv_set *c, const char *path, const char *cache);
void csv_close_tar(csv_set *c);
/* The image whose member is called `path`. */
cloob_status csv_read_tar(cloob_ctx *ctx, const csv_set *c, const char *path, stored_sample *s);

#endif
