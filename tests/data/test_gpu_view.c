/* Views on a GPU: kernels equal to their definition, nvJPEG near libjpeg, a loader that gives the same batches whoever
 * decodes. */
#include <unistd.h>

#include "check.h"
#include "data/view/cuda/view_kernels.h"
#include "decoded_epochs.h"
#include "fixture.h"
#include "jpeg_planes.h"

static cloob_ctx *ctx;
static device *dev;
static device_decoder *decoder;
static const image_limits limits = { IMAGE_MAX_PIXELS, 8, false };

static const jpeg_case plain[] = {
    { .width = 500, .height = 375, .components = 3, .across = 2, .down = 2 },
    { .width = 197, .height = 161, .components = 3, .across = 2, .down = 2, .restart = 2 },
    { .width = 183, .height = 250, .components = 3, .across = 2, .down = 1 },
    { .width = 161, .height = 197, .components = 3, .across = 1, .down = 1 },
    { .width = 161, .height = 197, .components = 1, .across = 1, .down = 1 },
    { .width = 5, .height = 3, .components = 3, .across = 2, .down = 2 },
};
enum { PLAIN = sizeof plain / sizeof *plain, SIZE = 96, VIEW = SIZE * SIZE * 3, JOBS = 4 * PLAIN };

static void *on_device(size_t bytes, const void *from)
{
    void *p = NULL;
    CHECK_OK(ctx, dev->alloc(ctx, dev, bytes, "a test", &p));
    if (from) CHECK_OK(ctx, dev->to_device(ctx, dev, p, from, bytes));
    CHECK_OK(ctx, dev->sync(ctx, dev));
    return p;
}

static transform_options options(int i)
{
    transform_options o;
    transform_options_init(&o, SIZE);
    o.scale_min = 0.1;
    o.flip_prob = 0.5;
    o.how.filter = i % 2 ? RESIZE_BILINEAR : RESIZE_BICUBIC;
    return o;
}

static void kernels_equal_the_definition(void)
{
    if (!dev) SKIP("no GPU here");
    for (int i = 0; i < JOBS; i++) {
        static uint8_t expected[VIEW], got[VIEW];
        transform_options o = options(i);
        size_t size;
        ycc_planes p;
        view_job job;
        uint8_t *file = jpeg_make(&plain[i % PLAIN], (uint64_t)i, &size), *memory = jpeg_decode_planes(file, size, &p);
        CHECK(view_job_plan(file, size, &limits, &o, (uint64_t)i, &job));
        CHECK_OK(ctx, view_job_define(ctx, &p, &job, &o, expected));
        size_t bytes = 3 * (size_t)(p.width + 32) * (size_t)(p.height + 32);
        uint8_t *planes = on_device(bytes, memory), *scratch = on_device(16 << 20, NULL);
        view_image v = { .planes = p, .top = (int32_t)job.box.top, .left = (int32_t)job.box.left, .flip = job.flip };
        for (int c = 0; c < p.components; c++) v.planes.plane[c] = planes + (p.plane[c] - memory);
        v.axis[0].in = (int32_t)job.box.width, v.axis[1].in = (int32_t)job.box.height;
        int filter = (int)o.how.filter;
        CHECK(view_image_carve(&v, SIZE, filter, scratch) < 16 << 20);
        v.out = on_device(VIEW, NULL);
        view_image *list = on_device(sizeof v, &v);
        CHECK(view_images_run(list, 1, SIZE, filter, (cudaStream_t)dev->stream) == cudaSuccess);
        CHECK_OK(ctx, dev->to_host(ctx, dev, got, v.out, VIEW));
        CHECK_OK(ctx, dev->sync(ctx, dev));
        CHECK(memcmp(expected, got, VIEW) == 0);
        dev->free(dev, planes), dev->free(dev, scratch), dev->free(dev, v.out), dev->free(dev, list);
        free(memory);
        free(file);
    }
}

/* Mean and largest difference of two views. */
static double difference(const uint8_t *a, const uint8_t *b, size_t n, int *largest)
{
    double sum = 0;
    *largest = 0;
    for (size_t i = 0; i < n; i++) {
        int d = abs(a[i] - b[i]);
        sum += d;
        if (d > *largest) *largest = d;
    }
    return sum / (double)n;
}

