/* On a host by all threads, or on the GPU. */
#include "tensor/bf16_copy.h"

#include "core/pool.h"
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/clones.h"

CPU_CLONES void bf16_round(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = bf16_down(from[i]);
}

typedef struct rounding {
    uint16_t *to;
    const float *from;
} rounding;

static void round_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const rounding *r = arg;
    (void)thread;
    bf16_round(r->to + begin, r->from + begin, end - begin);
}

cloob_status bf16_copy(cloob_ctx *ctx, device *d, uint16_t *to, const float *from, int64_t n)
{
    rounding r = { to, from };
    if (d->backend == BACKEND_CUDA) return bf16_copy_cuda(ctx, d, to, from, n);
    pool_for(ctx, n, 1 << 16, round_range, &r);
    return CLOOB_OK;
}
