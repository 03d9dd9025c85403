/* The deadline of exchanges that the host does not wait for (comm_impl.h). A thread checks them, since the thread that
 * began them may be blocked behind them in a call of the GPU's driver.
 *
 * It checks every quarter of a second, or four times in a shorter deadline. Time counts from the last exchange begun:
 * as long as the host begins new ones it is not blocked, and the last one is what it waits for in the end. */
#include <pthread.h>
#include <stdlib.h>

#include "core/limits.h"
#include "dist/comm_impl.h"

struct comm_watch {
    comm *base;
    comm_progress (*look)(void *user);
    void (*stop)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool inside, pending; /* the caller is in a call that begins an exchange; some that were begun may not have ended */
    bool expired, quit;
    double since, timeout; /* when the last one was begun; of the base at that time */
};

/* True when the pending exchanges must be stopped. */
static bool is_over(comm_watch *w)
{
    if (!w->inside && !w->pending) return false;
    comm_progress p = w->look(w->user);
    if (p == COMM_ENDED) w->pending = false;
    if (p == COMM_FAILED) return true;
    return (w->inside || w->pending) && w->timeout > 0 && clock_seconds() - w->since > w->timeout;
}

static void *watch(void *argument)
{
    comm_watch *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->quit && !w->expired) {
        double pause = w->timeout > 0 && w->timeout < 1 ? w->timeout / 4 : 0.25;
        clock_cond_wait(&w->changed, &w->lock, clock_seconds() + pause);
        w->expired = !w->quit && is_over(w);
    }
    bool stop = w->expired;
    if (stop) __atomic_store_n(&w->base->stuck, true, __ATOMIC_RELEASE); /* before the caller runs again */
    pthread_mutex_unlock(&w->lock);
    if (stop) w->stop(w->user);
    return NULL;
}

cloob_status comm_watch_start(cloob_ctx *ctx, comm *base, comm_progress (*look)(void *), void (*stop)(void *),
                              void *user, comm_watch **out)
{
    comm_watch *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return ctx_no_memory(ctx, sizeof *w, "a communicator");
    w->base = base, w->look = look, w->stop = stop, w->user = user, w->timeout = base->timeout;
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->changed);
    if (pthread_create(&w->thread, NULL, watch, w) == 0) {
        *out = w;
        return CLOOB_OK;
    }
    pthread_cond_destroy(&w->changed), pthread_mutex_destroy(&w->lock);
    free(w);
    return ctx_fail(ctx, CLOOB_ERR_MEMORY, "cannot start the thread that watches the deadline of exchanges");
}

cloob_status comm_watch_enter(cloob_ctx *ctx, comm_watch *w)
{
    if (!w) return CLOOB_OK;
    pthread_mutex_lock(&w->lock);
    bool expired = w->expired;
    w->inside = true, w->since = clock_seconds(), w->timeout = w->base->timeout;
    pthread_mutex_unlock(&w->lock);
    return expired ? comm_name_stuck(ctx, w->base) : CLOOB_OK;
}

void comm_watch_leave(comm_watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->inside = false, w->pending = true, w->since = clock_seconds();
    pthread_mutex_unlock(&w->lock);
}

bool comm_watch_end(comm_watch *w)
{
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    bool expired = w->expired;
    pthread_cond_destroy(&w->changed), pthread_mutex_destroy(&w->lock);
    free(w);
    return expired;
}
