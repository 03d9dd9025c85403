/* Memory for trials: what is in it, and that the device's next allocation has all of it. */
#include "check.h"

#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/tensor.h"

static cloob_ctx *ctx;

/* Mean 0, variance 1, no two neighbours alike; of a length that fills no vector. */
static void noise_looks_normal(void)
{
    enum { N = 100003 };
    static const cloob_dtype types[] = { CLOOB_F32, CLOOB_BF16 };
    device *dev;
    if (device_cuda_count() == 0) SKIP("no GPU here");
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    for (int t = 0; t < 2; t++) {
        void *p = NULL, *host = malloc(N * sizeof(float));
        float *x = malloc(N * sizeof *x);
        double sum = 0, squares = 0, together = 0;
        CHECK_OK(ctx, cuda_trial_noise(ctx, dev, types[t], N, &p));
        CHECK_OK(ctx, dev->to_host(ctx, dev, host, p, N * dtype_size(types[t])));
        CHECK(dtype_convert(CLOOB_F32, x, types[t], host, N));
        for (int i = 0; i < N; i++) sum += x[i], squares += x[i] * x[i], together += i ? x[i] * x[i - 1] : 0;
        CHECK_NEAR(sum / N, 0, 0.02); /* six standard errors of 100,000 numbers */
        CHECK_NEAR(squares / N, 1, 0.03);
        CHECK_NEAR(together / N, 0, 0.02);
        cuda_trial_free(dev, p);
        free(x), free(host);
    }
    device_close(dev);
}

static uint64_t held(const device *dev)
{
    uint64_t bytes = 0;
    cudaMemPool_t pool = ((const cuda_state *)dev->state)->trials;
    if (pool) CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes) == cudaSuccess);
    return bytes;
}

static void memory_comes_back(void)
{
    const size_t large = (size_t)1 << 30, more_than_any = (size_t)1 << 44;
    void *p = NULL, *own = NULL;
    device *dev;
    if (device_cuda_count() == 0) SKIP("no GPU here");
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    if (!((cuda_state *)dev->state)->trials) SKIP("the driver has no pools");
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ctx, cuda_trial_room(ctx, dev, large, &p));
        cuda_trial_free(dev, p);
    }
    CHECK(held(dev) >= large && held(dev) < 2 * large);
    CHECK_OK(ctx, dev->alloc(ctx, dev, 256, "a little", &own));
    CHECK(held(dev) == 0);
    CHECK(cuda_trial_room(ctx, dev, more_than_any, &p) == CLOOB_ERR_MEMORY && !p);
    CHECK_OK(ctx, cuda_trial_room(ctx, dev, large, &p)); /* and afterwards everything is as before */
    cuda_trial_free(dev, p);
    cuda_trial_free(dev, NULL);
    dev->free(dev, own);
    device_close(dev);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(noise_looks_normal);
    RUN(memory_comes_back);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
