/* The options that say how a data set is read, the same in every command that reads one.
 *
 *     static cli_data data;
 *     static const opt_row rows[] = { CLI_DATA_ROWS(data), ..., OPT_END };
 *     ...
 *     cloob_data_options d;
 *     code = cli_data_fill(self, &data, &d);      -1 to go on, else the exit code
 */
#ifndef CLI_DATA_OPTS_H
#define CLI_DATA_OPTS_H

#include "cli/opt.h"

typedef struct cli_data {
    const char *type, *path_data, *separator, *csv_image_key, *csv_caption_key, *image_key, *text_key, *split, *cache;
    int64_t max_pixels, shuffle_window;
    bool one_caption;
} cli_data;

/* clang-format off */
#define CLI_DATA_ROWS(d)                                                                                     \
    { "dataset-type", OPT_STRING, &(d).type, "auto",                                                         \
      "auto|csv|webdataset|folder|tarfolder|cifar|stl10|mnist|synthetic", "kind of data set", 0 },           \
    { "path-data", OPT_STRING, &(d).path_data, NULL, "PATH",                                                 \
      "put before relative paths of a CSV; may be a tar that holds them", 0 },                               \
    { "csv-separator", OPT_STRING, &(d).separator, "\\t", "CHAR", "between the columns of a CSV", 0 },       \
    { "csv-img-key", OPT_STRING, &(d).csv_image_key, "filepath", "NAME", "column with the pictures", 0 },    \
    { "csv-caption-key", OPT_STRING, &(d).csv_caption_key, "title", "NAME", "column with the captions", 0 }, \
    { "image-key", OPT_STRING, &(d).image_key, "jpg;png;jpeg;webp", "A;B", "suffixes of pictures", 0 },      \
    { "text-key", OPT_STRING, &(d).text_key, "txt", "A;B",                                                   \
      "suffix of captions: txt, txt:lines, json, json:FIELD", 0 },                                           \
    { "one-caption-per-image", OPT_FLAG, &(d).one_caption, NULL, NULL,                                       \
      "rows of a CSV that name one picture are one sample; another caption every epoch", 0 },                \
    { "split", OPT_STRING, &(d).split, NULL, "train|test|unlabeled", "part of CIFAR, STL-10 or MNIST", 0 },  \
    { "max-image-pixels", OPT_INT, &(d).max_pixels, "25000000", "N", "larger pictures are bad samples",      \
      OPT_NOT_NEGATIVE },                                                                                    \
    { "shuffle-window", OPT_INT, &(d).shuffle_window, "0", "N",                                              \
      "samples mixed at a time in training; 0: the whole set", OPT_NOT_NEGATIVE },                           \
    { "data-cache", OPT_STRING, &(d).cache, NULL, "DIR",                                                     \
      "folder for unpacked copies and indexes of shards; none: keep nothing", 0 }
/* clang-format on */

/* Defaults, then what was given. */
int cli_data_fill(const command *self, const cli_data *from, cloob_data_options *to);

#endif
