/* Data-parallel loops over the context's CPU threads.
 *
 * fn is called with disjoint ranges [begin, end) that cover [0, n). How the range is cut depends on n, grain
 * and the number of threads only, so a reduction that adds its parts in range order is reproducible.
 * Built on OpenMP when the compiler has it (one set of threads, shared with oneDNN and BLAS), else on
 * plain threads. Calls from inside fn run serially. */
#ifndef CORE_POOL_H
#define CORE_POOL_H

#include "core/ctx.h"

typedef void pool_fn(void *arg, int64_t begin, int64_t end, int thread);

/* Cuts [0, n) into at most ctx->threads ranges of at least `grain`; `thread` is the range's index. */
void pool_for(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg);

/* The same in pieces of `grain` that go to whichever thread is free, so that one that is held up (by another program,
 * or because it has to be woken) does not hold up the others. Every thread begins with a range of its own and then
 * helps with those of others. `thread` is below pool_ranges(ctx, n, grain). For work that is the same whoever does it:
 * pieces begin at multiples of grain, and which thread gets which is left to chance. */
void pool_share(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg);

/* How many ranges pool_for would make: the size of a per-thread array. */
int pool_ranges(const cloob_ctx *ctx, int64_t n, int64_t grain);

#endif
