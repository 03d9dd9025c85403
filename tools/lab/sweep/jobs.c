/* Several runs of an ablation side by side: threads that take the next one, each with a context of its own.
 */
#include <pthread.h>
#include <stdio.h>

#include "lab/sweep/runs.h"
#include "core/arith.h"
#include "dist/comm.h"

enum { MAX_JOBS = 64 };

typedef struct jobs {
    const sweep_options *o;
    const char *folder;
    const sweep_run *run;
    int64_t runs;
    int threads;          /* of each */
    pthread_mutex_t lock; /* of all that follows, and of the caller's log */
    cloob_ctx *ctx;       /* the caller's */
    sweep_summary *count;
    int64_t next, done;
    cloob_status status; /* of the first run that failed or was stopped */
    char why[CTX_ERROR_BYTES];
} jobs;

typedef struct named_log { /* prefixes lines with the name of the run */
    jobs *j;
    const char *name;
} named_log;

static void log_named(void *user, cloob_log_level level, const char *line)
{
    const named_log *l = user;
    pthread_mutex_lock(&l->j->lock);
    ctx_log(l->j->ctx, level, "%s: %s", l->name, line);
    pthread_mutex_unlock(&l->j->lock);
}

/* A run that fails ends the others, which save first. */
static bool stop_all(void *user)
{
    jobs *j = user;
    const cloob_train_options *t = &j->o->train;
    pthread_mutex_lock(&j->lock);
    bool stop = j->status != CLOOB_OK || (t->should_stop && t->should_stop(t->stop_user));
    pthread_mutex_unlock(&j->lock);
    return stop;
}

static void finish(jobs *j, const cloob_ctx *ctx, cloob_status status, const sweep_summary *count)
{
    pthread_mutex_lock(&j->lock);
    j->count->found += count->found, j->count->trained += count->trained, j->count->resumed += count->resumed;
    bool worse = status != CLOOB_OK && (j->status == CLOOB_OK || j->status == CLOOB_ERR_STOPPED);
    if (worse) {
        j->status = status;
        snprintf(j->why, sizeof j->why, "%s", cloob_error(ctx));
    }
    ctx_progress(j->ctx, "runs", ++j->done, j->runs, "runs");
    pthread_mutex_unlock(&j->lock);
}

static void do_one(jobs *j, const sweep_run *r)
{
    named_log log = { j, r->name };
    sweep_summary count = { 0 };
    sweep_options o = *j->o;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options),
                                                            .threads = j->threads,
                                                            .log = log_named,
                                                            .log_user = &log,
                                                            .log_level = j->ctx->log_level });
    if (ctx) ctx->kernels = j->ctx->kernels;
    o.train.should_stop = stop_all;
    o.train.stop_user = j;
    cloob_status status = ctx ? sweep_do_run(ctx, &o, j->folder, r, &count) : CLOOB_ERR_MEMORY;
    finish(j, ctx, status, &count);
    cloob_ctx_destroy(ctx);
}

static const sweep_run *take(jobs *j)
{
    pthread_mutex_lock(&j->lock);
    const sweep_run *r = j->next < j->runs && j->status == CLOOB_OK ? &j->run[j->next++] : NULL;
    pthread_mutex_unlock(&j->lock);
    return r;
}

static void *worker(void *user)
{
    for (const sweep_run *r; (r = take(user));) do_one(user, r);
    return NULL;
}

static cloob_status side_by_side(jobs *j, int64_t width)
{
    pthread_t thread[MAX_JOBS];
    int64_t started = 0;
    pthread_mutex_init(&j->lock, NULL);
    ctx_progress(j->ctx, "runs", 0, j->runs, "runs");
    while (started < width && pthread_create(&thread[started], NULL, worker, j) == 0) started++;
    for (int64_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&j->lock);
    if (!started) return ctx_fail(j->ctx, CLOOB_ERR_MEMORY, "`jobs` %lld: no thread can be started", (long long)width);
    return j->status == CLOOB_OK ? CLOOB_OK : ctx_fail(j->ctx, j->status, "%s", j->why);
}

static cloob_status one_by_one(const jobs *j)
{
    for (int64_t i = 0; i < j->runs; i++) CLOOB_TRY(sweep_do_run(j->ctx, j->o, j->folder, &j->run[i], j->count));
    return CLOOB_OK;
}

cloob_status sweep_do_runs(cloob_ctx *ctx, const sweep_options *o, const char *folder, const sweep_run *run,
                           int64_t runs, sweep_summary *count)
{
    comm_env env;
    int64_t width = min64(o->jobs, runs);
    jobs j = { .o = o, .folder = folder, .run = run, .runs = runs, .ctx = ctx, .count = count };
    if (o->jobs < 1 || o->jobs > MAX_JOBS)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`jobs` %lld: needs 1 to %d", (long long)o->jobs, MAX_JOBS);
    if (width == 1) return one_by_one(&j);
    CLOOB_TRY(comm_env_read(ctx, &env));
    if (env.size > 1)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT, "`jobs` %lld: runs of %d ranks come one after the other; leave it out",
                        (long long)o->jobs, env.size);
    j.threads = (int)max64(1, ctx->threads / width);
    return side_by_side(&j, width);
}
