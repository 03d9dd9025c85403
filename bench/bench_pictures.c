/* Pictures per second in one thread: bench_pictures decode|eval|train SECONDS FILE... (see bench/pictures.py)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "core/rng.h"
#include "data/transform.h"

enum { SIZE = 224 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* what others take of the machine does not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cloob_status decode(cloob_ctx *ctx, image_reader *r, const file_bytes *f)
{
    int64_t w, h;
    image_part part;
    CLOOB_TRY(image_reader_open(ctx, r, f->data, f->size, "bench", NULL, &w, &h));
    return image_reader_load(ctx, r, NULL, &part);
}

static cloob_status pass(cloob_ctx *ctx, const char *what, image_reader *r, view_scratch *s,
                         const file_bytes *f, int n, uint64_t round)
{
    static uint8_t out[SIZE * SIZE * 3];
    transform_options o;
    transform_options_init(&o, SIZE);
    for (int i = 0; i < n; i++) {
        uint64_t key = rng_subkey(round, (uint64_t)i);
        if (!strcmp(what, "decode")) CLOOB_TRY(decode(ctx, r, &f[i]));
        else if (!strcmp(what, "eval"))
            CLOOB_TRY(view_eval_bytes(ctx, s, f[i].data, f[i].size, "bench", NULL, &o, out));
        else CLOOB_TRY(view_train_bytes(ctx, s, f[i].data, f[i].size, "bench", NULL, &o, key, out));
    }
    return CLOOB_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) return fprintf(stderr, "usage: bench_pictures decode|eval|train SECONDS FILE...\n"), 2;
    cloob_ctx *ctx = cloob_ctx_create(NULL);
    image_reader *r;
    view_scratch *s;
    int n = argc - 3;
    file_bytes *f = calloc((size_t)n, sizeof *f);
    cloob_status status = f ? CLOOB_OK : CLOOB_ERR_MEMORY;
    if (status == CLOOB_OK) status = image_reader_create(ctx, &r);
    if (status == CLOOB_OK) status = view_scratch_create(ctx, &s);
    for (int i = 0; i < n && status == CLOOB_OK; i++)
        status = file_read(ctx, argv[3 + i], FILE_TEXT_LIMIT, &f[i]);
    double start = now(), seconds = atof(argv[2]);
    int64_t items = 0;
    for (uint64_t round = 0; status == CLOOB_OK && now() - start < seconds; round++, items += n)
        status = pass(ctx, argv[1], r, s, f, n, round);
    if (status != CLOOB_OK) return fprintf(stderr, "bench_pictures: %s\n", cloob_error(ctx)), 1;
    printf("{\"items_per_s\": %.1f}\n", (double)items / (now() - start));
    for (int i = 0; i < n; i++) file_bytes_release(&f[i]);
    free(f);
    image_reader_destroy(r);
    view_scratch_destroy(s);
    cloob_ctx_destroy(ctx);
    return 0;
}
