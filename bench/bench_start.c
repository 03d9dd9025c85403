/* Profiles what happens before the first training step on the GPU.
 *
 *     bench_start MODEL BATCH [packed] [log]      run it twice: the second time choices of kernels come from the tuning
 *                                                 cache; log: every line of the log with its time
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/rng.h"
#include "train/step.h"

static double begin;
static bool all_lines;

static void report(const char *what) { printf("%8.3f s  %s\n", clock_seconds() - begin, what); }

static void log_line(void *user, cloob_log_level level, const char *line)
{
    (void)user, (void)level;
    if (all_lines || strncmp(line, "prepared", 8) == 0) report(line);
}

static void need(const cloob_ctx *ctx, cloob_status status, const char *what)
{
    if (status == CLOOB_OK) {
        report(what);
        return;
    }
    fprintf(stderr, "bench_start: %s: %s\n", what, cloob_error(ctx));
    exit(1);
}

int main(int argc, char **argv)
{
    step_options o;
    step_result r;
    step *s;
    device *dev;
    if (argc < 3) return fprintf(stderr, "usage: bench_start MODEL BATCH [packed] [log]\n"), 2;
    begin = clock_seconds();
    all_lines = strcmp(argv[argc - 1], "log") == 0;
    cloob_ctx *ctx = cloob_ctx_create(
        &(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .log = log_line, .log_level = CLOOB_LOG_DEBUG });
    step_options_init(&o);
    o.compute = CLOOB_BF16, o.batch = atoll(argv[2]), o.pack_texts = argc > 3 && strcmp(argv[3], "packed") == 0;
    need(ctx, model_config_load(ctx, argv[1], &o.model), "configuration");
    need(ctx, device_open(ctx, "cuda", &dev), "device opened");
    need(ctx, step_create(ctx, &o, dev, NULL, &s), "step created");
    need(ctx, params_init(ctx, step_params(s), 1), "weights drawn and copied");
    int64_t pixels = o.batch * o.model.image_size * o.model.image_size * 3, T = o.model.context;
    uint8_t *rgb = calloc((size_t)pixels, 1);
    int32_t *tokens = calloc((size_t)(o.batch * T), sizeof *tokens);
    for (int64_t i = 0; i < pixels; i++) rgb[i] = (uint8_t)rng_u64(1, (uint64_t)i);
    for (int64_t i = 0; i < o.batch; i++) tokens[i * T + 12] = (int32_t)o.model.vocab - 1;
    report("inputs drawn (not part of a run)");
    for (int i = 0; i < 4; i++) {
        need(ctx, step_run(ctx, s, rgb, tokens, 1e-4, &r), "step");
        need(ctx, dev->sync(ctx, dev), "step done");
    }
    step_destroy(s);
    device_close(dev);
    free(rgb), free(tokens);
    cloob_ctx_destroy(ctx);
    return 0;
}
