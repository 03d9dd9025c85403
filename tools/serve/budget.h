/* One bound on the memory of requests (--memory-limit): bodies, their parsed form, downloads, images, answers.
 *
 *     account a = { .of = &server_budget };
 *     CLOOB_TRY(account_reserve(ctx, &a, bytes));         before the memory is taken
 *     account_set(&a, answer_bytes);                      what is still held; the rest is released
 *     account_set(&a, 0);
 *
 * Every request has an account, which one thread uses at a time. The first ACCOUNT_FREE bytes of an account are not
 * counted, so that small requests pass while large ones hold the whole budget. An account may hold half of it. */
#ifndef SERVE_BUDGET_H
#define SERVE_BUDGET_H

#include <pthread.h>

#include "cloob/cloob.h"

enum { ACCOUNT_FREE = 64 << 10 };

typedef struct budget {
    int64_t limit, used, peak; /* bytes; used and peak are guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t freed;
} budget;

typedef struct account {
    budget *of; /* NULL: nothing is counted */
    int64_t held;
} account;

void budget_init(budget *b, int64_t limit);
void budget_get(budget *b, int64_t *used, int64_t *peak);

/* Adds to what the account holds. CLOOB_ERR_BUSY when too little of the budget is left, CLOOB_ERR_ARGUMENT when the
 * budget is smaller than that; the account is then unchanged. */
cloob_status account_reserve(cloob_ctx *ctx, account *a, int64_t bytes);
/* The same, but waits until others release memory: CLOOB_ERR_BUSY after `seconds`. Callers that wait and hold memory
 * must give up at different times. */
cloob_status account_wait(cloob_ctx *ctx, account *a, int64_t bytes, double seconds);
/* Makes the account hold `bytes`. false: that is more than before and not available; the account is unchanged. */
bool account_set(account *a, int64_t bytes);

#endif
