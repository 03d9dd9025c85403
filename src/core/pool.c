/* Parallel loops: a static partition, or pieces for the next free thread; on OpenMP's threads or plain ones.
 *
 * GCC's OpenMP library is loaded with the first loop and called by the functions that GCC itself calls for `#pragma omp
 * parallel`: a program starts without it, sets GOMP_SPINCOUNT before it reads that, and runs where it is missing. */
#include "core/pool.h"

#include <pthread.h>
#include <string.h>

#include "core/shared_object.h"

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

/* Takes the thread's own pieces first, then unstarted pieces of other threads. */
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

/* ---- OpenMP -------------------------------------------------------------------------------------- */

static struct {
    void (*GOMP_parallel)(void (*fn)(void *), void *arg, unsigned threads, unsigned flags);
    int (*omp_in_parallel)(void), (*omp_get_thread_num)(void), (*omp_get_num_threads)(void);
    void (*omp_set_num_threads)(int n);
    int (*omp_pause_resource_all)(int kind);
} gomp;

#ifdef CLOOB_NO_OPENMP
static bool has_openmp(void) { return false; }
#else
#    define ROW(name) SHARED_ROW(gomp, name)
static const shared_function functions[] = {
    ROW(GOMP_parallel) ROW(omp_in_parallel) ROW(omp_get_thread_num) ROW(omp_get_num_threads) ROW(omp_set_num_threads)
        ROW(omp_pause_resource_all){ NULL, NULL },
};
static shared_object library = { .file = { "libgomp.so.1" },
                                 .functions = functions,
                                 .install = "libgomp1 (fast parallel loops)" };
SHARED_LISTED(library)
static bool has_openmp(void) { return shared_object_is_there(&library); }
#endif

enum { PAUSE_SOFT = 1 }; /* omp_pause_soft */

static void end_threads(void)
{
    if (gomp.omp_pause_resource_all) gomp.omp_pause_resource_all(PAUSE_SOFT); /* else: no loop has run */
}
static void register_fork(void) { pthread_atfork(end_threads, NULL, NULL); }

void pool_survive_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
}

void pool_use_threads(const cloob_ctx *ctx)
{
    if (has_openmp()) gomp.omp_set_num_threads(ctx->threads);
}

/* A loop over ranges. OpenMP may start fewer threads than it was asked for. */
typedef struct region {
    pool_fn *fn;
    void *arg;
    int64_t n;
    int ranges;
} region;

static void run_range(const region *r, int i)
{
    r->fn(r->arg, cut(r->n, r->ranges, i), cut(r->n, r->ranges, i + 1), i);
}

static void run_region(void *arg)
{
    const region *r = arg;
    for (int i = gomp.omp_get_thread_num(); i < r->ranges; i += gomp.omp_get_num_threads()) run_range(r, i);
}

/* ---- plain threads ------------------------------------------------------------------------------- */

typedef struct job {
    const region *region;
    int index;
} job;

static void *run_job(void *p)
{
    const job *j = p;
    run_range(j->region, j->index);
    return NULL;
}

static void run_threads(const region *r)
{
    pthread_t thread[MAX_RANGES];
    bool started[MAX_RANGES] = { false };
    job jobs[MAX_RANGES];
    for (int i = 0; i < r->ranges; i++) {
        jobs[i] = (job){ r, i };
        if (i > 0) started[i] = pthread_create(&thread[i], NULL, run_job, &jobs[i]) == 0;
    }
    for (int i = 0; i < r->ranges; i++)
        if (!started[i]) run_range(r, i); /* range 0, and the ranges without a thread */
    for (int i = 1; i < r->ranges; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

/* ---- loops --------------------------------------------------------------------------------------- */

void pool_for(cloob_ctx *ctx, int64_t n, int64_t grain, pool_fn *fn, void *arg)
{
    region r = { fn, arg, n, pool_ranges(ctx, n, grain) };
    if (n <= 0) return;
    bool openmp = r.ranges > 1 && has_openmp();
    if (r.ranges == 1 || (openmp && gomp.omp_in_parallel()))
        for (int i = 0; i < r.ranges; i++) run_range(&r, i);
    else if (openmp) gomp.GOMP_parallel(run_region, &r, (unsigned)r.ranges, 0);
    else run_threads(&r);
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
    if (s.ranges == 1) {
        fn(arg, 0, n, 0);
        return;
    }
    share_start(&s);
    pool_for(ctx, s.ranges, 1, share_range, &s);
}

typedef struct trial {
    cloob_ctx *ctx;
    pool_try_fn *fn;
    void *arg;
    pthread_mutex_t lock; /* the first failure */
    cloob_status status;
    int range;
    char error[CTX_ERROR_BYTES];
} trial;

static void try_range(void *arg, int64_t begin, int64_t end, int thread)
{
    trial *t = arg;
    cloob_ctx *ctx = ctx_worker(t->ctx);
    cloob_status status = ctx ? t->fn(ctx, t->arg, begin, end, thread) : CLOOB_ERR_MEMORY;
    pthread_mutex_lock(&t->lock);
    if (status != CLOOB_OK && (t->status == CLOOB_OK || thread < t->range)) {
        t->status = status;
        t->range = thread;
        strcpy(t->error, ctx ? ctx->error : "out of memory: a context for a thread");
    }
    pthread_mutex_unlock(&t->lock);
    cloob_ctx_destroy(ctx);
}

cloob_status pool_try(cloob_ctx *ctx, int64_t n, int64_t grain, pool_try_fn *fn, void *arg)
{
    trial t = { .ctx = ctx, .fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER };
    pool_for(ctx, n, grain, try_range, &t);
    return t.status == CLOOB_OK ? CLOOB_OK : ctx_fail(ctx, t.status, "%s", t.error);
}
