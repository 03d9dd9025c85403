/* Images per second of processor time in one thread: bench_images decode|eval|train|shrink SECONDS
 * FILE...
 *
 * shrink is train with decoding at reduced scale; its difference from train is printed as well. bench/images.py
 * compares the rates with Pillow and torchvision. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "core/rng.h"
#include "data/view/transform.h"

enum { SIZE = 224, BYTES = SIZE * SIZE * 3 };

typedef struct bench {
    cloob_ctx *ctx;
    image_reader *reader;
    view_scratch *scratch;
    file_bytes *file;
    int files;
    transform_options view;
    uint8_t out[BYTES], exact[BYTES];
} bench;

/* What others take of the machine does not count. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cloob_status decode(bench *b, const file_bytes *f)
{
    int64_t w, h;
    image_part part;
    CLOOB_TRY(image_reader_open(b->ctx, b->reader, f->data, f->size, "bench", NULL, &w, &h));
    return image_reader_load(b->ctx, b->reader, NULL, &part);
}

static cloob_status one(bench *b, const char *what, int i, uint64_t round)
{
    const file_bytes *f = &b->file[i];
    if (!strcmp(what, "decode")) return decode(b, f);
    uint64_t key = rng_subkey(round, (uint64_t)i);
    return view_of_bytes(b->ctx, b->scratch, f->data, f->size, "bench", NULL, &b->view,
                         strcmp(what, "eval") ? &key : NULL, b->out);
}

static cloob_status run(bench *b, const char *what, double seconds, double *rate)
{
    double start = now();
    int64_t items = 0;
    for (uint64_t round = 0; now() - start < seconds; round++, items += b->files)
        for (int i = 0; i < b->files; i++) CLOOB_TRY(one(b, what, i, round));
    *rate = (double)items / (now() - start);
    return CLOOB_OK;
}

/* Mean and largest difference between reduced and full decoding, over all files. */
static cloob_status distance(bench *b, double *mean, int *worst)
{
    double sum = 0;
    for (int i = 0; i < b->files; i++) {
        b->view.jpeg_shrink = false;
        CLOOB_TRY(one(b, "train", i, 0));
        memcpy(b->exact, b->out, BYTES);
        b->view.jpeg_shrink = true;
        CLOOB_TRY(one(b, "train", i, 0));
        for (int j = 0; j < BYTES; j++) {
            int d = abs(b->out[j] - b->exact[j]);
            sum += d;
            if (d > *worst) *worst = d;
        }
    }
    *mean = sum / ((double)b->files * BYTES);
    return CLOOB_OK;
}

static cloob_status bench_open(bench *b, char **paths)
{
    transform_options_init(&b->view, SIZE);
    b->file = calloc((size_t)b->files, sizeof *b->file);
    if (!b->file) return ctx_no_memory(b->ctx, 0, "the list of files");
    CLOOB_TRY(image_reader_create(b->ctx, &b->reader));
    CLOOB_TRY(view_scratch_create(b->ctx, &b->scratch));
    for (int i = 0; i < b->files; i++) CLOOB_TRY(file_read(b->ctx, paths[i], FILE_TEXT_LIMIT, &b->file[i]));
    return CLOOB_OK;
}

static void bench_close(bench *b)
{
    for (int i = 0; b->file && i < b->files; i++) file_bytes_release(&b->file[i]);
    free(b->file);
    image_reader_destroy(b->reader);
    view_scratch_destroy(b->scratch);
    cloob_ctx_destroy(b->ctx);
}

int main(int argc, char **argv)
{
    static bench b;
    double rate = 0, mean = 0;
    int worst = 0;
    if (argc < 4) return fprintf(stderr, "usage: bench_images decode|eval|train|shrink SECONDS FILE...\n"), 2;
    b.ctx = cloob_ctx_create(NULL);
    b.files = argc - 3;
    cloob_status s = bench_open(&b, argv + 3);
    bool shrink = !strcmp(argv[1], "shrink");
    b.view.jpeg_shrink = shrink;
    if (s == CLOOB_OK) s = run(&b, argv[1], atof(argv[2]), &rate);
    if (s == CLOOB_OK && shrink) s = distance(&b, &mean, &worst);
    if (s != CLOOB_OK) fprintf(stderr, "bench_images: %s\n", cloob_error(b.ctx));
    else printf("{\"items_per_s\": %.1f, \"mean_abs\": %.3f, \"max_abs\": %d}\n", rate, mean, worst);
    bench_close(&b);
    return s != CLOOB_OK;
}