static void nvjpeg_is_near_libjpeg(void)
{
    if (!decoder) SKIP("no nvJPEG here");
    static uint8_t cpu[VIEW], got[VIEW];
    transform_options o = options(0);
    view_scratch *scratch;
    device_view *view;
    view_job job[JOBS];
    uint8_t *file[JOBS];
    size_t size[JOBS];
    CHECK_OK(ctx, view_scratch_create(ctx, &scratch));
    CHECK_OK(ctx, device_view_create(ctx, decoder, &o, &view));
    for (int i = 0; i < JOBS; i++) {
        file[i] = jpeg_make(&plain[i % PLAIN], (uint64_t)i, &size[i]);
        CHECK(view_job_plan(file[i], size[i], &limits, &o, (uint64_t)i, &job[i]));
        job[i].out = on_device(VIEW, NULL);
    }
    CHECK_OK(ctx, device_view_run(ctx, view, job, JOBS));
    int done = 0;
    for (int i = 0; i < JOBS; i++) {
        int largest;
        if (job[i].done) {
            CHECK_OK(ctx,
                     view_of_bytes(ctx, scratch, file[i], size[i], "", &limits, &o, &(uint64_t){ (uint64_t)i }, cpu));
            CHECK_OK(ctx, dev->to_host(ctx, dev, got, job[i].out, VIEW));
            CHECK(difference(cpu, got, VIEW, &largest) < (device_decoder_exact(decoder) ? 1e-9 : 0.1));
            CHECK(largest <= 3);
            done++;
        } else CHECK(i % PLAIN == PLAIN - 1); /* the smallest may be too small */
        dev->free(dev, job[i].out);
        free(file[i]);
    }
    printf("%s: %d of %d files\n", device_decoder_name(decoder), done, JOBS);
    device_view_destroy(view);
    view_scratch_destroy(scratch);
}

/* Damage inside of the coded data, which markers do not tell: what comes out is open, that it ends is not. */
static void damaged_data_comes_to_an_end(void)
{
    if (!decoder) SKIP("no nvJPEG here");
    static uint8_t before[VIEW], after[VIEW];
    transform_options o = options(0);
    device_view *view;
    CHECK_OK(ctx, device_view_create(ctx, decoder, &o, &view));
    uint8_t *out = on_device(VIEW, NULL);
    for (int i = -1; i <= 20; i++) {
        size_t size;
        view_job job;
        bool whole = i == -1 || i == 20;
        uint8_t *file = jpeg_make(&plain[whole ? 1 : i % (PLAIN - 1)], 9, &size);
        for (size_t at = size / 2 + (size_t)(i + 1); !whole && at < size - 2; at += 97)
            if (file[at] != 0xFF && file[at - 1] != 0xFF) file[at] = (uint8_t)(file[at] ^ (1 + i));
        bool taken = view_job_plan(file, size, &limits, &o, 1, &job);
        job.out = out;
        if (taken) CHECK_OK(ctx, device_view_run(ctx, view, &job, 1));
        CHECK((taken && job.done) || !whole);
        if (whole) CHECK_OK(ctx, dev->to_host(ctx, dev, i < 0 ? before : after, out, VIEW));
        free(file);
    }
    CHECK(memcmp(before, after, VIEW) == 0);
    dev->free(dev, out);
    device_view_destroy(view);
}

static void a_loader_gives_the_same_batches(void)
{
    if (!decoder) SKIP("no nvJPEG here");
    CHECK(decoded_epochs_agree(ctx, decoder, device_decoder_exact(decoder) ? 0 : 3));
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    if (device_cuda_count()) CHECK_OK(ctx, device_open(ctx, "cuda", &dev));
    if (dev && device_decoder_create(ctx, dev, &decoder) != CLOOB_OK) printf("%s\n", cloob_error(ctx));
    RUN(kernels_equal_the_definition);
    RUN(nvjpeg_is_near_libjpeg);
    RUN(damaged_data_comes_to_an_end);
    RUN(a_loader_gives_the_same_batches);
    device_decoder_destroy(decoder);
    device_close(dev);
    fixture_remove();
    cloob_ctx_destroy(ctx);
    return check_summary();
}
