#include "decoded_epochs.h"

#include "check.h"
#include "fixture.h"
#include "jpeg_planes.h"

/* Forty samples, among them what goes to the CPU (progressive, CMYK) and what nobody can read. */
enum { SAMPLES = 40, BATCH = 10, SIZE = 64, VIEW = SIZE * SIZE * 3 };

static void make_shard(void)
{
    static const jpeg_case plain[] = {
        { .width = 300, .height = 225, .components = 3, .across = 2, .down = 2 },
        { .width = 197, .height = 161, .components = 3, .across = 2, .down = 2, .restart = 2 },
        { .width = 183, .height = 250, .components = 3, .across = 2, .down = 1 },
        { .width = 161, .height = 197, .components = 3, .across = 1, .down = 1 },
        { .width = 161, .height = 197, .components = 1, .across = 1, .down = 1 },
    };
    FILE *f = fixture_tar_begin("decoded.tar");
    for (int i = 0; i < SAMPLES; i++) {
        char name[32], text[32];
        size_t size;
        jpeg_case c = plain[i % 5];
        c.progressive = i % 10 == 3;
        if (i % 10 == 7) c = (jpeg_case){ .width = 90, .height = 80, .components = 4, .across = 1, .down = 1 };
        uint8_t *file = jpeg_make(&c, (uint64_t)i, &size);
        snprintf(name, sizeof name, "%03d.jpg", i);
        fixture_tar_add(f, name, file, i % 20 == 5 ? size / 2 : size);
        snprintf(name, sizeof name, "%03d.txt", i);
        snprintf(text, sizeof text, "caption %d", i);
        fixture_tar_add(f, name, text, strlen(text));
        free(file);
    }
    fixture_tar_end(f);
}

typedef struct epoch {
    int64_t index[SAMPLES];
    uint8_t views[SAMPLES][VIEW];
    int64_t rows;
    loader_stats stats;
} epoch;

static void keep_views(cloob_ctx *ctx, device_decoder *by, uint8_t *to, const batch *b)
{
    device *dev = by ? device_decoder_device(by) : NULL;
    if (dev) CHECK_OK(ctx, dev->to_host(ctx, dev, to, b->images, (size_t)b->rows * VIEW));
    else memcpy(to, b->images, (size_t)b->rows * VIEW);
}

static void read_epoch(cloob_ctx *ctx, const dataset *d, device_decoder *by, int workers, epoch *out)
{
    loader_options o;
    loader *l;
    batch b;
    loader_options_init(&o);
    transform_options_init(&o.view, SIZE);
    o.batch = BATCH;
    o.workers = workers;
    o.train = true;
    o.view.flip_prob = 0.5;
    o.decoder = by;
    out->rows = 0;
    CHECK_OK(ctx, loader_create(ctx, d, NULL, &o, &l));
    for (;;) {
        CHECK_OK(ctx, loader_next(ctx, l, &b));
        if (b.end || !b.rows) break;
        memcpy(out->index + out->rows, b.index, (size_t)b.rows * sizeof *b.index);
        keep_views(ctx, by, out->views[out->rows], &b);
        out->rows += b.rows;
    }
    out->stats = loader_stats_take(l);
    loader_destroy(l);
}

static int largest_difference(const epoch *a, const epoch *b)
{
    int largest = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < VIEW; k++) {
            int d = abs(a->views[i][k] - b->views[i][k]);
            if (d > largest) largest = d;
        }
    return largest;
}

bool decoded_epochs_agree(cloob_ctx *ctx, device_decoder *decoder, int tolerance)
{
    static epoch cpu, gpu;
    dataset *d;
    dataset_options o;
    make_shard();
    dataset_options_init(&o);
    o.cache = "";
    CHECK_OK(ctx, dataset_open(ctx, fixture_path("decoded.tar"), &o, &d));
    read_epoch(ctx, d, NULL, 2, &cpu);
    CHECK(cpu.rows == SAMPLES && cpu.stats.cpu_views == 0);
    for (int workers = 0; workers < 4; workers++) {
        read_epoch(ctx, d, decoder, workers, &gpu);
        CHECK(gpu.rows == SAMPLES);
        CHECK(memcmp(cpu.index, gpu.index, sizeof cpu.index) == 0);
        CHECK(largest_difference(&cpu, &gpu) <= tolerance);
        CHECK(gpu.stats.bad_samples >= 2);
        CHECK(gpu.stats.cpu_views >= 8 && gpu.stats.cpu_views < 2 * SAMPLES);
    }
    dataset_close(d);
    return check_bad_here_ == 0; /* of this file, which counts for itself */
}
