/* Prints by how much the training views of a data set differ between GPU and CPU: bench_gpu_views SET [FILE]
 *
 * FILE: both views of every image, (N, 2, 224, 224, 3) bytes, the CPU's first. `cloob bench data` measures speed. */
#include <stdio.h>
#include <stdlib.h>

#include "data/sets/dataset.h"
#include "data/view/device_view.h"

enum { SIZE = 224, BYTES = SIZE * SIZE * 3 };

typedef struct bench {
    cloob_ctx *ctx;
    device *dev;
    device_decoder *decoder;
    device_view *view;
    view_scratch *scratch;
    transform_options o;
    FILE *out;
    uint8_t *device_out;
    uint8_t cpu[BYTES], gpu[BYTES];
    int64_t images, left_out, count[256]; /* how many bytes differ by how much */
} bench;

static cloob_status one(bench *b, const stored_sample *s, uint64_t key)
{
    image_limits limits = { IMAGE_MAX_PIXELS, 8, false };
    view_job job;
    bool taken = !s->width && view_job_plan(s->data, s->size, &limits, &b->o, key, &job);
    job.out = b->device_out;
    if (taken) CLOOB_TRY(device_view_run(b->ctx, b->view, &job, 1));
    if (!taken || !job.done) {
        b->left_out++;
        return CLOOB_OK;
    }
    CLOOB_TRY(b->dev->to_host(b->ctx, b->dev, b->gpu, b->device_out, BYTES));
    CLOOB_TRY(view_of_bytes(b->ctx, b->scratch, s->data, s->size, s->name.data, &limits, &b->o, &key, b->cpu));
    for (int i = 0; i < BYTES; i++) b->count[abs(b->cpu[i] - b->gpu[i])]++;
    b->images++;
    if (b->out && (fwrite(b->cpu, BYTES, 1, b->out) != 1 || fwrite(b->gpu, BYTES, 1, b->out) != 1))
        return ctx_fail(b->ctx, CLOOB_ERR_IO, "the views cannot be written");
    return CLOOB_OK;
}

static cloob_status run(bench *b, const char *source)
{
    dataset *d;
    stored_sample s = { 0 };
    dataset_options options;
    dataset_options_init(&options);
    CLOOB_TRY(dataset_open(b->ctx, source, &options, &d));
    cloob_status status = CLOOB_OK;
    for (int64_t i = 0; i < dataset_count(d) && status == CLOOB_OK; i++) {
        status = dataset_fetch(b->ctx, d, i, 0, FETCH_IMAGE, &s);
        if (status == CLOOB_OK) status = one(b, &s, (uint64_t)i);
    }
    stored_sample_release(&s);
    dataset_close(d);
    return status;
}

static void report(const bench *b)
{
    double sum = 0, all = (double)b->images * BYTES;
    int largest = 0;
    for (int i = 0; i < 256; i++) {
        sum += (double)i * (double)b->count[i];
        if (b->count[i]) largest = i;
    }
    printf("%s: %lld images (%lld left to the CPU), bytes differ by %.4f in the mean, %d at most\n",
           device_decoder_name(b->decoder), (long long)b->images, (long long)b->left_out, all > 0 ? sum / all : 0,
           largest);
    for (int i = 0; i <= largest; i++) printf("  by %d: %.4f %%\n", i, 100 * (double)b->count[i] / all);
}

static cloob_status open_all(bench *b)
{
    void *out;
    transform_options_init(&b->o, SIZE);
    b->o.flip_prob = 0.5;
    CLOOB_TRY(device_open(b->ctx, "cuda", &b->dev));
    CLOOB_TRY(device_decoder_create(b->ctx, b->dev, &b->decoder));
    CLOOB_TRY(device_view_create(b->ctx, b->decoder, &b->o, &b->view));
    CLOOB_TRY(b->dev->alloc(b->ctx, b->dev, BYTES, "a view", &out));
    b->device_out = out;
    return view_scratch_create(b->ctx, &b->scratch);
}

int main(int argc, char **argv)
{
    static bench b;
    if (argc < 2) return fprintf(stderr, "usage: bench_gpu_views SET [FILE]\n"), 2;
    b.ctx = cloob_ctx_create(NULL);
    if (argc > 2 && !(b.out = fopen(argv[2], "wb"))) return perror(argv[2]), 1;
    cloob_status status = open_all(&b);
    if (status == CLOOB_OK) status = run(&b, argv[1]);
    if (status == CLOOB_OK) report(&b);
    else fprintf(stderr, "%s\n", cloob_error(b.ctx));
    if (b.out && fclose(b.out)) status = CLOOB_ERR_IO;
    view_scratch_destroy(b.scratch);
    device_view_destroy(b.view);
    device_decoder_destroy(b.decoder);
    device_close(b.dev);
    cloob_ctx_destroy(b.ctx);
    return status == CLOOB_OK ? 0 : 1;
}
