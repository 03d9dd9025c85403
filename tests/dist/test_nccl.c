/* NCCL with one rank: every call in device memory, in order with the stream it belongs to, without the host
 * waiting. */
#include "check.h"

#include "dist/comm.h"
#include "tensor/device.h"

enum { N = 1 << 20 };

static cloob_ctx *ctx;
static device *dev;
static comm *base, *c;

static bool open_all(void)
{
    if (device_cuda_count() == 0) return false;
    CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    CHECK_OK(ctx, comm_create(ctx, &base));
    cloob_status status = comm_create_nccl(ctx, base, &c);
    if (status == CLOOB_ERR_UNSUPPORTED) return false;
    CHECK_OK(ctx, status);
    comm_set_stream(c, dev->stream);
    return c != NULL;
}

static void close_all(void)
{
    comm_destroy(c);
    comm_destroy(base);
    device_close(dev);
    c = base = NULL;
    dev = NULL;
}

static float *on_device(float first)
{
    static float host[N];
    void *p = NULL;
    for (int i = 0; i < N; i++) host[i] = first + (float)(i % 1000);
    CHECK_OK(ctx, dev->alloc(ctx, dev, sizeof host, "numbers", &p));
    CHECK_OK(ctx, dev->to_device(ctx, dev, p, host, sizeof host));
    return p;
}

static void expect(const float *p, float first)
{
    static float host[N];
    int wrong = 0;
    CHECK_OK(ctx, dev->to_host(ctx, dev, host, p, sizeof host));
    for (int i = 0; i < N; i++) wrong += host[i] != first + (float)(i % 1000);
    CHECK(wrong == 0);
}

/* Work on the stream, a call, work on the stream: what comes out shows the order. */
static void calls_keep_the_order_of_the_stream(void)
{
    const int64_t count[] = { N };
    if (!open_all()) SKIP("no GPU here, or no NCCL in this build");
    float *a = on_device(1), *b = on_device(2), *d = on_device(3);
    CHECK(comm_size(c) == 1 && comm_rank(c) == 0);
    for (int i = 0; i < 20; i++) {
        const float *from = i % 2 ? a : b;
        CHECK_OK(ctx, dev->zero(ctx, dev, d, N * sizeof *d));
        CHECK_OK(ctx, dev->copy(ctx, dev, d, from, N * sizeof *d));
        CHECK_OK(ctx, comm_all_reduce(ctx, c, d, N, CLOOB_F32)); /* alone, the sum is the value */
        CHECK_OK(ctx, dev->copy(ctx, dev, i % 2 ? b : a, d, N * sizeof *d));
    }
    expect(a, 2);
    expect(b, 2);
    CHECK_OK(ctx, dev->zero(ctx, dev, d, N * sizeof *d));
    CHECK_OK(ctx, comm_all_gather(ctx, c, a, d, count, CLOOB_F32));
    expect(d, 2);
    CHECK_OK(ctx, dev->zero(ctx, dev, d, N * sizeof *d));
    CHECK_OK(ctx, comm_reduce_scatter(ctx, c, a, d, count, CLOOB_F32));
    expect(d, 2);
    CHECK_OK(ctx, comm_broadcast(ctx, c, d, N, CLOOB_F32, 0));
    CHECK_OK(ctx, comm_barrier(ctx, c));
    expect(d, 2);
    dev->free(dev, a), dev->free(dev, b), dev->free(dev, d);
    close_all();
}

static void sums_overlap_with_the_stream(void)
{
    enum { BUCKETS = 8 };
    comm_request request[BUCKETS];
    float *part[BUCKETS];
    if (!open_all()) SKIP("no GPU here, or no NCCL in this build");
    for (int i = 0; i < BUCKETS; i++) part[i] = on_device((float)i);
    for (int i = 0; i < BUCKETS; i++)
        CHECK_OK(ctx, comm_all_reduce_begin(ctx, c, part[i], N, CLOOB_F32, dev->stream, &request[i]));
    for (int i = 0; i < BUCKETS; i++) CHECK_OK(ctx, comm_all_reduce_wait(ctx, c, &request[i]));
    for (int i = 0; i < BUCKETS; i++) expect(part[i], (float)i), dev->free(dev, part[i]);
    int64_t one = 7;
    CHECK_OK(ctx, comm_host_sum(ctx, c, &one, 1));
    CHECK(one == 7);
    CHECK_OK(ctx, comm_agree(ctx, c, CLOOB_OK));
    close_all();
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(calls_keep_the_order_of_the_stream);
    RUN(sums_overlap_with_the_stream);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
