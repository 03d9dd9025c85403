/* The update on the host, all cores. */
#include "optim/adamw.h"

#include <math.h>
#include <stdlib.h>

#include "core/pool.h"
#include "tensor/cpu/bf16.h"

typedef struct job {
    const adamw_blocks *b;
    const adamw_range *r;
    adamw_update u;
} job;

static void update_weights(const job *j, int64_t begin, int64_t end)
{
    const adamw_update *u = &j->u;
    float *restrict p = j->b->param + j->r->offset, *restrict m = j->b->m + j->r->offset,
                    *restrict v = j->b->v + j->r->offset;
    const float *restrict grad = j->b->grad + j->r->offset;
    for (int64_t i = begin; i < end; i++) {
        float g = grad[i] * u->scale;
        m[i] = u->b1 * m[i] + (1.0f - u->b1) * g;
        v[i] = u->b2 * v[i] + (1.0f - u->b2) * g * g;
        p[i] = p[i] * u->decay - u->step_size * m[i] / (sqrtf(v[i]) * u->correction + u->eps);
    }
    uint16_t *shadow = j->b->shadow ? j->b->shadow + j->r->offset : NULL;
    if (shadow) bf16_round(shadow + begin, p + begin, end - begin);
}

static void update_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    update_weights(j, begin, end);
    if (!j->b->ema) return;
    float *restrict e = j->b->ema + j->r->offset;
    const float *restrict p = j->b->param + j->r->offset;
    for (int64_t i = begin; i < end; i++) e[i] += j->u.ema * (p[i] - e[i]);
}

adamw_update adamw_update_of(const adamw_settings *s)
{
    double c1 = 1.0 - pow(s->beta1, (double)s->step), c2 = 1.0 - pow(s->beta2, (double)s->step);
    return (adamw_update){ .decay = (float)(1.0 - s->lr * s->wd),
                           .b1 = (float)s->beta1,
                           .b2 = (float)s->beta2,
                           .step_size = (float)(s->lr / c1),
                           .correction = (float)(1.0 / sqrt(c2)),
                           .eps = (float)s->eps,
                           .scale = (float)s->grad_scale,
                           .ema = s->step == 1 ? 1.0f : 1.0f - (float)s->ema_decay,
                           .shrink = (float)(s->lr * s->wd) };
}

static void step_host(cloob_ctx *ctx, const adamw_blocks *b, const adamw_settings *s)
{
    for (int i = 0; i < b->ranges; i++) {
        job j = { b, &b->range[i], adamw_update_in(adamw_update_of(s), b->range[i]) };
        pool_for(ctx, j.r->count, 1 << 15, update_range, &j);
    }
}

cloob_status adamw_step(cloob_ctx *ctx, device *dev, void *stream, const adamw_blocks *b, const adamw_settings *s)
{
    if (dev->backend == BACKEND_CUDA) return adamw_step_cuda(ctx, dev, stream, b, s);
    step_host(ctx, b, s);
    return CLOOB_OK;
}

cloob_status optim_square_sum(cloob_ctx *ctx, device *dev, void *stream, const float *x, int64_t n, double *sum)
{
    if (dev->backend == BACKEND_CUDA) return optim_square_sum_cuda(ctx, dev, stream, x, n, sum);
    enum { LANES = 16 };
    double lane[LANES] = { 0 }; /* fixed order, and independent chains for the processor */
    for (int64_t i = 0; i < n; i++) lane[i % LANES] += (double)x[i] * x[i];
    *sum = 0;
    for (int i = 0; i < LANES; i++) *sum += lane[i];
    return CLOOB_OK;
}
