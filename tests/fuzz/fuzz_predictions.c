/* Files of predictions and of a benchmark's results: CSV, JSON lines, JSON. */
#include <stdlib.h>

#include "cloob/cloob.h"
#include "fuzz.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cloob_ctx *ctx;
    char path[64];
    cloob_predictions *p = NULL;
    cloob_calibration c;
    cloob_paired r;
    cloob_benchmark_result result;
    if (!ctx) ctx = cloob_ctx_create(NULL);
    if (!memory_file(data, size, path)) return 0;
    if (cloob_predictions_open(ctx, path, &p) == CLOOB_OK) {
        cloob_predictions_calibrate(ctx, p, 15, &c);
        cloob_predictions_compare(ctx, p, p, &(cloob_paired_options){ .resamples = 3, .level = 0.9 }, &r);
        cloob_predictions_close(p);
    }
    if (cloob_benchmark_read(ctx, path, &result) != CLOOB_OK) return 0;
    char *csv = cloob_benchmark_csv(&result, 1), *table = cloob_benchmark_table(&result, 1, true);
    free(csv), free(table);
    cloob_benchmark_release(&result);
    return 0;
}
