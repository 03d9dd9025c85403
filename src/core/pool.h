/* Data-parallel loops over the context's CPU threads.
 *
 * fn is called with disjoint ranges [begin, end) that cover [0, n). The partition depends only on n, grain and the
 * number of threads, so a reduction that adds its parts in range order is reproducible. Built on OpenMP's threads
 * where libgomp is installed (one set of threads), else on plain threads. Calls from inside fn run
 * serially with OpenMP. */
#ifndef CORE_POOL_H
#define CORE_POOL_H

#include "core/ctx.h"

typedef void pool_fn(void *arg, int64_t begin, int64_t end, int thread);

/* Cuts [0, n) into at most ctx->threads ranges of at least `grain`; `thread` is the range's index. */
void pool_for(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg);

/* The same in pieces of `grain` for the next free thread, so that a slow thread (preempted, or still waking up) does
 * not delay the others. Every thread starts with its own range and then takes pieces from other ranges. `thread` is
 * below pool_ranges(ctx, n, grain). For work that does not depend on the thread: pieces begin at multiples of grain,
 * and their assignment to threads is not deterministic. */
void pool_share(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg);

/* pool_for for work that can fail: every range has its own context. Returns the failure of the first range that failed,
 * with its text in ctx. */
typedef cloob_status pool_try_fn(cloob_ctx *ctx, void *arg, int64_t begin, int64_t end, int thread);
cloob_status pool_try(cloob_ctx *ctx, int64_t n, int64_t grain, pool_try_fn *fn, void *arg);

/* Registers fork handlers once. A forked child has none of its parent's threads, so its first parallel loop would wait
 * for them forever: the forking thread ends its threads before the fork, and parent and child start new ones. */
void pool_survive_forks(void);

/* The number of ranges that pool_for makes: the size of a per-thread array. */
int pool_ranges(const cloob_ctx *ctx, int64_t n, int64_t grain);

/* Sets the number of threads of OpenMP loops in libraries that the calling thread uses to the context's. */
void pool_use_threads(const cloob_ctx *ctx);

#endif
