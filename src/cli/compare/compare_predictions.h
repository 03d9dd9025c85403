/* cloob compare --predictions: models on the same images. */
#ifndef CLI_COMPARE_COMPARE_PREDICTIONS_H
#define CLI_COMPARE_COMPARE_PREDICTIONS_H

#include "cli/opt.h"

typedef struct predictions_opts {
    opt_list files;
    int64_t bins, resamples;
    double alpha;
    const char *reliability;
} predictions_opts;

/* Every file's calibration, every pair's test. */
cloob_status compare_predictions(cloob_ctx *ctx, const predictions_opts *o);

#endif
