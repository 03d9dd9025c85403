/* What a data set holds, by looking: sizes, captions, classes, and how many samples are bad. */
#ifndef DATA_SETS_DATASET_INFO_H
#define DATA_SETS_DATASET_INFO_H

#include "data/sets/dataset.h"

/* Decodes `examine` samples spread evenly over the set (0: all) on the context's threads. */
cloob_status dataset_info(cloob_ctx *ctx, const dataset *d, int64_t examine, cloob_data_info *out);

#endif
