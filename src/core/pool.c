/* One static cut of the range; OpenMP or threads carry it out. */
#include "core/pool.h"

#ifdef _OPENMP
#    include <omp.h>
#else
#    include <pthread.h>
#endif

enum { MAX_RANGES = 256 };

int pool_ranges(const cloob_ctx *ctx, int64_t n, int64_t grain)
{
    if (grain < 1) grain = 1;
    int64_t limit = n / grain, threads = ctx->threads < MAX_RANGES ? ctx->threads : MAX_RANGES;
    if (limit > threads) limit = threads;
    return limit < 1 ? 1 : (int)limit;
}

static int64_t cut(int64_t n, int ranges, int i) { return n * i / ranges; }

#ifdef _OPENMP

void pool_for(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    int ranges = pool_ranges(ctx, n, grain);
    if (n <= 0) return;
    if (ranges == 1 || omp_in_parallel()) {
        for (int i = 0; i < ranges; i++) fn(arg, cut(n, ranges, i), cut(n, ranges, i + 1), i);
        return;
    }
#    pragma omp parallel for schedule(static, 1) num_threads(ranges)
    for (int i = 0; i < ranges; i++) fn(arg, cut(n, ranges, i), cut(n, ranges, i + 1), i);
}

#else

typedef struct job {
    pool_fn *fn;
    void *arg;
    int64_t begin, end;
    int index;
} job;

static void *job_run(void *p)
{
    job *j = p;
    j->fn(j->arg, j->begin, j->end, j->index);
    return NULL;
}

void pool_for(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    int ranges = pool_ranges(ctx, n, grain);
    pthread_t thread[MAX_RANGES];
    bool started[MAX_RANGES] = { false };
    job jobs[MAX_RANGES];
    if (n <= 0) return;
    for (int i = 0; i < ranges; i++) {
        jobs[i] = (job){ fn, arg, cut(n, ranges, i), cut(n, ranges, i + 1), i };
        if (i > 0) started[i] = pthread_create(&thread[i], NULL, job_run, &jobs[i]) == 0;
    }
    for (int i = 0; i < ranges; i++)
        if (!started[i]) job_run(&jobs[i]); /* range 0, and whatever found no thread */
    for (int i = 1; i < ranges; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

#endif
