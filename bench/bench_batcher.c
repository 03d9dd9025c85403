/* Measures the batching encoder without HTTP: threads that each wait for one input at a time, as a server's workers do.
 *
 *     bench_batcher MODEL THREADS SECONDS text|image [FILE.jpg] [DEVICE] [PRECISION] [MAX_BATCH] [invariant]
 *
 * Prints one JSON object: inputs per second, latency, mean rows of a batch, and the share of the time that the encoder
 * was busy (on a GPU: from the upload of a batch to its rows on the host). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "infer/batcher.h"

typedef struct load {
    batcher *b;
    batch_input in;
    double end;
} load;

typedef struct worker {
    pthread_t thread;
    load *l;
    double *took;
    int64_t count, room, failed;
} worker;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *work(void *arg)
{
    worker *w = arg;
    cloob_ctx *ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    while (now() < w->l->end) {
        batch_rows rows;
        double begin = now();
        if (batcher_encode(ctx, w->l->b, &w->l->in, 1, NULL, &rows) != CLOOB_OK) {
            w->failed++;
            continue;
        }
        batch_rows_release(&rows);
        if (w->count == w->room) {
            double *more = realloc(w->took, (size_t)(w->room = 2 * w->room + 64) * sizeof *more);
            if (!more) break;
            w->took = more;
        }
        w->took[w->count++] = now() - begin;
    }
    cloob_ctx_destroy(ctx);
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    void *data = f ? malloc(1 << 24) : NULL;
    *bytes = data ? fread(data, 1, 1 << 24, f) : 0;
    if (f) fclose(f);
    return data;
}

static void print(const char *kind, const batcher_stats *before, const batcher_stats *after, worker *w, int threads,
                  double seconds)
{
    int64_t n = 0, failed = 0;
    bool text = strcmp(kind, "text") == 0;
    for (int i = 0; i < threads; i++) n += w[i].count, failed += w[i].failed;
    double *all = malloc((size_t)(n + 1) * sizeof *all);
    if (!all || !n) return;
    n = 0;
    for (int i = 0; i < threads; i++)
        for (int64_t k = 0; k < w[i].count; k++) all[n++] = w[i].took[k];
    qsort(all, (size_t)n, sizeof *all, ascending);
    printf("{\"kind\": \"%s\", \"threads\": %d, \"per_s\": %.1f, \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"failed\": %lld, "
           "\"rows_per_batch\": %.1f, \"encoder_share\": %.3f}\n",
           kind, threads, (double)n / seconds, 1e3 * all[n / 2], 1e3 * all[n * 99 / 100], (long long)failed,
           (double)(after->rows[text] - before->rows[text]) / (double)(after->batches[text] - before->batches[text]),
           (after->encode[text].sum_s - before->encode[text].sum_s) / seconds);
    free(all);
}

/* One second to warm up, which is not counted. */
static void measure(load *l, const char *kind, int threads, double seconds)
{
    batcher_stats before, after;
    worker *w = calloc((size_t)threads, sizeof *w);
    for (int phase = 0; phase < 2 && w; phase++) {
        double begin = now();
        l->end = begin + (phase ? seconds : 1.0);
        batcher_get_stats(l->b, &before);
        for (int i = 0; i < threads; i++) {
            w[i].l = l, w[i].count = 0;
            if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0) exit(1);
        }
        for (int i = 0; i < threads; i++) pthread_join(w[i].thread, NULL);
        batcher_get_stats(l->b, &after);
        if (phase) print(kind, &before, &after, w, threads, now() - begin);
    }
    for (int i = 0; w && i < threads; i++) free(w[i].took);
    free(w);
}

int main(int argc, char **argv)
{
    load l = { 0 };
    batcher_options o;
    cloob_model_facts facts;
    static const int32_t dog[] = { 320, 1125, 539, 320, 1929 }; /* the same text in CLIP's vocabulary */
    size_t bytes = 0;
    if (argc < 5) return fprintf(stderr, "usage: bench_batcher MODEL THREADS SECONDS text|image [FILE]...\n"), 2;
    bool image = strcmp(argv[4], "image") == 0;
    void *file = image && argc > 5 ? read_file(argv[5], &bytes) : NULL;
    batcher_options_init(&o);
    o.model.device = argc > 6 ? argv[6] : "cpu";
    o.model.precision = argc > 7 ? argv[7] : "fp32";
    o.max_batch = argc > 8 ? strtoll(argv[8], NULL, 10) : 32;
    o.model.invariant = argc > 9;
    l.in = (batch_input){ .kind = image ? BATCH_IMAGE_FILE : BATCH_TEXT,
                          .text = "a photo of a dog",
                          .ids = dog,
                          .count = 5,
                          .data = file,
                          .bytes = bytes };
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    if (batcher_create(ctx, argv[1], &o, &l.b) != CLOOB_OK)
        return fprintf(stderr, "bench_batcher: %s\n", cloob_error(ctx)), 1;
    batcher_get_facts(l.b, &facts);
    if (!image && !facts.has_tokenizer) l.in.kind = BATCH_TOKENS;
    measure(&l, argv[4], atoi(argv[2]), strtod(argv[3], NULL));
    batcher_destroy(l.b);
    cloob_ctx_destroy(ctx);
    free(file);
    return 0;
}
