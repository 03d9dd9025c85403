/* Benchmarks of reading data and of search. */
#ifndef LAB_BENCH_DATA_BENCH_H
#define LAB_BENCH_DATA_BENCH_H

#include "cloob/data.h"

typedef struct data_bench_options {
    int64_t batch, size, context; /* 64 images of 224 px, 77 tokens */
    int workers, ahead;           /* 0 workers: in the calling thread */
    int64_t batches;              /* to time, after one that is not counted; 0: whole epochs */
    int64_t epochs;               /* with batches 0; 1 */
    uint64_t seed;
    bool eval;                 /* evaluation views in order instead of training crops */
    const char *vocab;         /* merges file to tokenize captions with; NULL: images only */
    const char *image_decoder; /* "gpu": the first GPU makes the training crops of JPEGs; NULL: the CPU */
} data_bench_options;

typedef struct data_bench_result {
    double items_per_s, ms; /* ms: median per batch */
    double wait_share;      /* of the time spent waiting for the loader: near 1, as nothing else is done */
    int64_t items, bad, batches;
    int64_t peak_bytes;          /* of the process */
    int64_t buffer_bytes;        /* of the loader's batches */
    int64_t cpu_views;           /* with "gpu": views that the CPU had to make */
    char decoder[96];            /* who made the others: "CPU", "nvJPEG 13.2, hardware decoders" */
    int64_t rss_first, rss_last; /* resident bytes after the first and the last epoch (or batch, without epochs) */
} data_bench_result;

void data_bench_options_init(data_bench_options *o);
cloob_status data_bench(cloob_ctx *ctx, const cloob_dataset *d, const data_bench_options *o, data_bench_result *out);

/* Times `repeats` searches over n random unit rows; *ms is the median of one. Writes and removes a file at
 * path. */
cloob_status search_bench(cloob_ctx *ctx, const char *path, int64_t n, int64_t dim, int repeats, double *ms);

#endif
