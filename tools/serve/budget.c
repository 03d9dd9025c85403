/* A memory budget with a limit, and the accounts that reserve memory from it. */
#include "core/ctx.h"
#include "serve/http.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "core/limits.h"

void budget_init(budget *b, int64_t limit)
{
    *b = (budget){ .limit = limit };
    pthread_mutex_init(&b->lock, NULL);
    clock_cond_init(&b->freed);
}

void budget_get(budget *b, int64_t *used, int64_t *peak)
{
    pthread_mutex_lock(&b->lock);
    *used = b->used, *peak = b->peak;
    pthread_mutex_unlock(&b->lock);
}

static int64_t counted(int64_t held) { return held > ACCOUNT_FREE ? held - ACCOUNT_FREE : 0; }

/* Adds bytes (negative: releases them); false if the limit would be exceeded. Requires the lock. */
static bool take(budget *b, int64_t bytes)
{
    if (bytes > 0 && bytes > b->limit - b->used) return false;
    b->used += bytes;
    if (b->used > b->peak) b->peak = b->used;
    if (bytes < 0) pthread_cond_broadcast(&b->freed);
    return true;
}

/* Changes what an account holds. Waits until the given time for memory; NULL: does not wait. On failure the account is
 * unchanged. */
static bool change(account *a, int64_t held, const struct timespec *until)
{
    int64_t bytes = counted(held) - counted(a->held);
    bool ok = true;
    if (a->of && bytes) {
        pthread_mutex_lock(&a->of->lock);
        while (!(ok = take(a->of, bytes)) && until)
            if (pthread_cond_timedwait(&a->of->freed, &a->of->lock, until) == ETIMEDOUT) until = NULL;
        pthread_mutex_unlock(&a->of->lock);
    }
    if (ok) a->held = held;
    return ok;
}

bool account_set(account *a, int64_t bytes) { return change(a, bytes, NULL); }

static cloob_status reserve(cloob_ctx *ctx, account *a, int64_t bytes, const struct timespec *until)
{
    if (a->of && bytes > a->of->limit / 2 - a->held)
        return ctx_fail(ctx, CLOOB_ERR_ARGUMENT,
                        "the request needs more than half of the server's memory limit of %lld MiB; send less in one "
                        "request, or raise --memory-limit",
                        (long long)(a->of->limit >> 20));
    if (change(a, a->held + bytes, until)) return CLOOB_OK;
    return ctx_fail(ctx, CLOOB_ERR_BUSY, "other requests use the server's memory (--memory-limit); try again later");
}

cloob_status account_reserve(cloob_ctx *ctx, account *a, int64_t bytes) { return reserve(ctx, a, bytes, NULL); }

cloob_status account_wait(cloob_ctx *ctx, account *a, int64_t bytes, double seconds)
{
    double end = clock_seconds() + seconds;
    struct timespec t = { (time_t)floor(end), (long)(1e9 * (end - floor(end))) };
    return reserve(ctx, a, bytes, &t);
}
