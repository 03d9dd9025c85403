/* A run's folder as reports, comparisons and resumed runs read it. The first byte chooses the file that the others
 * become: params.txt, metrics.tsv, results.jsonl, examples-validation.json, settings.json. */
#include <sys/stat.h>

#include "cloob/train.h"
#include "fuzz.h"
#include "lab/run_files.h"
#include "scratch_folder.h"
#include "train/settings.h"

static const char *const names[] = { "params.txt", "metrics.tsv", "checkpoints/results.jsonl",
                                     "examples-validation.json", "settings.json" };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    const char *folder = scratch_folder();
    char path[256];
    arena a = { 0 };
    run_files r = { 0 };
    score_files scores = { 0 };
    double value;
    if (!ctx) ctx = cloob_ctx_create(&(cloob_ctx_options){ .size = sizeof(cloob_ctx_options), .threads = 1 });
    if (!folder || size < 1) return 0;
    const char *name = names[data[0] % 5];
    snprintf(path, sizeof path, "%s/checkpoints", folder);
    mkdir(path, 0700);
    if (!scratch_write(name, data + 1, size - 1)) return 0;
    if (run_files_read(ctx, &a, folder, &r) == CLOOB_OK) {
        run_param_get(&r, "batch_size");
        run_last_result(&r, "val_loss", &value);
        score_files_scan(ctx, &a, folder, &r, &r, 1, &scores);
    }
    arena_release(&a);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (data[0] % 5 == 4) {
        run_settings *s;
        if (settings_load(ctx, path, NULL, &s) == CLOOB_OK) run_settings_close(s);
    }
    unlink(path);
    return 0;
}
