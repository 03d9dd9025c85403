/* Rows over threads; the row itself is in softmax_loss_real.h. */
#include "eval/probe/probe_objective.h"

#include <math.h>

#include "core/pool.h"
#include "tensor/cpu/vmath.h"

enum { GRAIN = 1 << 16, MAX_PARTS = 256 }; /* logits per thread at least: less is not worth waking one */

#define REAL   float
#define EXP(x) vmath_exp_or_zero(x)
#define NAME   rows_f
#include "eval/probe/softmax_loss_real.h"
#undef REAL
#undef EXP
#undef NAME

#define REAL   double
#define EXP(x) exp(x)
#define NAME   rows_d
#include "eval/probe/softmax_loss_real.h"

typedef struct job {
    float *narrow; /* one of the two */
    double *wide;
    float *uncertain;
    const int32_t *y;
    int64_t C;
    double part[MAX_PARTS];
} job;

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    float *u = j->uncertain ? j->uncertain + begin : NULL;
    if (j->narrow) j->part[thread] = rows_f(j->narrow + begin * j->C, u, j->y + begin, end - begin, j->C);
    else j->part[thread] = rows_d(j->wide + begin * j->C, u, j->y + begin, end - begin, j->C);
}

static double run(cloob_ctx *ctx, job *j, int64_t n)
{
    double loss = 0;
    int64_t grain = GRAIN / j->C + 1;
    pool_for(ctx, n, grain, run_range, j);
    for (int k = 0; k < pool_ranges(ctx, n, grain); k++) loss += j->part[k];
    return loss;
}

double softmax_loss_f(cloob_ctx *ctx, float *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    job j = { .narrow = z, .uncertain = uncertain, .y = y, .C = C };
    return run(ctx, &j, n);
}

double softmax_loss_d(cloob_ctx *ctx, double *z, float *uncertain, const int32_t *y, int64_t n, int64_t C)
{
    job j = { .wide = z, .uncertain = uncertain, .y = y, .C = C };
    return run(ctx, &j, n);
}
