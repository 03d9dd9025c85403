/* Statistics of include/cloob/batcher.h; the rest of it is src/infer/batcher.c. */
#include <math.h>

#include "infer/batcher.h"

static const double bounds[CLOOB_LATENCY_BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,   0.5,   1,      2.5,   5,    10,    30,   INFINITY };

double cloob_latency_bound(int i) { return i >= 0 && i < CLOOB_LATENCY_BUCKETS ? bounds[i] : 0; }

void cloob_latency_add(cloob_latency *h, double seconds)
{
    if (!h) return;
    int i = 0;
    while (i + 1 < CLOOB_LATENCY_BUCKETS && seconds > bounds[i]) i++;
    h->count[i]++;
    h->total++;
    h->sum_s += seconds;
}

void cloob_batcher_get_stats(cloob_batcher *b, cloob_batcher_stats *out)
{
    if (!out) return;
    *out = (cloob_batcher_stats){ 0 };
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    *out = b->stats;
    pthread_mutex_unlock(&b->lock);
}
