/* The deadline of queued exchanges, with an exchange that is a flag: what blocks behind it returns when the deadline
 * stops it, and the next call says who is missing. With "silent" under mpirun, rank 1 does not answer. */
#include "check.h"

#include <pthread.h>
#include <time.h>

#include "core/limits.h"
#include "dist/comm_impl.h"

static cloob_ctx *ctx;
static comm *base;
static comm_watch *w;

/* The GPU: an exchange ends when the test ends it, or when it is stopped. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    comm_progress at;
    int stops;
} gpu = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, COMM_ENDED, 0 };

static void set(comm_progress at)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.at = at;
    pthread_cond_broadcast(&gpu.changed);
    pthread_mutex_unlock(&gpu.lock);
}

static comm_progress look(void *user)
{
    (void)user;
    pthread_mutex_lock(&gpu.lock);
    comm_progress at = gpu.at;
    pthread_mutex_unlock(&gpu.lock);
    return at;
}

static void stop(void *user)
{
    (void)user;
    gpu.stops++;
    set(COMM_ENDED);
}

/* As cudaStreamSynchronize: returns when the exchange has ended. */
static double synchronise(void)
{
    double begun = clock_seconds();
    pthread_mutex_lock(&gpu.lock);
    while (gpu.at != COMM_ENDED) pthread_cond_wait(&gpu.changed, &gpu.lock);
    pthread_mutex_unlock(&gpu.lock);
    return clock_seconds() - begun;
}

static void rest(double seconds)
{
    nanosleep(&(struct timespec){ (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) }, NULL);
}

static void open_with(double timeout)
{
    gpu.stops = 0, gpu.at = COMM_ENDED;
    CHECK_OK(ctx, comm_create(ctx, &base));
    comm_set_timeout(base, timeout);
    CHECK_OK(ctx, comm_watch_start(ctx, base, look, stop, NULL, &w));
}

static void begin_exchange(void)
{
    CHECK_OK(ctx, comm_watch_enter(ctx, w));
    set(COMM_RUNS);
    comm_watch_leave(w);
}

static void close_all(bool stopped)
{
    CHECK(comm_watch_end(w) == stopped && gpu.stops == stopped);
    comm_destroy(base);
}

static void what_ends_in_time_is_left_alone(void)
{
    open_with(1.2);
    for (int i = 0; i < 4; i++) { /* longer than the deadline altogether */
        begin_exchange();
        rest(0.4);
        set(COMM_ENDED);
        synchronise();
    }
    rest(1.5); /* nothing is under way */
    CHECK_OK(ctx, comm_watch_enter(ctx, w));
    comm_watch_leave(w);
    CHECK(!comm_has_lost(base));
    close_all(false);
}

static void what_does_not_end_is_stopped(void)
{
    int64_t one = 1;
    open_with(0.5);
    begin_exchange();
    double waited = synchronise();
    CHECK(waited > 0.4 && waited < 10);
    CHECK(comm_host_sum(ctx, base, &one, 1) == CLOOB_ERR_PEER); /* before anything is saved */
    CHECK(strstr(cloob_error(ctx), "did not end in 0.5 s") && strstr(cloob_error(ctx), "every rank responds"));
    CHECK(comm_has_lost(base));
    CHECK(comm_watch_enter(ctx, w) == CLOOB_ERR_PEER);
    close_all(true);
}

/* The first exchange connects the ranks, and may block in the call itself. */
static void a_call_that_does_not_return_is_stopped(void)
{
    open_with(0.5);
    CHECK_OK(ctx, comm_watch_enter(ctx, w));
    set(COMM_RUNS);
    CHECK(synchronise() > 0.4);
    comm_watch_leave(w);
    CHECK(comm_watch_enter(ctx, w) == CLOOB_ERR_PEER && comm_has_lost(base));
    close_all(true);
}

static void a_failure_is_stopped_at_once(void)
{
    open_with(600);
    begin_exchange();
    set(COMM_FAILED);
    CHECK(synchronise() < 30);
    CHECK(comm_watch_enter(ctx, w) == CLOOB_ERR_PEER);
    close_all(true);
}

static void no_limit_waits(void)
{
    open_with(0);
    begin_exchange();
    rest(1);
    CHECK(gpu.stops == 0);
    set(COMM_ENDED);
    close_all(false);
}

/* Under mpirun: rank 1 stays away from an exchange and from everything else. Rank 0 prints the error. */
static int stay_silent(void)
{
    int64_t one = 1;
    if (comm_create(ctx, &base) != CLOOB_OK || comm_size(base) < 2) return 77;
    comm_set_timeout(base, 2);
    if (comm_rank(base) == 1) {
        rest(60);
        return 0;
    }
    if (comm_watch_start(ctx, base, look, stop, NULL, &w) != CLOOB_OK) return 3;
    begin_exchange();
    synchronise();
    if (comm_host_sum(ctx, base, &one, 1) == CLOOB_OK) return 4;
    fprintf(stderr, "%s\n", cloob_error(ctx));
    comm_abort(ctx, base, cloob_error(ctx));
    return 1;
}

int main(int argc, char **argv)
{
    ctx = cloob_ctx_create(NULL);
    if (argc > 1 && strcmp(argv[1], "silent") == 0) return stay_silent();
    RUN(what_ends_in_time_is_left_alone);
    RUN(what_does_not_end_is_stopped);
    RUN(a_call_that_does_not_return_is_stopped);
    RUN(a_failure_is_stopped_at_once);
    RUN(no_limit_waits);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
