/* Parallel loops: a static partition, or pieces for the next free thread; on OpenMP or plain threads. */
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

/* Pieces of [0, n): each range of them has a counter of those taken, in a cache line of its own. */
typedef struct share {
    pool_fn *fn;
    void *arg;
    int64_t n, grain;
    int ranges;
    struct {
        int64_t taken;
        char apart[64 - sizeof(int64_t)];
    } range[MAX_RANGES];
} share;

static void share_start(share *s)
{
    int64_t pieces = (s->n + s->grain - 1) / s->grain;
    for (int i = 0; i < s->ranges; i++) s->range[i].taken = cut(pieces, s->ranges, i);
}

/* Own pieces first, then those that others have not begun. */
static void share_work(share *s, int thread)
{
    int64_t pieces = (s->n + s->grain - 1) / s->grain;
    for (int i = 0; i < s->ranges; i++) {
        int r = (thread + i) % s->ranges;
        int64_t end = cut(pieces, s->ranges, r + 1), at;
        while ((at = __atomic_fetch_add(&s->range[r].taken, 1, __ATOMIC_RELAXED)) < end) {
            int64_t begin = at * s->grain;
            s->fn(s->arg, begin, begin + s->grain < s->n ? begin + s->grain : s->n, thread);
        }
    }
}

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

void pool_share(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    int ranges = pool_ranges(ctx, n, grain);
    if (n <= 0) return;
    if (ranges == 1 || omp_in_parallel()) {
        fn(arg, 0, n, 0);
        return;
    }
    share s = { .fn = fn, .arg = arg, .n = n, .grain = grain < 1 ? 1 : grain, .ranges = ranges };
    share_start(&s);
#    pragma omp parallel num_threads(ranges)
    share_work(&s, omp_get_thread_num());
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

static void share_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)end, (void)thread;
    share_work(arg, (int)begin);
}

void pool_share(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    share s = { .fn = fn, .arg = arg, .n = n, .grain = grain < 1 ? 1 : grain, .ranges = pool_ranges(ctx, n, grain) };
    if (n <= 0) return;
    share_start(&s);
    pool_for(ctx, s.ranges, 1, share_range, &s);
}

#endif
