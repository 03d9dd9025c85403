/* The budget of requests: what is counted, what is refused, and who waits. */
#include "check.h"

#include <unistd.h>

#include "serve/http.h"

#define MIB ((int64_t)1 << 20)

static cloob_ctx *ctx;
static budget b;

static int64_t used(void)
{
    int64_t now, peak;
    budget_get(&b, &now, &peak);
    CHECK(now <= peak && peak <= b.limit);
    return now;
}

static void accounts_reserve_and_release(void)
{
    account x = { .of = &b }, y = { .of = &b };
    CHECK(account_reserve(ctx, &x, 4 * MIB) == CLOOB_OK && used() == 4 * MIB - ACCOUNT_FREE);
    CHECK(account_reserve(ctx, &y, 5 * MIB) == CLOOB_OK);
    CHECK(account_reserve(ctx, &x, MIB) == CLOOB_OK && x.held == 5 * MIB);
    CHECK(account_reserve(ctx, &x, MIB) == CLOOB_ERR_ARGUMENT && x.held == 5 * MIB); /* half of 10 MiB is the most */
    CHECK(account_set(&x, MIB) && used() == 6 * MIB - 2 * ACCOUNT_FREE);
    CHECK(account_set(&x, 0) && account_set(&y, 0) && used() == 0);
}

static void small_accounts_pass_when_nothing_is_left(void)
{
    account x = { .of = &b }, y = { .of = &b }, small = { .of = &b }, none = { 0 };
    CHECK(account_reserve(ctx, &x, 5 * MIB) == CLOOB_OK && account_reserve(ctx, &y, 5 * MIB) == CLOOB_OK);
    CHECK(account_reserve(ctx, &small, ACCOUNT_FREE) == CLOOB_OK);
    CHECK(account_reserve(ctx, &small, 3 * MIB) == CLOOB_ERR_BUSY && small.held == ACCOUNT_FREE);
    CHECK(!account_set(&small, 3 * MIB) && small.held == ACCOUNT_FREE);
    CHECK(account_reserve(ctx, &none, 100 * MIB) == CLOOB_OK); /* of no budget */
    CHECK(account_set(&x, 0) && account_set(&y, 0) && account_set(&small, 0) && used() == 0);
}

static void *give_back_soon(void *arg)
{
    usleep(50000);
    account_set(arg, 0);
    return NULL;
}

static void waiting_ends_when_memory_comes_or_time_is_up(void)
{
    account x = { .of = &b }, y = { .of = &b }, z = { .of = &b };
    pthread_t thread;
    CHECK(account_reserve(ctx, &x, 5 * MIB) == CLOOB_OK && account_reserve(ctx, &y, 5 * MIB) == CLOOB_OK);
    CHECK(account_wait(ctx, &z, 4 * MIB, 0.05) == CLOOB_ERR_BUSY && z.held == 0);
    CHECK(pthread_create(&thread, NULL, give_back_soon, &x) == 0);
    CHECK(account_wait(ctx, &z, 4 * MIB, 30) == CLOOB_OK && z.held == 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(account_set(&y, 0) && account_set(&z, 0) && used() == 0);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    budget_init(&b, 10 * MIB);
    RUN(accounts_reserve_and_release);
    RUN(small_accounts_pass_when_nothing_is_left);
    RUN(waiting_ends_when_memory_comes_or_time_is_up);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
