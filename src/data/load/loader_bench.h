/* How fast a loader delivers when nothing else is done. */
#ifndef DATA_LOAD_LOADER_BENCH_H
#define DATA_LOAD_LOADER_BENCH_H

#include "data/load/loader.h"

cloob_status loader_bench(cloob_ctx *ctx, const dataset *d, const cloob_data_bench_options *o,
                          cloob_data_bench_result *out);

#endif
