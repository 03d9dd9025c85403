/* Timing of a training step and of embedding; see include/cloob/bench.h. */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "cloob/bench.h"

cloob_status step_timing(cloob_ctx *ctx, const cloob_bench_options *o, cloob_bench_result *out);
cloob_status embed_timing(cloob_ctx *ctx, const cloob_bench_options *o, cloob_bench_result *out);

#endif
