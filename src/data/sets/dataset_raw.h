/* Sets whose images are fixed-size records of raw planes: what CIFAR, STL-10 and MNIST share. */
#ifndef DATA_SETS_DATASET_RAW_H
#define DATA_SETS_DATASET_RAW_H

#include "data/sets/dataset_kind.h"

enum { RAW_RUNS = 16 };

/* A stretch of records in one file. The planes are the last bytes of a record. */
typedef struct raw_run {
    raw_file at;
    int64_t header, record, count; /* bytes before the first record, bytes of one, how many */
    int64_t side;                  /* images are side x side */
    int planes;                    /* 3, or 1 for grey */
    bool by_columns;
    int label_at;          /* byte of the record that holds the class; -1: none */
    unsigned char *labels; /* or one byte per record from another file; owned */
} raw_run;

typedef struct raw_set {
    raw_files *files;
    raw_run run[RAW_RUNS];
    int runs;
} raw_set;

/* Adds runs and classes to p, whose self is a raw_set with its raw_files opened. */
typedef cloob_status raw_fill(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p);

cloob_status raw_open(cloob_ctx *ctx, const char *source, const dataset_options *o, dataset_part *p, raw_fill *fill);
void raw_close(dataset_part *p);
cloob_status raw_fetch(cloob_ctx *ctx, const dataset_part *p, int64_t i, uint64_t pick, int what, stored_sample *s);

cloob_status raw_add_run(cloob_ctx *ctx, dataset_part *p, raw_run run); /* takes over run.labels */
/* Class names, one per line. */
cloob_status raw_class_lines(cloob_ctx *ctx, dataset_part *p, const char *name);
/* Is this file asked for: by the split, or because the source names it? */
bool raw_wants(const dataset_options *o, const char *source, const char *file, bool is_test);

#endif
