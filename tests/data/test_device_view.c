/* Views that a GPU makes, by their definition: which files it takes, RGB out of planes as libjpeg has it, and the whole
 * view equal to the CPU's when the planes are libjpeg's. */
#include "data/view/device_view.h"

#include "check.h"
#include "jpeg_planes.h"

static cloob_ctx *ctx;
static const image_limits limits = { IMAGE_MAX_PIXELS, 8, false };

static const jpeg_case plain[] = {
    { .width = 97, .height = 61, .components = 3, .across = 2, .down = 2 },
    { .width = 96, .height = 64, .components = 3, .across = 2, .down = 2, .restart = 2 },
    { .width = 83, .height = 50, .components = 3, .across = 2, .down = 1 },
    { .width = 61, .height = 97, .components = 3, .across = 1, .down = 1 },
    { .width = 61, .height = 97, .components = 1, .across = 1, .down = 1 },
    { .width = 5, .height = 3, .components = 3, .across = 2, .down = 2 },
    { .width = 70, .height = 1, .components = 3, .across = 2, .down = 2, .exif = 6 },
};
enum { PLAIN = sizeof plain / sizeof *plain };

static void planes_become_the_pixels_of_libjpeg(void)
{
    for (int i = 0; i < PLAIN; i++) {
        size_t size;
        ycc_planes p;
        image im;
        uint8_t *file = jpeg_make(&plain[i], (uint64_t)i, &size), *memory = jpeg_decode_planes(file, size, &p);
        CHECK_OK(ctx, image_decode(ctx, file, size, "a file", &limits, &im));
        CHECK(memory && im.width == p.width && im.height == p.height);
        int64_t wrong = 0;
        for (int y = 0; memory && y < p.height; y++)
            for (int x = 0; x < p.width; x++) {
                uint8_t rgb[3];
                ycc_pixel(&p, x, y, rgb);
                wrong += memcmp(rgb, im.rgb + (y * im.width + x) * 3, 3) != 0;
            }
        CHECK(wrong == 0);
        image_release(&im);
        free(memory);
        free(file);
    }
}

static void the_view_is_the_one_of_the_cpu(void)
{
    view_scratch *scratch;
    transform_options o;
    CHECK_OK(ctx, view_scratch_create(ctx, &scratch));
    transform_options_init(&o, 48);
    o.scale_min = 0.2;
    o.flip_prob = 0.5;
    static uint8_t ours[48 * 48 * 3], cpu[48 * 48 * 3];
    int flips = 0;
    for (int i = 0; i < 4 * PLAIN; i++) {
        size_t size;
        ycc_planes p;
        view_job job;
        uint64_t key = (uint64_t)i * 77;
        uint8_t *file = jpeg_make(&plain[i % PLAIN], (uint64_t)i, &size), *memory = jpeg_decode_planes(file, size, &p);
        o.how.filter = i % 2 ? RESIZE_BILINEAR : RESIZE_BICUBIC;
        CHECK(view_job_plan(file, size, &limits, &o, key, &job));
        CHECK_OK(ctx, view_job_define(ctx, &p, &job, &o, ours));
        CHECK_OK(ctx, view_of_bytes(ctx, scratch, file, size, "a file", &limits, &o, &key, cpu));
        CHECK(memcmp(ours, cpu, sizeof cpu) == 0);
        flips += job.flip;
        free(memory);
        free(file);
    }
    CHECK(flips > 0 && flips < 4 * PLAIN);
    view_scratch_destroy(scratch);
}

static bool takes(const jpeg_case *c, const image_limits *l, const transform_options *o)
{
    size_t size;
    view_job job;
    uint8_t *file = jpeg_make(c, 1, &size);
    bool ok = view_job_plan(file, size, l, o, 1, &job);
    CHECK(!ok || job.layout.size == size);
    free(file);
    return ok;
}

static void what_is_left_to_the_cpu(void)
{
    transform_options o;
    image_limits small = { 60 * 60, 8, false }, photo = { 0, 8, true };
    transform_options_init(&o, 32);
    jpeg_case c = { .width = 64, .height = 64, .components = 3, .across = 2, .down = 2 }, other = c;
    CHECK(takes(&c, &limits, &o) && takes(&c, &photo, &o));
    CHECK(!takes(&c, &small, &o)); /* above the limit: the CPU says so */
    other.progressive = true;
    CHECK(!takes(&other, &limits, &o));
    other = (jpeg_case){ .width = 64, .height = 64, .components = 4, .across = 1, .down = 1 };
    CHECK(!takes(&other, &limits, &o));
    other = (jpeg_case){ .width = 64, .height = 64, .components = 3, .across = 1, .down = 1, .rgb = true };
    CHECK(!takes(&other, &limits, &o));
    other = (jpeg_case){ .width = 64, .height = 64, .components = 3, .across = 4, .down = 1 };
    CHECK(!takes(&other, &limits, &o));
    other = (jpeg_case){ .width = 1, .height = 1, .components = 3, .across = 2, .down = 2 };
    CHECK(!takes(&other, &limits, &o));
    other = c, other.exif = 6;
    CHECK(takes(&other, &limits, &o) && !takes(&other, &photo, &o));
    o.gray_prob = 1;
    CHECK(!takes(&c, &limits, &o));
    o.gray_prob = 0, o.jitter_prob = 1;
    CHECK(!takes(&c, &limits, &o));
    jpeg_case large = { .width = 6000, .height = 5000, .components = 1, .across = 1, .down = 1 };
    o.jitter_prob = 0;
    CHECK(!takes(&large, &photo, &o));
}

/* Every length of a file but the whole is one that is cut off; and no byte of the header may lead the walk astray. */
static void damaged_files_are_refused(void)
{
    size_t size;
    jpeg_layout l;
    jpeg_case c = { .width = 40, .height = 30, .components = 3, .across = 2, .down = 2, .restart = 1, .exif = 3 };
    uint8_t *file = jpeg_make(&c, 5, &size), *copy = malloc(size + 16);
    CHECK(jpeg_layout_read(file, size, &l) && l.size == size);
    for (size_t n = 0; n < size; n++) {
        uint8_t *exact = malloc(n ? n : 1); /* no byte more than it says: sanitizers see what is read beyond */
        memcpy(exact, file, n);
        CHECK(!jpeg_layout_read(exact, n, &l));
        free(exact);
    }
    memcpy(copy, file, size);
    memset(copy + size, 0, 16);
    CHECK(jpeg_layout_read(copy, size + 16, &l) && l.size == size);
    for (size_t i = 0; i < 700 && i < size; i++)
        for (int v = 0; v < 256; v += 51) {
            uint8_t before = copy[i];
            copy[i] = (uint8_t)v;
            if (jpeg_layout_read(copy, size, &l)) CHECK(l.width > 0 && l.height > 0 && l.size <= size);
            copy[i] = before;
        }
    free(copy);
    free(file);
}

int main(void)
{
    ctx = cloob_ctx_create(NULL);
    RUN(planes_become_the_pixels_of_libjpeg);
    RUN(the_view_is_the_one_of_the_cpu);
    RUN(what_is_left_to_the_cpu);
    RUN(damaged_files_are_refused);
    cloob_ctx_destroy(ctx);
    return check_summary();
}
